"""Requirements for defining a connection or a table: each error has a hint, and nothing is changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg

from headwater.errors import DefinitionError, PrivilegeError, SourceError
from headwater.source.names import is_storable
from headwater.source.postgres.catalog.catalog import UpstreamColumn, UpstreamTable, describe_table
from headwater.source.postgres.client.ask import Session, query
from headwater.source.postgres.client.session import Endpoint, quote_identifier, quote_literal
from headwater.source.postgres.server import ServerFacts, describe_server
from headwater.source.refusals import no_column, other_key, unstorable

OLDEST_VERSION = 140000
CAPTURE_NAME = "headwater capture"  # our walsender's application name
NOT_TABLES = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """An upstream table that can be followed: the chosen columns, the key, and notices for the user."""

    table: UpstreamTable
    columns: tuple[UpstreamColumn, ...]
    key: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckedConnection:
    """An upstream that can be captured, and notices for the user."""

    server: ServerFacts
    notices: tuple[str, ...]


def check_connection(endpoint: Endpoint, *, slot: str = "") -> CheckedConnection:
    """The server, after checking that a capture can run on it; `slot` is the slot it would use."""
    with endpoint.connect() as session:
        server = describe_server(session)
        slot_exists = bool(query(session, "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", (slot,)))
        check_server(server, slot_exists=slot_exists)
        unused = query(session, "SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY 1 LIMIT 1")
        if server.slots_used >= server.slots and not slot_exists:
            raise no_free_slot(server, unused[0][0] if unused else None)
    _check_walsender(endpoint, server)
    return CheckedConnection(server, notices_of(server))


def check_server(server: ServerFacts, *, slot_exists: bool = False) -> None:
    """Raises unless the server's version, role and log suffice."""
    if server.version_num < OLDEST_VERSION:
        raise SourceError(
            "source.version",
            f"PostgreSQL {server.version} is not supported",
            "Upgrade it to PostgreSQL 14 or later.",
        )
    if server.in_recovery:
        raise SourceError(
            "source.standby",
            "the upstream is a standby; its snapshots show running transactions as finished",
            "Point hostname and port of the connection at the primary server.",
        )
    if server.wal_level != "logical":
        raise SourceError(
            "source.wal_level",
            f"the upstream's wal_level is {server.wal_level}",
            "Run as a superuser: ALTER SYSTEM SET wal_level = 'logical'; then restart the upstream.",
        )
    if server.slots == 0 and not slot_exists:
        raise no_free_slot(server, None)


def no_free_slot(server: ServerFacts, unused: str | None) -> SourceError:
    """The error for a server whose replication slots are all taken; `unused` is one that nobody reads."""
    drop = f" or, if it is not needed: SELECT pg_drop_replication_slot({quote_literal(unused)});" if unused else ""
    return SourceError(
        "source.no_free_slot",
        f"all {server.slots} replication slots of the upstream are in use",
        f"Run as a superuser: ALTER SYSTEM SET max_replication_slots = {server.slots + 10}; and restart the upstream,"
        f"{drop}".rstrip(","),
    )


def _check_walsender(endpoint: Endpoint, server: ServerFacts) -> None:
    """Opens a replication connection: only that proves the privilege (some services grant it through a role)."""
    try:
        endpoint.connect(replication=True).close()
    except SourceError as e:
        cause = e.__cause__
        if isinstance(cause, psycopg.Error) and _lacks_replication(cause):
            role = quote_identifier(server.user)
            raise PrivilegeError(
                "source.privilege",
                f"user {server.user} may not read the upstream's log",
                f"Run as a superuser: ALTER ROLE {role} REPLICATION;",
            ) from cause
        raise


def _lacks_replication(error: psycopg.Error) -> bool:
    text = str(error).lower()
    return "replication" in text and ("permission denied" in text or "must be superuser" in text)


