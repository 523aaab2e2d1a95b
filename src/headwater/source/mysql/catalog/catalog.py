"""The upstream's tables: columns as the log carries them, keys, and foreign keys that act on them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.errors import DefinitionError, PrivilegeError, SourceError
from headwater.source.missing import way_out
from headwater.source.mysql.catalog.types import RawType
from headwater.source.mysql.client.ask import address_of, qualified, query
from headwater.source.mysql.client.session import Session, quote_literal
from headwater.source.mysql.server import ServerFacts, describe_server

NO_SUCH_TABLE = 1146


@dataclass(frozen=True, slots=True)
class UpstreamColumn:
    """A column of an upstream table. Full row images also contain generated and invisible columns."""

    name: str
    raw: RawType
    not_null: bool


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index. A column is None if it is an expression; a prefix is a number of characters."""

    name: str
    columns: tuple[str | None, ...]
    prefixes: tuple[int | None, ...]
    nullable: bool
    kind: str  # BTREE, or MariaDB's HASH, which cannot be read in order

    @property
    def is_primary(self) -> bool:
        return self.name == "PRIMARY"

    @property
    def is_whole(self) -> bool:
        """Whether it distinguishes rows by whole columns, in a readable order."""
        return None not in self.columns and not any(self.prefixes) and not self.nullable and self.kind == "BTREE"


@dataclass(frozen=True, slots=True)
class Cascade:
    """A foreign key that changes the table's rows when its parent's change."""

    name: str
    parent: str
    clauses: str


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    """An upstream table with everything that decides whether and how it can be followed."""

    schema: str
    name: str
    kind: str  # BASE TABLE; also VIEW, SEQUENCE, SYSTEM VERSIONED … for those that cannot be followed
    engine: str
    columns: tuple[UpstreamColumn, ...]
    indexes: tuple[UniqueIndex, ...]
    cascades: tuple[Cascade, ...]
    rows_estimate: int  # -1: unknown
    server: ServerFacts

    @property
    def qualified(self) -> str:
        return qualified(self.schema, self.name)

    @property
    def primary(self) -> UniqueIndex | None:
        return next((i for i in self.indexes if i.is_primary), None)

    def column(self, name: str) -> UpstreamColumn | None:
        """The column of this name, in any case: the servers do not distinguish `a` from `A`."""
        return next((c for c in self.columns if c.name.lower() == name.lower()), None)


TABLE = """
SELECT table_schema, table_name, table_type, coalesce(engine, ''), coalesce(table_rows, -1)
FROM information_schema.tables WHERE table_schema = %s AND table_name = %s
"""

COLUMNS = """
SELECT column_name, is_nullable = 'NO', data_type, column_type, character_maximum_length, numeric_precision,
       numeric_scale, datetime_precision, character_set_name, collation_name
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""

INDEXES = """
SELECT index_name, column_name, sub_part, nullable = 'YES', index_type
FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name, seq_in_index
"""

# From SHOW CREATE TABLE: MariaDB shows referential_constraints only to users with more than SELECT.
_NAME = r"`(?:[^`]|``)*`"
_FOREIGN_KEY = re.compile(
    rf"^  CONSTRAINT (?P<name>{_NAME}) FOREIGN KEY \(.*?\) REFERENCES (?P<parent>{_NAME}(?:\.{_NAME})?) \(.*?\)"
    r"(?P<clauses>(?: ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT|RESTRICT|NO ACTION))*)",
    re.M,
)
_ACTING = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")


def describe_table(session: Session, schema: str, name: str) -> UpstreamTable:
    """The upstream table with this name, in the server's spelling; `table.missing` if there is none."""
    server = describe_server(session)
    found = [
        r for r in query(session, TABLE, (schema, name)) if server.lower_case_names or (r[0], r[1]) == (schema, name)
    ]
    if not found:
        raise _absent(session, schema, name)
    schema, name, kind, engine, rows = found[0]
    return UpstreamTable(
        schema=schema,
        name=name,
        kind=kind,
        engine=engine,
        columns=_columns(session, schema, name),
        indexes=_indexes(session, schema, name),
        cascades=_cascades(session, schema, name) if kind == "BASE TABLE" else (),
        rows_estimate=int(rows),
        server=server,
    )


def _columns(session: Session, schema: str, name: str) -> tuple[UpstreamColumn, ...]:
    return tuple(
        UpstreamColumn(column, RawType(*rest), bool(not_null))
        for column, not_null, *rest in query(session, COLUMNS, (schema, name))
    )


def _indexes(session: Session, schema: str, name: str) -> tuple[UniqueIndex, ...]:
    parts: dict[str, list[tuple[str | None, int | None, bool, str]]] = {}
    for index, column, prefix, nullable, kind in query(session, INDEXES, (schema, name)):
        parts.setdefault(index, []).append((column, prefix, bool(nullable), kind))
    return tuple(
        UniqueIndex(
            name=index,
            columns=tuple(p[0] for p in found),
            prefixes=tuple(p[1] for p in found),
            nullable=any(p[2] for p in found),
            kind=found[0][3],
        )
        for index, found in parts.items()
    )


def _cascades(session: Session, schema: str, name: str) -> tuple[Cascade, ...]:
    try:
        text = query(session, f"SHOW CREATE TABLE {qualified(schema, name)}")[0][1]
    except PrivilegeError as e:
        raise not_readable(session, schema, name) from e
    return tuple(
        Cascade(m["name"], m["parent"], " ".join(_ACTING.findall(m["clauses"])))
        for m in _FOREIGN_KEY.finditer(text)
        if _ACTING.search(m["clauses"])
    )


def _absent(session: Session, schema: str, name: str) -> DefinitionError | SourceError:
    """Why the catalog does not show the table: it hides tables that the user has no privilege on."""
    try:
        query(session, f"SELECT 1 FROM {qualified(schema, name)} LIMIT 0")
    except PrivilegeError:
        return not_readable(session, schema, name)
    except Exception as e:
        if getattr(e.__cause__, "args", (0,))[:1] != (NO_SUCH_TABLE,):
            raise
    return _missing(session, schema, name)


def not_readable(session: Session, schema: str, name: str) -> SourceError:
    """The error for a table that the user may not read."""
    table = qualified(schema, name)
    return PrivilegeError(
        "source.privilege",
        f"user {address_of(session).user} may not read {table}",
        f"Run upstream: GRANT SELECT ON {table} TO {account(session)};",
    )


def account(session: Session) -> str:
    """The session's user in the form that GRANT takes."""
    user, _, host = query(session, "SELECT CURRENT_USER()")[0][0].rpartition("@")
    return f"{quote_literal(user)}@{quote_literal(host)}"


def _missing(session: Session, schema: str, name: str) -> DefinitionError:
    rows = query(
        session,
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type = 'BASE TABLE' "
        "ORDER BY 1 LIMIT 10000",
        (schema,),
    )
    hint = way_out(name, [(t, t) for (t,) in rows])
    return DefinitionError("table.missing", f"the database {schema} has no table {name}", hint)
