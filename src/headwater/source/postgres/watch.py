"""What happens to a table without a trace in the log: rewrites, and partitions that come, go or are emptied."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headwater.errors import DataError
from headwater.source.postgres.ask import Session, qualified, query


class Event(StrEnum):
    """What a table or one of its partitions went through between two looks."""

    GONE = "was dropped"
    ATTACHED = "was attached with rows in it"
    DETACHED = "was detached or dropped with its rows"
    REWRITTEN = "was rewritten by an ALTER TABLE"
    EMPTIED = "was truncated or rewritten on its own"  # a partition's new file: TRUNCATE, VACUUM FULL or CLUSTER
    REFILED = "got a new file"  # the table's own: TRUNCATE, which the log tells, or VACUUM FULL or CLUSTER
    UNLOGGED = "became unlogged"
    IDENTITY = "got another replica identity"
    UNPUBLISHED = "was taken out of the publication"


@dataclass(frozen=True, slots=True)
class Finding:
    """One event and the table or partition it happened to."""

    event: Event
    table: str


# A column's row in pg_attribute changes when the column is altered, not when rows or statistics change.
TREE = """
SELECT r.oid::bigint, c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, c.relfilenode::bigint,
       c.relpersistence::text,
       c.relreplident::text || coalesce((SELECT ':' || i.indexrelid::text FROM pg_index i
                                         WHERE i.indrelid = c.oid AND i.indisreplident), ''),
       array(SELECT a.attnum || ' ' || a.atttypid || ' ' || a.atttypmod || ' ' || a.xmin FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       coalesce((SELECT i.xmin::text FROM pg_inherits i WHERE i.inhrelid = c.oid AND c.relispartition), ''),
       (SELECT t.xmin::text FROM pg_type t WHERE t.oid = c.reltype)
FROM unnest(%s::oid[]) r(oid)
CROSS JOIN LATERAL (SELECT r.oid AS relid UNION SELECT relid FROM pg_partition_tree(r.oid::regclass)) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'f') OR c.oid = r.oid
"""

# Tables that a publication names. One that carries them as part of all tables, or of a schema, names none.
NAMED = """
SELECT r.prrelid::bigint, r.oid::text FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND r.prrelid = ANY(%s::oid[])
"""


def fingerprint(session: Session, oid: int, publication: str = "") -> str:
    """A table's file, columns, partitions and place in the publication as text; compare two with `findings`.

    Empty when the table is gone.
    """
    return fingerprints(session, [oid], publication)[oid]


def fingerprints(session: Session, oids: Sequence[int], publication: str = "") -> dict[int, str]:
    """The same for many tables in one question."""
    trees: dict[int, dict[str, dict[str, Any]]] = {oid: {} for oid in oids}
    named = dict(query(session, NAMED, (publication, list(oids))))
    for root, oid, schema, name, kind, file, persistence, identity, columns, attached, made in query(
        session, TREE, (list(oids),)
    ):
        trees[root][str(oid)] = {
            "name": qualified(schema, name),
            "root": oid == root,
            "kind": kind,
            "file": file,
            "persistence": persistence,
            "identity": identity,
            "columns": {c.rsplit(" ", 1)[0]: c.rsplit(" ", 1)[1] for c in columns},
            "attached": attached,
            "made": made,
            "published": named.get(oid, ""),
        }
    return {oid: json.dumps(tree, sort_keys=True) if tree else "" for oid, tree in trees.items()}


def findings(session: Session, before: str, after: str) -> list[Finding]:
    """What happened between two fingerprints of one table. A new partition that was born empty is no finding."""
    if before == after:
        return []
    if not after:
        return [Finding(Event.GONE, "the table")]
    old, new = json.loads(before), json.loads(after)
    found = [Finding(Event.DETACHED, old[oid]["name"]) for oid in old.keys() - new.keys()]
    for oid in new.keys() - old.keys():
        part = new[oid]
        if part["attached"] != part["made"] or _filled_by(session, part["name"], part["attached"]):
            found.append(Finding(Event.ATTACHED, part["name"]))
        if part["persistence"] != "p" or part["kind"] == "f":
            found.append(Finding(Event.UNLOGGED, part["name"]))
    for oid in old.keys() & new.keys():
        found += [Finding(event, new[oid]["name"]) for event in _changes(old[oid], new[oid])]
    return sorted(found, key=lambda f: (f.event, f.table))


def verdict(found: Sequence[Finding], table: str, *, truncated: bool) -> DataError | None:
    """The error that stops the table, if its rows may have changed without log events.

    `truncated`: the log holds a TRUNCATE of the table since the earlier look, which gives every partition a new file.
    """
    for finding in found:
        if finding.event is Event.REFILED or (finding.event is Event.EMPTIED and truncated):
            continue
        return DataError(
            "data.rewritten",
            f"{finding.table} {finding.event}; the log does not tell what that did to the rows",
            f"RESYNC TABLE {table} reads it anew.",
        )
    return None


def _changes(old: dict[str, Any], new: dict[str, Any]) -> list[Event]:
    found = []
    if new["file"] != old["file"] and new["kind"] == "r":
        # Type changes are judged by the log's own description of the columns; the same type means new values.
        same_type = old["columns"].keys() & new["columns"].keys()
        altered = any(old["columns"][c] != new["columns"][c] for c in same_type)
        found.append(Event.REWRITTEN if altered else Event.REFILED if new["root"] else Event.EMPTIED)
    if new["persistence"] != "p" and old["persistence"] == "p":
        found.append(Event.UNLOGGED)
    if new["identity"] != old["identity"] and new["identity"][0] in "ni":
        found.append(Event.IDENTITY)
    if old.get("published") and new["published"] != old["published"]:  # it may have been put back since
        found.append(Event.UNPUBLISHED)
    return found


def _filled_by(session: Session, table: str, xid: str) -> bool:
    """Whether the transaction that created and attached a partition also filled it: perhaps before it was attached."""
    return bool(query(session, f"SELECT 1 FROM ONLY {table} WHERE xmin = %s::xid LIMIT 1", (xid,)))
