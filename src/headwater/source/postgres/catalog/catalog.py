"""The upstream's tables: columns as the log names them, keys, partitions and read privileges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import DefinitionError
from headwater.model import UpstreamType
from headwater.source.missing import way_out
from headwater.source.postgres.catalog.types import RawType, upstream_type
from headwater.source.postgres.client.ask import Session, qualified, query
from headwater.source.postgres.server import ServerFacts, describe_server, describe_text

__all__ = ["Leaf", "ServerFacts", "UpstreamColumn", "UpstreamTable", "describe_server", "describe_table", "qualified"]


@dataclass(frozen=True, slots=True)
class UpstreamColumn:
    """A column of an upstream table. `generated` is '' for an ordinary one, 's' for stored, 'v' for virtual."""

    name: str
    type: UpstreamType
    not_null: bool
    generated: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition that holds rows (or could: foreign and unlogged ones are leaves too)."""

    oid: int
    schema: str
    name: str
    kind: str  # relkind: r plain, f foreign
    persistence: str  # p logged, u unlogged, t temporary
    identity: str
    identity_columns: tuple[str, ...]

    @property
    def qualified(self) -> str:
        return qualified(self.schema, self.name)


@dataclass(frozen=True, slots=True)
class UpstreamTable:
    """An upstream table with everything that decides whether and how it can be followed."""

    oid: int
    schema: str
    name: str
    kind: str  # relkind: r plain, p partitioned; also v, m, f … for those that cannot be followed
    persistence: str
    owner: str
    columns: tuple[UpstreamColumn, ...]
    key: tuple[str, ...]  # in key order
    key_deferrable: bool
    identity: str  # replica identity: d default, n nothing, f full, i index
    identity_columns: tuple[str, ...]  # of the index that it uses: the key for d
    leaves: tuple[Leaf, ...]
    partition_of: tuple[str, str] | None  # schema and name of the root table that it is a partition of
    row_security: bool  # hides rows from this user
    children: int  # inheritance children, not partitions
    usable_schema: bool
    selectable: bool
    bytes: int
    rows_estimate: int  # -1: never analyzed

    @property
    def qualified(self) -> str:
        return qualified(self.schema, self.name)

    def column(self, name: str) -> UpstreamColumn | None:
        return next((c for c in self.columns if c.name == name), None)


TABLE = """
SELECT c.oid::bigint, c.relkind::text, c.relpersistence::text, pg_get_userbyid(c.relowner)::text, c.relreplident::text,
       row_security_active(c.oid),
       (SELECT count(*) FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
        WHERE i.inhparent = c.oid AND NOT k.relispartition),
       has_schema_privilege(n.oid, 'USAGE'), has_table_privilege(c.oid, 'SELECT'),
       c.relispartition
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""

COLUMNS = """
SELECT a.attname::text, a.attnotnull, a.attgenerated::text, a.attnum, a.atttypid::bigint, a.atttypmod, b.dimensions,
       b.typname::text, b.typtype::text, b.modifier, e.typname::text, e.typtype::text, e.modifier,
       coalesce(k.collprovider, '')::text, coalesce(k.collcollate, '')::text
FROM pg_attribute a
CROSS JOIN LATERAL (
  WITH RECURSIVE d(oid, modifier, dimensions) AS (
    SELECT a.atttypid, a.atttypmod, a.attndims::int
    UNION ALL SELECT t.typbasetype, t.typtypmod, greatest(d.dimensions, t.typndims)
    FROM d JOIN pg_type t ON t.oid = d.oid WHERE t.typtype = 'd')
  SELECT t.oid, t.typname, t.typtype, t.typelem, d.modifier, d.dimensions FROM d JOIN pg_type t ON t.oid = d.oid
  WHERE t.typtype <> 'd') b
LEFT JOIN LATERAL (
  WITH RECURSIVE d(oid, modifier) AS (
    SELECT x.oid, b.modifier FROM pg_type x WHERE x.oid = b.typelem AND x.typarray = b.oid
    UNION ALL SELECT t.typbasetype, t.typtypmod FROM d JOIN pg_type t ON t.oid = d.oid WHERE t.typtype = 'd')
  SELECT t.typname, t.typtype, d.modifier FROM d JOIN pg_type t ON t.oid = d.oid WHERE t.typtype <> 'd') e ON true
