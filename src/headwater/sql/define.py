"""Definitions: connections and tables are checked against the upstream, then stored; the server acts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from headwater.backfill.filter import read_filter
from headwater.decode.values import can_hold, lake_type, normalise_type, resolve_type
from headwater.engine.home import Home
from headwater.errors import DefinitionError, HeadwaterError, unknown_name
from headwater.meta import connections, relations
from headwater.model import Column, RelationInfo
from headwater.source.connected import upstream_of
from headwater.source.kinds import kind
from headwater.source.upstream import FoundColumn, FoundTable, Upstream
from headwater.sql.outcome import Outcome, Storable
from headwater.sql.same import same
from headwater.sql.statements import ColumnSpec, CreateConnection, CreateTable, DropConnection, DropTable, ObjectKind
from headwater.sql.view import names
from headwater.sql.view.drop import drop_over, over
from headwater.sql.view.known import Known
from headwater.sql.view.names import listed, taken

if TYPE_CHECKING:
    from headwater.engine.serve.server import Server


def plan_connection(home: Home, statement: CreateConnection) -> Storable:
    """Checks that the upstream can be captured; changes nothing there."""
    with home.meta.read() as c:
        existing = connections.find(c, statement.name)
        stored = connections.statement(c, existing.id) if existing else ""
        old_secret = connections.secret(c, existing.id) if existing else None
    secret = statement.secret.text if statement.secret else None
    if existing is not None:
        if statement.if_not_exists or (same(stored, statement) and old_secret == statement.secret):
            return Storable(Outcome(f"connection {existing.name} already exists"))
        if not same(stored, statement):
            raise taken("connection", statement.name, stored, statement.canonical())
    type = kind(statement.options["type"])
    options = {**type.default_options(statement.name), **statement.options}
    if existing is not None:
        options = existing.options
    upstream = type(options, statement.secret.resolve() if statement.secret else "")
    warnings = upstream.check()
    if existing is not None:
        id = existing.id
        return Storable(
            Outcome(f"connection {existing.name}: password changed", warnings),
            lambda c, block: connections.set_secret(c, id, secret),
        )

    def store(c: Connection, block: int) -> None:
        connections.add(
            c,
            name=statement.name,
            type=statement.options["type"],
            options=options,
            secret=secret,
            statement=statement.canonical(),
        )

    return Storable(Outcome(f"connection {statement.name} created", warnings), store, upstream)


def plan_table(home: Home, statement: CreateTable, new: Mapping[str, Upstream]) -> Storable:
    """Checks that the upstream table can be followed as declared; changes nothing there.

    `new` holds the connections of the same block, by lower-case name.
    """
    with home.meta.read() as c:
        existing = names.existing(c, statement)
        connection = connections.find(c, statement.connection)
        known = [x.name for x in connections.all(c)]
    if existing is not None:
        return Storable(Outcome(f"table {existing.name} already exists"))
    upstream = new.get(statement.connection.lower())
    if upstream is None and connection is not None:
        upstream = upstream_of(home.meta, connection.id)
    if upstream is None:
        raise unknown_name("connection", statement.connection, known)
    checked = check_table(upstream, statement)

    def store(c: Connection, block: int) -> None:
        owner = connections.find(c, statement.connection)
        if owner is None:
            raise unknown_name("connection", statement.connection, known)
        checked.store(c, statement.name, owner.id, dict(statement.options), statement.canonical(), block=block)

    made = Known(statement.name, checked.columns, len(checked.columns), checked.found.key)
    return Storable(Outcome(f"table {statement.name} created", checked.found.notices), store, known=made)


def named_table(home: Home, name: str) -> RelationInfo:
    """The table of this name."""
    with home.meta.read() as c:
        return names.relation(c, ObjectKind.TABLE, name)


def drop_table(home: Home, statement: DropTable) -> Outcome:
    """Removes a table; its files are deleted when no reader needs them any more."""
    with home.meta.write() as c:
        if names.find(c, statement.name) is None and statement.if_exists:
            return Outcome(f"table {statement.name} does not exist")
        relation = names.relation(c, ObjectKind.TABLE, statement.name)
        also = drop_over(c, [relation], statement.cascade)
        relations.open_if_complete(c, relation.block)
        origin = relation.table_origin
        shared = any(r.table_origin.upstream_id == origin.upstream_id for r in relations.all(c, origin.connection_id))
    warnings: tuple[str, ...] = ()
    if not shared:
        warnings = _withdraw(home, relation)
    return Outcome(f"table {relation.name} dropped{also}", warnings)


def drop_connection(home: Home, statement: DropConnection, server: Server | None) -> Outcome:
    """Drops a connection with its slot and publication; the server ends its capture first."""
    with home.meta.read() as c:
        connection = connections.find(c, statement.name)
        known = [x.name for x in connections.all(c)]
        tables = relations.all(c, connection.id) if connection else []
        dependents = over(c, tables)
    if connection is None:
        if statement.if_exists:
            return Outcome(f"connection {statement.name} does not exist")
        raise unknown_name("connection", statement.name, known)
    if tables and not statement.cascade:
        used = f", used by {listed(dependents)}" if dependents else ""
        raise DefinitionError(
            "name.in_use",
            f"connection {connection.name} still has tables: {', '.join(t.name for t in tables)}{used}",
            f"DROP them first, or run DROP CONNECTION {connection.name} CASCADE.",
        )
    if server is not None:
        server.drop_capture(connection.id)
    if connection.resume_position:  # empty: no server ever created a slot for it
        try:
            upstream_of(home.meta, connection.id).remove()
        except HeadwaterError as e:
            slot = connection.options.get("slot.name", "")
            raise e.reworded(
                f"connection {connection.name} was not dropped: {e.message}",
                f"{e.hint} Its replication slot {slot} retains log upstream until it is dropped.",
            ) from e
    with home.meta.write() as c:
        also = drop_over(c, relations.all(c, connection.id), cascade=True)
        connections.remove(c, connection.id)
    for folder in ("changelog", "aside"):
        home.storage.remove_folder(f"{folder}/{connection.id}")
    return Outcome(f"connection {connection.name} dropped{also}")


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """The upstream table that a definition refers to, as it is now, with its columns here."""

    found: FoundTable
    columns: tuple[Column, ...]

    def store(
        self,
        c: Connection,
        name: str,
        connection_id: int,
        options: dict[str, str],
        statement: str,
        *,
        block: int = 0,
        replaces: int = 0,
    ) -> None:
        """Stores the table and its notices for the user."""
        id = relations.add(
            c,
            name=name,
            connection_id=connection_id,
            upstream_schema=self.found.schema,
            upstream_table=self.found.name,
            upstream_id=self.found.id,
            columns=self.columns,
            key=self.found.key,
            options=options,
            statement=statement,
            block=block,
            replaces=replaces,
        )
        for text in self.found.notices:
            relations.note(c, id, "table.notice", text)


def check_table(upstream: Upstream, statement: CreateTable) -> CheckedTable:
    """Finds the upstream table and checks that it can be followed as defined."""
    found = _find(upstream, statement)
    columns = tuple(_column(c, _declared(statement, c)) for c in found.columns)
    if statement.options["snapshot"] == "false":
        check_without_history(statement.name, columns, found.key)
    if "backfill.filter" in statement.options:
        read_filter(statement.options["backfill.filter"], columns)
    undeclared = columns if statement.columns is None else ()
    notices = tuple(_kept_as_text(c) for c in undeclared if _is_number_as_text(c))
    return CheckedTable(replace(found, notices=(*found.notices, *notices)), columns)


def _is_number_as_text(column: Column) -> bool:
    """Whether it is a number upstream that only text can hold in full."""
    return column.lake_type == "STRING" and can_hold(column.upstream, "DECIMAL(38,18)")


def _kept_as_text(column: Column) -> str:
    return (
        f"column {column.name} is {column.upstream.name} without a size that fits DECIMAL, and is stored as STRING; "
        "list the columns and declare it DECIMAL(p,s) to get numbers"
    )


def check_without_history(name: str, columns: Sequence[Column], key: Sequence[str]) -> None:
    """Raises unless a table without history can read a single row again, which needs a key that can be ordered here.

    A change can omit values that are stored out of line and did not change; such a row is read from the upstream.
    """
    by_name = {c.name: c for c in columns}
    aside = [c.name for c in columns if c.name not in key and c.upstream.stored_aside]
    if aside and not all(by_name[k].ordered for k in key):
        raise DefinitionError(
            "table.no_history",
            f"{name} cannot be followed without its history: only the database can order its key, and {aside[0]} may "
            "be missing from changes",
            "Remove the column from the column list, or let Headwater read the history.",
        )


def _find(upstream: Upstream, statement: CreateTable) -> FoundTable:
    schema, table = statement.upstream or (None, statement.name)
    declared = None if statement.columns is None else [c.name for c in statement.columns]
    default_schema = upstream.default_schema
    return upstream.find_table(schema or default_schema, table, declared, statement.key)


def _declared(statement: CreateTable, found: FoundColumn) -> ColumnSpec | None:
    declared = statement.columns or ()
    exact = [c for c in declared if c.name == found.name]
    return next(iter(exact or [c for c in declared if c.name.lower() == found.name.lower()]), None)


def _column(found: FoundColumn, declared: ColumnSpec | None) -> Column:
    """The column with the declared type if it can hold the upstream's, or with the default one."""
    if declared is None:
        return Column(found.name, lake_type(found.type), found.type, not found.not_null)
    wanted = normalise_type(declared.type)
    if not can_hold(found.type, wanted):
        raise DefinitionError(
            "table.column_type",
            f"column {found.name} is declared {declared.type}, which cannot hold the upstream's {found.type.name}",
            f"Declare it as {lake_type(found.type).lower()} (or string), or omit the column list.",
        )
    return Column(found.name, resolve_type(found.type, wanted), found.type, not found.not_null)


def _withdraw(home: Home, relation: RelationInfo) -> tuple[str, ...]:
    """Removes the table from the publication; if the upstream does not answer, it only does some needless work."""
    try:
        upstream_of(home.meta, relation.table_origin.connection_id).withdraw(
            relation.table_origin.schema, relation.table_origin.table
        )
    except HeadwaterError as e:
        return (f"the upstream still publishes {relation.table_origin.name}: {e.message}",)
    return ()
