"""A table's catalog entries that can change its rows, or the log's description of them, without an event.

`look` runs a few queries for all tables of a connection; `findings.py` says what happened between two looks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headwater.model import LogColumn, SchemaVersion
from headwater.source.postgres.begin import needs_second_alter
from headwater.source.postgres.client.ask import Session, qualified, query
from headwater.source.upstream import Look

FIRST_OWN_OID = 16384  # oids of objects that are not part of PostgreSQL itself
FILTERS = 150000  # since this version a publication can leave out rows and columns, and carry whole schemas

# One statement, so all of it belongs to the snapshot that it returns. A column's row in pg_attribute changes when the
# column is altered, not when rows or statistics change. `born`: ATTACH writes every column's row together with the row
# in pg_inherits; CREATE TABLE … PARTITION OF writes some of them earlier. INCLUDE columns of an index do not count.
# `filed`: a new file creates new rows in pg_class, for the table and for its indexes; GRANT or ADD COLUMN only for the
# table, REINDEX only for the indexes, VACUUM, ANALYZE and CREATE INDEX for neither. Functions that would wait for a
# lock on a table or a partition (pg_partition_tree, pg_get_expr) are not used.
TREE = """
WITH RECURSIVE tree(root, above, relid) AS (
  SELECT oid, 0::oid, oid FROM unnest(%s::oid[]) r(oid)
  UNION ALL
  SELECT t.root, t.relid, i.inhrelid FROM tree t JOIN pg_inherits i ON i.inhparent = t.relid AND NOT i.inhdetachpending
  JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition)
SELECT pg_current_snapshot()::text, t.root::bigint, c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text,
       c.relfilenode::bigint, c.relpersistence::text, c.relreplident::text, c.relispartition,
       (SELECT json_object_agg(a.attname, json_build_array(
                 a.attnum, a.atttypid::bigint, a.atttypmod, a.xmin::text, a.attcollation::bigint,
                 CASE WHEN a.attgenerated <> '' THEN d.oid::bigint END) ORDER BY a.attnum)
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT json_agg(json_build_array(i.indisprimary, i.indisreplident, i.indimmediate,
                 array(SELECT a.attname FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
                       JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                       WHERE k.place <= i.indnkeyatts ORDER BY k.place)))
        FROM pg_index i WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)),
       coalesce(i.xmin::text, ''), (SELECT t.xmin::text FROM pg_type t WHERE t.oid = c.reltype),
       EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND a.attinhcount > 0
               AND a.xmin = i.xmin AND a.xmax = 0 AND a.cmin::text::bigint < i.cmin::text::bigint),
       t.above::bigint, c.reltoastrelid::bigint,
       array(SELECT x.xmin::text FROM pg_class x WHERE x.oid = c.oid UNION ALL
             SELECT x.xmin::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
             WHERE i.indrelid = c.oid AND i.indisprimary)
