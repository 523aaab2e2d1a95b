"""Definitions: connections and tables are checked against the upstream, then stored; the server acts on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from headwater.sql.same import same
from headwater.sql.statements import (
    ColumnSpec,
    CreateConnection,
    CreateTable,
    DropConnection,
    DropTable,
    difference,
)

if TYPE_CHECKING:
    from headwater.engine.serve.server import Server


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a definition did, in words, and what the user should know."""

    message: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Storable:
    """A checked definition: `store` stores it inside one meta transaction, as part of a block (or 0).

    `upstream` is that of a new connection, for tables defined in the same block.
    """

    store: Callable[[Connection, int], None]
    outcome: Outcome
    upstream: Upstream | None = None


def _nothing(c: Connection, block: int) -> None:
    """Stores nothing: the definition already exists."""


def plan_connection(home: Home, statement: CreateConnection) -> Storable:
    """Checks that the upstream can be captured; changes nothing there."""
    with home.meta.read() as c:
        existing = connections.find(c, statement.name)
        stored = connections.statement(c, existing.id) if existing else ""
        old_secret = connections.secret(c, existing.id) if existing else None
    secret = statement.secret.text if statement.secret else None
    if existing is not None:
        if statement.if_not_exists or (same(stored, statement) and old_secret == statement.secret):
            return Storable(_nothing, Outcome(f"connection {existing.name} already exists"))
        if not same(stored, statement):
            raise _taken("connection", statement.name, stored, statement.canonical())
    type = kind(statement.options["type"])
    options = {**type.default_options(statement.name), **statement.options}
    if existing is not None:
        options = existing.options
    upstream = type(options, statement.secret.resolve() if statement.secret else "")
    warnings = upstream.check()
    if existing is not None:
        id = existing.id
        return Storable(
            lambda c, block: connections.set_secret(c, id, secret),
            Outcome(f"connection {existing.name}: password changed", warnings),
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

    return Storable(store, Outcome(f"connection {statement.name} created", warnings), upstream)


def plan_table(home: Home, statement: CreateTable, new: Mapping[str, Upstream]) -> Storable:
    """Checks that the upstream table can be followed as declared; changes nothing there.

    `new` holds the connections of the same block, by lower-case name.
    """
    with home.meta.read() as c:
        existing = relations.find(c, statement.name)
        stored = relations.statement(c, existing.id) if existing else ""
        connection = connections.find(c, statement.connection)
        names = [x.name for x in connections.all(c)]
    if existing is not None:
        if statement.if_not_exists or same(stored, statement):
            return Storable(_nothing, Outcome(f"table {existing.name} already exists"))
        raise _taken("table", statement.name, stored, statement.canonical())
    upstream = new.get(statement.connection.lower())
    if upstream is None and connection is not None:
        upstream = upstream_of(home.meta, connection.id)
    if upstream is None:
        raise unknown_name("connection", statement.connection, names)
    checked = check_table(upstream, statement)

    def store(c: Connection, block: int) -> None:
        owner = connections.find(c, statement.connection)
        if owner is None:
            raise unknown_name("connection", statement.connection, names)
        checked.store(c, statement.name, owner.id, dict(statement.options), statement.canonical(), block=block)

    return Storable(store, Outcome(f"table {statement.name} created", checked.found.notices))


def named_table(home: Home, name: str) -> RelationInfo:
    """The table of this name."""
    with home.meta.read() as c:
        relation = relations.find(c, name)
        names = [x.name for x in relations.named(c)]
    if relation is None:
        raise unknown_name("table", name, names)
    return relation


def drop_table(home: Home, statement: DropTable) -> Outcome:
    """Removes a table; its files are deleted when no reader needs them any more."""
    with home.meta.read() as c:
        relation = relations.find(c, statement.name)
        names = [x.name for x in relations.named(c)]
    if relation is None:
        if statement.if_exists:
            return Outcome(f"table {statement.name} does not exist")
        raise unknown_name("table", statement.name, names)
    with home.meta.write() as c:
        replacement = relations.replacement(c, relation.id)
        for each in (relation, *([replacement] if replacement else [])):
            relations.remove(c, each.id)
        relations.open_if_complete(c, relation.block)
        origin = relation.table_origin
        shared = any(r.table_origin.upstream_id == origin.upstream_id for r in relations.all(c, origin.connection_id))
    warnings: tuple[str, ...] = ()
    if not shared:
        warnings = _withdraw(home, relation)
    return Outcome(f"table {relation.name} dropped", warnings)


def drop_connection(home: Home, statement: DropConnection, server: Server | None) -> Outcome:
    """Drops a connection with its slot and publication; the server ends its capture first."""
    with home.meta.read() as c:
        connection = connections.find(c, statement.name)
        names = [x.name for x in connections.all(c)]
        tables = relations.all(c, connection.id) if connection else []
    if connection is None:
        if statement.if_exists:
            return Outcome(f"connection {statement.name} does not exist")
        raise unknown_name("connection", statement.name, names)
    if tables and not statement.cascade:
        raise DefinitionError(
            "name.in_use",
            f"connection {connection.name} still has tables: {', '.join(t.name for t in tables)}",
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
        for table in relations.all(c, connection.id):
            relations.remove(c, table.id)
        connections.remove(c, connection.id)
    for folder in ("changelog", "aside"):
        home.storage.remove_folder(f"{folder}/{connection.id}")
    return Outcome(f"connection {connection.name} dropped")


def _taken(kind: str, name: str, stored: str, given: str) -> DefinitionError:
    return DefinitionError(
        "name.taken",
        f"a different {kind} {name} already exists:\n{difference(stored, given)}",
        f"Write it as SHOW CREATE {kind.upper()} {name} shows it, or use another name, or DROP the old one first.",
    )


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