LEFT JOIN pg_collation k ON k.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

# INCLUDE columns follow the key columns in indkey; they are not part of the key.
INDEXES = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident, NOT i.indimmediate,
       array(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
             WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i WHERE i.indrelid = ANY(%s::oid[]) AND (i.indisprimary OR i.indisreplident)
"""

LEAVES = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text,
       c.relreplident::text
FROM pg_partition_tree(%s::oid::regclass) t JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.isleaf AND c.relkind <> 'p' ORDER BY c.oid
"""

SIZE = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint,
       CASE WHEN min(c.reltuples) < 0 THEN -1 ELSE sum(c.reltuples)::bigint END
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""


def describe_table(session: Session, schema: str, name: str) -> UpstreamTable:
    """The upstream table with exactly this name; `table.missing` with the nearest names if there is none."""
    rows = query(session, TABLE, (schema, name))
    if not rows:
        raise _missing(session, schema, name)
    oid, kind, persistence, owner, identity, secured, children, usable, selectable, is_partition = rows[0]
    leaf_rows = query(session, LEAVES, (oid,)) if kind == "p" else []
    holders = [r[0] for r in leaf_rows] or [oid]
    keys, identities, deferrable = _indexes(session, [oid, *(r[0] for r in leaf_rows)])
    size, estimate = query(session, SIZE, (holders,))[0]
    return UpstreamTable(
        oid=oid,
        schema=schema,
        name=name,
        kind=kind,
        persistence=persistence,
        owner=owner,
        columns=_columns(session, oid),
        key=keys.get(oid, ()),
        key_deferrable=oid in deferrable,
        identity=identity,
        identity_columns=_identity_columns(oid, identity, keys, identities),
        leaves=tuple(_leaf(r, _identity_columns(r[0], r[5], keys, identities)) for r in leaf_rows),
        partition_of=_root(session, oid) if is_partition else None,
        row_security=secured,
        children=children,
        usable_schema=usable,
        selectable=selectable,
        bytes=size,
        rows_estimate=-1 if estimate is None else estimate,
    )


def _leaf(row: tuple[Any, ...], identity_columns: tuple[str, ...]) -> Leaf:
    oid, schema, name, kind, persistence, identity = row
    return Leaf(oid, schema, name, kind, persistence, identity, identity_columns)


def _columns(session: Session, oid: int) -> tuple[UpstreamColumn, ...]:
    text = describe_text(session)
    return tuple(
        UpstreamColumn(
            name=name,
            type=replace(upstream_type(RawType(type_oid, modifier, *rest), text), number=place),
            not_null=not_null,
            generated=generated,
        )
        for name, not_null, generated, place, type_oid, modifier, *rest in query(session, COLUMNS, (oid,))
    )


def _indexes(
    session: Session, oids: list[int]
) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]], set[int]]:
    """Primary keys and identity indexes by table, and the tables whose key is checked only at commit."""
    keys: dict[int, tuple[str, ...]] = {}
    identities: dict[int, tuple[str, ...]] = {}
    deferrable = set()
    for oid, primary, is_identity, late, columns in query(session, INDEXES, (oids,)):
        if primary:
            keys[oid] = tuple(columns)
            if late:
                deferrable.add(oid)
        if is_identity:
            identities[oid] = tuple(columns)
    return keys, identities, deferrable


def _identity_columns(
    oid: int, identity: str, keys: dict[int, tuple[str, ...]], identities: dict[int, tuple[str, ...]]
) -> tuple[str, ...]:
    return {"d": keys, "i": identities}.get(identity, {}).get(oid, ())


def _root(session: Session, oid: int) -> tuple[str, str]:
    ((schema, name),) = query(
        session,
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = pg_partition_root(%s::oid::regclass)",
        (oid,),
    )
    return schema, name


def _missing(session: Session, schema: str, name: str) -> DefinitionError:
    found = query(
        session,
        "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT LIKE 'pg\\_%%' "
        "AND n.nspname <> 'information_schema' ORDER BY 1, 2 LIMIT 10000",
        (),
    )
    return DefinitionError(
        "table.missing",
        f"the database {session.info.dbname} has no table {schema}.{name}",
        way_out(name, [(t, f"{s}.{t}") for s, t in found]),
    )