def notices_of(server: ServerFacts) -> tuple[str, ...]:
    """Facts about this server that work but may surprise."""
    if not re.search(rf'(^|[\s,(])"?(\*|{CAPTURE_NAME})"?($|[\s,)])', server.synchronous_standby_names):
        return ()
    return (
        "synchronous_standby_names of the upstream matches Headwater's reader, so commits there wait for it; "
        f"name the standbys instead of '*' (it calls itself '{CAPTURE_NAME}')",
    )


def check_table(
    session: Session,
    schema: str,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    key: Sequence[str] = (),
    generated_in_log: bool = False,
) -> CheckedTable:
    """The upstream table, after checking that it can be followed.

    `columns` are the declared ones (None: all), `key` the declared key (empty: the upstream's). `generated_in_log`
    means that the publication carries stored generated columns. The caller judges types.
    """
    table = describe_table(session, schema, name)
    user = session.info.user
    _check_kind(table)
    _check_privileges(table, user)
    _check_key(table)
    check_identity(table)
    chosen, notices = choose_columns(table, columns, generated_in_log=generated_in_log)
    _check_names(table, chosen)
    _check_declared_key(table, chosen, key)
    if table.children:
        notices = (*notices, f"{table.qualified} has inheritance children; their rows are not included")
    return CheckedTable(table, chosen, table.key, notices)


def _check_kind(table: UpstreamTable) -> None:
    if table.kind not in ("r", "p"):
        what = NOT_TABLES.get(table.kind, "not a table")
        raise DefinitionError(
            "table.not_plain",
            f"{table.qualified} is {what}; its changes are not in the upstream's log",
            "Name the tables that it reads instead.",
        )
    if table.partition_of:
        root = ".".join(table.partition_of)
        raise DefinitionError(
            "table.not_plain",
            f"{table.qualified} is a partition; the log names only the table it belongs to",
            f"Write TABLE '{root}'.",
        )
    if table.persistence != "p":
        raise _unlogged(table.qualified, table.persistence)
    for leaf in table.leaves:
        if leaf.kind == "f":
            raise DefinitionError(
                "table.not_plain",
                f"the partition {leaf.qualified} of {table.qualified} is a foreign table",
                f"Detach it upstream: ALTER TABLE {table.qualified} DETACH PARTITION {leaf.qualified};",
            )
        if leaf.persistence != "p":
            raise _unlogged(leaf.qualified, leaf.persistence)


def _unlogged(name: str, persistence: str) -> DefinitionError:
    if persistence == "t":
        return DefinitionError("table.not_plain", f"{name} is a temporary table", "Name a permanent table.")
    return DefinitionError(
        "table.not_plain",
        f"{name} is unlogged; its changes are not in the upstream's log",
        f"Run upstream: ALTER TABLE {name} SET LOGGED;",
    )


def _check_privileges(table: UpstreamTable, user: str) -> None:
    role = quote_identifier(user)
    grants = []
    if not table.usable_schema:
        grants.append(f"GRANT USAGE ON SCHEMA {quote_identifier(table.schema)} TO {role};")
    if not table.selectable:
        grants.append(f"GRANT SELECT ON {table.qualified} TO {role};")
    if grants:
        raise PrivilegeError(
            "source.privilege", f"user {user} may not read {table.qualified}", f"Run as its owner: {' '.join(grants)}"
        )
    if table.row_security:
        raise DefinitionError(
            "table.row_security",
            f"row-level security would hide rows of {table.qualified} from user {user}",
            f"Run as a superuser: ALTER ROLE {role} BYPASSRLS;",
        )


def _check_key(table: UpstreamTable) -> None:
    if not table.key:
        raise DefinitionError(
            "table.no_key",
            f"{table.qualified} has no primary key",
            f"Run upstream: ALTER TABLE {table.qualified} ADD PRIMARY KEY (…);",
        )
    if table.key_deferrable:
        raise DefinitionError(
            "table.deferrable_key",
            f"the primary key of {table.qualified} is deferrable, so the log cannot identify the changed rows",
            "Make the primary key NOT DEFERRABLE upstream: drop the constraint and add it again.",
        )


