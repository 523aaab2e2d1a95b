"""Whether and how a table can be followed: each error has a hint, and nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.errors import DefinitionError, PrivilegeError
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.catalog.catalog import (
    UniqueIndex,
    UpstreamColumn,
    UpstreamTable,
    describe_table,
    not_readable,
)
from headwater.source.mysql.catalog.types import doubtful_labels, upstream_type
from headwater.source.mysql.client.ask import query
from headwater.source.mysql.client.session import Session, quote_identifier
from headwater.source.names import is_storable
from headwater.source.refusals import no_column, other_key, unstorable
from headwater.source.upstream import FoundColumn, FoundTable

NOT_TABLES = {"VIEW": "a view", "SYSTEM VIEW": "a view", "SEQUENCE": "a sequence", "TEMPORARY": "a temporary table"}
TELLS_NUL = (11, 4, 5)  # the oldest MariaDB known to sort 'a' before 'a\\0'; 10.11.7 treats them as one key


def find_table(
    session: Session,
    schema: str,
    name: str,
    columns: Sequence[str] | None,
    key: Sequence[str],
    options: Mapping[str, str],
) -> FoundTable:
    """The upstream table, after checking that it can be followed.

    `columns` are the declared ones (None: all), `key` the declared key (empty: the primary key), `options` the
    connection's.
    """
    _check_database(schema, name, options)
    table = describe_table(session, schema, name)
    _check_kind(table)
    _check_columns(table)
    chosen = _choose(table, columns)
    index = _choose_key(table, key)
    names = [c for c in index.columns if c is not None]
    _check_key_columns(table, chosen, names)
    _check_readable(session, table, chosen)
    notices = _check_cascades(table, waived=options.get("cascade.waived") == "true") + _doubts(table, chosen)
    booleans = options.get("tinyint1", "bool") == "bool"
    declared = frozenset(names if not index.is_primary else ())
    sorts_text = not table.server.is_mariadb or table.server.version >= TELLS_NUL
    return FoundTable(
        id=table_number(table.schema, table.name),
        schema=table.schema,
        name=table.name,
        columns=tuple(
            FoundColumn(
                c.name,
                replace(
                    upstream_type(c.raw, in_key=c.name in names, booleans=booleans, sorts_text=sorts_text),
                    unique=c.name in declared,
                ),
                c.not_null,
            )
            for c in chosen
        ),
        key=tuple(names),
        rows_estimate=table.rows_estimate,
        notices=notices,
    )


def _check_database(schema: str, name: str, options: Mapping[str, str]) -> None:
    database = options.get("database.name", schema)
    if schema.lower() != database.lower():
        raise DefinitionError(
            "table.missing",
            f"the connection reads the database {database}, not {schema}",
            f"Write TABLE '{name}', or create a connection with database.name = '{schema}'.",
        )


def _check_kind(table: UpstreamTable) -> None:
    if table.kind == "SYSTEM VERSIONED":
        raise DefinitionError(
            "table.not_plain",
            f"{table.qualified} is system-versioned; its log mixes old rows with current ones",
            f"Run upstream: ALTER TABLE {table.qualified} DROP SYSTEM VERSIONING;",
        )
    if table.kind != "BASE TABLE":
        raise DefinitionError(
            "table.not_plain",
            f"{table.qualified} is {NOT_TABLES.get(table.kind, 'not a table')}; its changes are not in the log",
            "Name the tables that it reads instead.",
        )
    if table.engine.lower() != "innodb":
        raise DefinitionError(
            "table.not_plain",
            f"{table.qualified} uses the engine {table.engine}, which has no consistent reads",
            f"Run upstream: ALTER TABLE {table.qualified} ENGINE = InnoDB;",
        )


def _check_columns(table: UpstreamTable) -> None:
    """Raises if any column, chosen or not, has a form in the log's row images that cannot be skipped."""
    for column in table.columns:
        what = f"column {column.name} of {table.qualified}"
        modify = f"ALTER TABLE {table.qualified} MODIFY {quote_identifier(column.name)}"
        if column.raw.is_compressed:
            raise DefinitionError(
                "table.column_type",
                f"{what} is compressed, also in the upstream's log",
                f"Run upstream: {modify} {column.raw.column_type.split(' /*')[0]};",
            )
        if column.raw.is_old_temporal:
            raise DefinitionError(
                "table.column_type",
                f"{what} has a format from before MySQL 5.6",
                f"Run upstream: ALTER TABLE {table.qualified} FORCE;",
            )
        if not column.raw.is_known:
            raise DefinitionError(
                "table.column_type",
                f"{what} has the unknown type {column.raw.data_type}",
                f"Give it another type upstream: {modify} …;",
            )