FROM tree t JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid AND c.relispartition
"""

# What the columns' types are made of, at any depth: enum labels, attributes of composite types.
TYPES = """
WITH RECURSIVE used(root, name, oid) AS (
  SELECT a.attrelid, a.attname, a.atttypid FROM pg_attribute a
  WHERE a.attrelid = ANY(%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= %(first)s::oid
  UNION
  SELECT u.root, u.name, x.oid FROM used u CROSS JOIN LATERAL (
    SELECT t.typbasetype FROM pg_type t WHERE t.oid = u.oid AND t.typtype = 'd'
    UNION ALL SELECT e.oid FROM pg_type e WHERE e.typarray = u.oid
    UNION ALL SELECT a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
              WHERE t.oid = u.oid AND t.typtype = 'c' AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE u.oid IN (g.rngtypid, g.rngmultitypid)) x(oid)
  WHERE x.oid >= %(first)s::oid)
SELECT u.root::bigint, u.name::text, 'label ' || e.oid, e.enumlabel::text
FROM used u JOIN pg_enum e ON e.enumtypid = u.oid
UNION ALL
SELECT u.root::bigint, u.name::text, 'attribute ' || t.oid || ' ' || a.attnum, a.atttypid || ' ' || a.atttypmod
FROM used u JOIN pg_type t ON t.oid = u.oid AND t.typtype = 'c' JOIN pg_attribute a ON a.attrelid = t.typrelid
WHERE a.attnum > 0 AND NOT a.attisdropped
"""

PUBLICATION = """
SELECT p.oid::text, p.puballtables, p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot,
       p.pubowner::bigint, p.xmin::text
FROM pg_publication p WHERE p.pubname = %s
"""

# The ways in which a publication carries a table; a row filter or column list makes it a different way.
NAMED = """
SELECT r.prrelid::bigint, r.oid::text{filters} FROM pg_publication_rel r
WHERE r.prpubid = %(publication)s::oid AND r.prrelid = ANY(%(oids)s::oid[])
"""
EVERY_TABLE = "every table"
SCHEMA = "schema "
BY_SCHEMA = f"""
UNION ALL SELECT c.oid::bigint, '{SCHEMA}' || s.oid FROM pg_publication_namespace s
JOIN pg_class c ON c.relnamespace = s.pnnspid WHERE s.pnpubid = %(publication)s::oid AND c.oid = ANY(%(oids)s::oid[])
"""


def look(session: Session, oids: Sequence[int], publication: str = "") -> dict[int, Look]:
    """Each table with its partitions, types and place in the publication; an empty shape if it is gone."""
    trees: dict[int, dict[str, dict[str, Any]]] = {oid: {} for oid in oids}
    described: dict[int, SchemaVersion] = {}
    saw = ""
    carried = _publication(session, publication, oids) if publication else {}
    for saw, root, oid, *rest in query(session, TREE, (list(oids),)):  # noqa: B007  the same for every row
        member = _member(*rest)
        if oid == root:
            member |= {"root": True, "types": {}, **carried.get(oid, {})}
            described[root] = _described(oid, rest[0], rest[1], member)
        trees[root][str(oid)] = member
    for root, name, key, value in query(session, TYPES, {"oids": list(oids), "first": FIRST_OWN_OID}):
        if str(root) in trees.get(root, {}):
            trees[root][str(root)]["types"].setdefault(name, {})[key] = value
    return {
        oid: Look(json.dumps(tree, sort_keys=True) if tree else "", saw, described.get(oid))
        for oid, tree in trees.items()
    }


def _member(
    schema: str,
    name: str,
    kind: str,
    file: int,
    persistence: str,
    identity: str,
    is_partition: bool,
    columns: dict[str, list[Any]] | None,
    indexes: list[tuple[bool, bool, bool, list[str]]] | None,
    attached: str,
    made: str,
    born: bool,
    above: int,
    toast: int,
    filed: list[str],
) -> dict[str, Any]:
    """A table or a partition as stored in the shape."""
    key = next((names for primary, _, _, names in indexes or [] if primary), [])
    named = next((names for _, chosen, _, names in indexes or [] if chosen), [])
    return {
        "name": qualified(schema, name),
        "root": False,
        "kind": kind,
        "file": file,
        "persistence": persistence,
        "identity": identity,
        "identified": sorted({"d": key, "i": named}.get(identity, [])),
        "key": key,
        "late": any(primary and not immediate for primary, _, immediate, _ in indexes or []),
        "partition": is_partition,
        "columns": columns or {},
        "attached": attached,
        "made": made,
        "born": born,
        "above": str(above),
        "toast": toast,
        "filed": filed,
    }


def _described(oid: int, schema: str, name: str, member: dict[str, Any]) -> SchemaVersion:
    """The table as the log would describe it now, with its actual key, whatever its replica identity."""
    columns = tuple(
        LogColumn(column, type_oid, modifier, column in member["key"])
        for column, (_, type_oid, modifier, *_) in member["columns"].items()
    )
    return SchemaVersion(0, oid, 0, schema, name, "d", columns)


def _publication(session: Session, name: str, oids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The ways in which the publication carries each table, and the publication's own options.

    Altering its options leaves a new row in the catalog, even if they were altered back meanwhile. In old releases
    we must alter them ourselves, so there this means nothing.
    """
    version = session.info.server_version
    found = query(session, PUBLICATION, (name,))
    if not found:
        return {oid: {"ways": [], "publication": None} for oid in oids}
    (id, every, complete, via_root, owner, row) = found[0]
    flags = [id, complete, via_root, owner, "" if needs_second_alter(version) else row]
    filters = " || coalesce(' ' || r.prattrs::text, '') || coalesce(' ' || r.prqual::text, '')"
    statement = NAMED.format(filters=filters if version >= FILTERS else "")
    ways: dict[int, list[str]] = {oid: [EVERY_TABLE] if every else [] for oid in oids}
    for oid, way in query(
        session,
        statement + (BY_SCHEMA if version >= FILTERS else ""),
        {"publication": id, "oids": list(oids)},
    ):
        ways[oid].append(way)
    return {oid: {"ways": sorted(ways[oid]), "publication": flags} for oid in oids}