def check_identity(table: UpstreamTable) -> None:
    """Raises unless the log identifies changed rows by exactly the key (or in full), in the table and each partition.

    Must hold before the table is published: an UPDATE of a published table without an identity fails in the upstream's
    own applications.
    """
    # the log describes a partitioned table by its root, but writes rows according to each partition's identity
    holders = [(table.qualified, table.identity, table.identity_columns)]
    holders += [(leaf.qualified, leaf.identity, leaf.identity_columns) for leaf in table.leaves]
    for name, identity, columns in holders:
        if identity == "f" or (identity in ("d", "i") and set(columns) == set(table.key)):
            continue
        why = {
            "n": "is NOTHING: the log would not identify the changed rows, and UPDATE would fail upstream",
            "i": f"is an index on ({', '.join(columns)}), the key is ({', '.join(table.key)})",
        }.get(identity, "has no primary key to use")
        raise DefinitionError(
            "table.bad_identity",
            f"the replica identity of {name} {why}",
            f"Run upstream: ALTER TABLE {name} REPLICA IDENTITY DEFAULT;",
        )


def choose_columns(
    table: UpstreamTable, declared: Sequence[str] | None, *, generated_in_log: bool
) -> tuple[tuple[UpstreamColumn, ...], tuple[str, ...]]:
    """The columns to follow, in declared order, and notices about those missing from the log."""
    chosen = list(table.columns) if declared is None else [find_column(table, d) for d in declared]
    absent = [c for c in chosen if c.generated == "v" or (c.generated == "s" and not generated_in_log)]
    for column in absent:
        if column.name in table.key:
            raise DefinitionError(
                "table.bad_identity",
                f"the key column {column.name} of {table.qualified} is generated and not in the upstream's log",
                "Give the table a primary key of ordinary columns.",
            )
        if declared is not None:
            raise DefinitionError(
                "table.column_missing",
                f"column {column.name} of {table.qualified} is generated and not in the upstream's log",
                f"Leave {column.name} out of the column list and compute it in the query.",
            )
    notices = tuple(f"column {c.name} is generated and not in the upstream's log; it is left out" for c in absent)
    return tuple(c for c in chosen if c not in absent), notices


def find_column(table: UpstreamTable, declared: str) -> UpstreamColumn:
    """The column of this name; case matters only between columns that differ in nothing else."""
    exact = table.column(declared)
    if exact:
        return exact
    alike = [c for c in table.columns if c.name.lower() == declared.lower()]
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise _case(table, [c.name for c in alike])
    raise no_column(table.qualified, declared, [c.name for c in table.columns])


def _check_names(table: UpstreamTable, chosen: Sequence[UpstreamColumn]) -> None:
    counts = Counter(c.name.lower() for c in chosen)
    for lower, count in counts.items():
        if count > 1:
            raise _case(table, [c.name for c in chosen if c.name.lower() == lower])
    for column in chosen:
        if not is_storable(column.name):
            raise unstorable(table.qualified, column.name, quote_identifier(column.name))


def _case(table: UpstreamTable, names: Sequence[str]) -> DefinitionError:
    return DefinitionError(
        "table.column_case",
        f"columns {' and '.join(names)} of {table.qualified} differ only in case",
        "List the columns of the table with at most one of them.",
    )


def _check_declared_key(table: UpstreamTable, chosen: Sequence[UpstreamColumn], declared: Sequence[str]) -> None:
    names = {c.name for c in chosen}
    upstream = ", ".join(table.key)
    left_out = [k for k in table.key if k not in names]
    resolved = {find_column(table, d).name for d in declared}
    if left_out:
        raise DefinitionError(
            "table.key_differs",
            f"column {left_out[0]} of the upstream's key is not declared",
            f"Declare all of its columns and PRIMARY KEY ({upstream}).",
        )
    if declared and resolved != set(table.key):
        raise other_key(declared, upstream)