def _choose(table: UpstreamTable, declared: Sequence[str] | None) -> tuple[UpstreamColumn, ...]:
    """The columns to follow, in declared order."""
    chosen = table.columns if declared is None else tuple(find_column(table, d) for d in declared)
    for column in chosen:
        if not is_storable(column.name):
            raise unstorable(table.qualified, column.name, quote_identifier(column.name))
    return chosen


def find_column(table: UpstreamTable, declared: str) -> UpstreamColumn:
    """The column of this name, in any case."""
    found = table.column(declared)
    if found is None:
        raise no_column(table.qualified, declared, [c.name for c in table.columns])
    return found


def _choose_key(table: UpstreamTable, declared: Sequence[str]) -> UniqueIndex:
    """The primary key, or the declared unique index."""
    wanted = {find_column(table, d).name for d in declared}
    primary = table.primary
    if not declared and primary:
        return _whole(table, primary)
    usable = [i for i in table.indexes if i.is_whole]
    for index in sorted(usable, key=lambda i: not i.is_primary):
        if set(index.columns) == wanted:
            return index
    exact = next((i for i in table.indexes if set(i.columns) == wanted), None)
    if exact:
        return _whole(table, exact)
    if primary or (declared and usable):
        upstream = ", ".join(str(c) for c in (primary or usable[0]).columns)
        raise other_key(declared, upstream)
    add = f"Run upstream: ALTER TABLE {table.qualified} ADD PRIMARY KEY (…);"
    other = f"Declare PRIMARY KEY ({', '.join(str(c) for c in usable[0].columns)})." if usable else add
    raise DefinitionError("table.no_key", f"{table.qualified} has no primary key", other)


def _whole(table: UpstreamTable, index: UniqueIndex) -> UniqueIndex:
    if index.is_whole:
        return index
    prefixed = next((c for c, p in zip(index.columns, index.prefixes, strict=True) if p), None)
    why = (
        f"contains only a prefix of {prefixed}"
        if prefixed
        else "contains an expression"
        if None in index.columns
        else "may hold NULL"
        if index.nullable
        else "cannot be read in order"
    )
    raise DefinitionError(
        "table.no_key",
        f"the key {index.name} of {table.qualified} {why}",
        "Give the table a primary key of whole columns.",
    )


def _check_key_columns(table: UpstreamTable, chosen: Sequence[UpstreamColumn], key: Sequence[str]) -> None:
    names = {c.name for c in chosen}
    for name in key:
        if name not in names:
            raise DefinitionError(
                "table.key_differs",
                f"column {name} of the upstream's key is not declared",
                f"Declare all of its columns and PRIMARY KEY ({', '.join(key)}).",
            )
        raw = find_column(table, name).raw
        if raw.name == "float" or doubtful_labels(raw):
            why = "a float, which is not compared exactly" if raw.name == "float" else "an enum whose labels it hides"
            raise DefinitionError(
                "table.no_key",
                f"key column {name} of {table.qualified} is {why}",
                "Give the table a key of another type.",
            )


def _check_readable(session: Session, table: UpstreamTable, chosen: Sequence[UpstreamColumn]) -> None:
    """Raises if the user may not read the columns; only the server knows, because of roles and column grants."""
    listed = ", ".join(quote_identifier(c.name) for c in chosen)
    try:
        query(session, f"SELECT {listed} FROM {table.qualified} LIMIT 0")
    except PrivilegeError as e:
        raise not_readable(session, table.schema, table.name) from e


def _check_cascades(table: UpstreamTable, *, waived: bool) -> tuple[str, ...]:
    """Raises for rows that foreign keys change outside the log; MySQL 9.6 and later log them."""
    if not table.cascades or table.server.cascades_logged:
        return ()
    first = table.cascades[0]
    what = f"the foreign key {first.name} of {table.qualified} ({first.clauses}) changes rows without log events"
    if waived:
        return (f"{what}; because of cascade.waived, changes to {first.parent} that cascade to it are not captured",)
    native = "Set innodb_native_foreign_keys = OFF upstream and restart it"
    if table.server.is_mariadb or table.server.version < (9, 6, 0):
        native = f"Replace the clause upstream with a trigger on {first.parent}"
    raise DefinitionError(
        "table.cascade",
        what,
        f"{native}, or set cascade.waived = 'true' for the connection if {first.parent} never changes this way.",
    )


def _doubts(table: UpstreamTable, chosen: Sequence[UpstreamColumn]) -> tuple[str, ...]:
    if table.server.row_metadata == "FULL":
        return ()
    return tuple(
        f"the upstream's catalog may hide characters of the labels of {c.name}; set binlog_row_metadata = FULL there"
        for c in chosen
        if doubtful_labels(c.raw)
    )
