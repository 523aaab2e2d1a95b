"""What happened to a table between two looks at the catalog without a trace in the log, and what that means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from psycopg import errors as pg_errors

from headwater.errors import DataError, SourceError
from headwater.model import RelationInfo
from headwater.source.postgres.catalog.watch import EVERY_TABLE, SCHEMA
from headwater.source.postgres.client.ask import Session, query, with_lock_timeout
from headwater.source.postgres.client.session import quote_literal
from headwater.source.postgres.scan.snapshot import Snapshot, sees
from headwater.source.upstream import Look, Verdict


class Event(StrEnum):
    """What happened to a table or one of its partitions between two looks."""

    GONE = "was dropped"
    MOVED = "was renamed or moved to another schema"
    KEY = "has a different primary key now"
    ADOPTED = "became a partition of another table"
    ATTACHED = "was attached with rows in it"
    DETACHED = "was detached or dropped with its rows"
    REATTACHED = "was detached and attached again"
    REWRITTEN = "was rewritten by an ALTER TABLE"
    COMPUTED = "computes a column differently"
    REPLACED = "has a column that was dropped and added again, or that got its name from another one"
    RENAMED = "has a column that was renamed"
    RETYPED = "has a column of a type whose labels or attributes were altered"
    EMPTIED = "was truncated or rewritten on its own"  # a partition's new file: TRUNCATE, VACUUM FULL or CLUSTER
    REFILED = "got a new file"  # the table's own: TRUNCATE, which is in the log, or VACUUM FULL or CLUSTER
    UNTOLD = "was rewritten, and may have been unlogged in the meantime"  # the same, if nothing prevents SET UNLOGGED
    UNLOGGED = "became unlogged"
    IDENTITY = "has a different replica identity now"
    UNPUBLISHED = "was taken out of the publication, or only some of its rows or columns were left in it"
    PUBLICATION = "is carried by a publication whose options were altered"


@dataclass(frozen=True, slots=True)
class Finding:
    """One event and the table or partition it happened to, with the column if that helps.

    `filed`: the transactions that last wrote the catalog rows of it and of its key's index, in 32 bits: each created
    the file that it has now, or came later.
    """

    event: Event
    table: str
    column: str = ""
    filed: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.table} {self.event}" + (f" ({self.column})" if self.column else "")


Member = dict[str, Any]


class CatalogColumn(NamedTuple):
    """A column as seen by a look, in the order of `watch.TREE`; `altered` and `computed` change whenever it does."""

    number: int
    type: int
    modifier: int
    altered: str  # the transaction that last wrote its catalog row
    collation: int
    computed: int | None  # the expression of a generated column


def _column(member: Member, name: str) -> CatalogColumn | None:
    found = member.get("columns", {}).get(name)
    return None if found is None else CatalogColumn(*found)


def compare(
    session: Session, before: Look, after: Look, relation: RelationInfo, truncates: Sequence[int] = ()
) -> Verdict:
    """The error that stops the relation if rows may have changed without log events; otherwise notices for the user."""
    found = findings(session, before, after, relation)
    excused = _truncated(before, after, truncates)
    for finding in found:
        if finding.event is Event.REFILED or excused.intersection(finding.filed):
            continue
        error = DataError(
            "data.rewritten",
            f"{finding}; the log does not show what that did to the rows",
            f"RESYNC TABLE {relation.name} reads it again.",
        )
        return Verdict(error)
    return Verdict(None, tuple(_notices(before, after, relation)))


def _truncated(before: Look, after: Look, truncates: Sequence[int]) -> set[str]:
    """The transactions that, according to the log, emptied the whole table between two looks, in the catalog's 32 bits.

    Each gave the table, its partitions and their indexes new files. A partition that still has one of these files has
    not been emptied on its own since. A subtransaction's number is not in the log, so it excuses nothing.
    """
    if not truncates or not before.saw or not after.saw:
        return set()
    txn = np.array(truncates, np.int64)
    between = txn[sees(after.saw, txn) & ~sees(before.saw, txn)]
    return {str(x % 2**32) for x in between.tolist()}


def findings(session: Session, before: Look, after: Look, relation: RelationInfo) -> list[Finding]:
    """What happened to a relation's table between two looks; not partitions whose rows are all in the log."""
    if not after.shape:
        return [Finding(Event.GONE, "the table")]
    old, new = json.loads(before.shape or "{}"), json.loads(after.shape)
    found = [Finding(Event.DETACHED, old[oid]["name"]) for oid in old.keys() - new.keys() if _holds_rows(old[oid])]
    for oid in new.keys() - old.keys():
        if _holds_rows(new[oid]):
            found += _joined(session, new[oid], after, _came_below(oid, old, new))
    for oid in new:
        was, now = old.get(oid), new[oid]
        if now["root"] or _holds_rows(now):
            found += [Finding(event, now["name"]) for event in _violations(was, now, relation)]
        if was is not None:
            found += _changed(session, was, now, relation, before)
        if now["root"]:
            found += _columns(was or {}, now, relation)
    return sorted(found, key=lambda f: (f.event, f.table, f.column))


def _holds_rows(member: Member) -> bool:
    """Whether a partition holds rows: one that has partitions of its own holds none."""
    return bool(member["kind"] != "p")


def _came_below(oid: str, old: dict[str, Member], new: dict[str, Member]) -> bool:
    """Whether a new partition came with a table above it that was attached rather than created as a partition."""
    above = new[oid].get("above", "")
    while above in new and above not in old:
        if not new[above]["born"]:
            return True
        above = new[above]["above"]
    return False


def _joined(session: Session, part: Member, after: Look, below: bool) -> Iterator[Finding]:
    """Findings for a new partition: the log has its rows if it was created as a partition, or attached empty."""
    try:
        if (below and not _is_empty(session, part)) or (not part["born"] and _came_with_rows(session, part, after)):
            yield Finding(Event.ATTACHED, part["name"])
    except SourceError as e:
        if not isinstance(e.__cause__, pg_errors.UndefinedTable):
            raise
        yield Finding(Event.DETACHED, part["name"])
    if part["kind"] == "f":
        yield Finding(Event.UNLOGGED, part["name"])


def _is_empty(session: Session, part: Member) -> bool:
    with with_lock_timeout(session):
        return not _has_bytes(session, part)


def _has_bytes(session: Session, part: Member) -> bool:
    return bool(query(session, f"SELECT 1 WHERE pg_relation_size({quote_literal(part['name'])}::regclass) > 0"))


# Rows of a table that one transaction created, filled and attached. A subtransaction has its own number, above that of
# its transaction and below those given after the look, but shares its command counter: what it wrote before the ATTACH
# lies between the first command and that one. A row's command number is lost once somebody tried to delete it.
EARLY_ROWS = """
SELECT 1 FROM ONLY {name} r WHERE r.xmin = %(attached)s::xid
OR age(r.xmin) < age(%(attached)s::xid) AND age(r.xmin) > age(%(seen)s::xid) AND (r.xmax <> '0'::xid OR
  r.cmin::text::bigint > 0 AND r.cmin::text::bigint < coalesce((SELECT i.cmin::text::bigint FROM pg_inherits i
    WHERE i.inhrelid = {literal}::regclass AND i.xmin = %(attached)s::xid AND i.xmax = '0'::xid), 4294967295))
LIMIT 1
"""


def _came_with_rows(session: Session, part: Member, after: Look) -> bool:
    """Whether a table may have had rows when it was attached.

    A table created by the attaching transaction had them if that transaction wrote some that still exist.
    If we are not allowed to look, it may have.
    """
    name = part["name"]
    try:
        with with_lock_timeout(session):
            if not _has_bytes(session, part):
                return False
            if part["attached"] != part["made"]:
                return True
            seen = Snapshot.parse(after.saw).xmax % 2**32
            early = EARLY_ROWS.format(name=name.replace("%", "%%"), literal=quote_literal(name).replace("%", "%%"))
            return bool(query(session, early, {"attached": part["attached"], "seen": str(seen)}))
    except SourceError as e:
        if isinstance(e.__cause__, pg_errors.InsufficientPrivilege):
            return True
        raise


def _violations(was: Member | None, now: Member, relation: RelationInfo) -> Iterator[Event]:
    """Conditions that must not hold, whatever held before."""
    if now["persistence"] != "p":
        yield Event.UNLOGGED
    whole = now["identity"] == "f" or set(now.get("identified", relation.key)) == set(relation.key)
    if now["root"] and (now.get("late") or set(now["key"]) != set(relation.key)):
        yield Event.KEY
    elif not whole and now["kind"] == "r":
        yield Event.IDENTITY
    if now["root"] and now["partition"] and not (was or now).get("partition"):
        yield Event.ADOPTED


def _changed(session: Session, was: Member, now: Member, relation: RelationInfo, before: Look) -> Iterator[Finding]:
    """Changes that must not have happened."""
    name = now["name"]
    if not now["root"] and now["attached"] != was["attached"]:
        yield Finding(Event.REATTACHED, name)
    if now["root"] and was["name"] != name:
        yield Finding(Event.MOVED, was["name"], f"which is called {name} now")
    if now["file"] != was["file"] and now["kind"] == "r":
        if any(_rewritten(_column(was, c.name), _column(now, c.name)) for c in relation.columns):
            yield Finding(Event.REWRITTEN, name)
        elif not now["root"]:
            yield Finding(Event.EMPTIED, name, filed=tuple(now["filed"]))
        else:
            logged = _stayed_logged(session, was, now, before)
            yield Finding(Event.REFILED if logged else Event.UNTOLD, name, filed=tuple(now["filed"]))
    if not now["root"]:
        return
    if "ways" in was and not set(was["ways"]) & set(now["ways"]):
        yield Finding(Event.UNPUBLISHED, name)
    elif "publication" in was and _leaves_out(was["publication"], now["publication"], now["kind"]):
        yield Finding(Event.PUBLICATION, name)


# A row of the new file that is older than the look before it.
OLD_ROWS = """
SELECT 1 FROM (SELECT xmin FROM ONLY {name} LIMIT 10000) r WHERE age(r.xmin) > age(%s::xid) LIMIT 1
"""


def _stayed_logged(session: Session, was: Member, now: Member, before: Look) -> bool:
    """Whether a table with a new file was never unlogged meanwhile, while the log did not carry its rows.

    PostgreSQL refuses SET UNLOGGED if a publication names the table. Otherwise that, and SET LOGGED after it, rewrites
    every row and creates a new TOAST table; VACUUM FULL and CLUSTER do neither. An ALTER that rewrites the table
    because of a column leaves its transaction number at the column.
    """
    if "toast" not in was or not before.saw or any(not _by_rule(way) for way in was.get("ways", [""])):
        return True
    if now["toast"] and now["toast"] == was["toast"]:
        return True
    if any({CatalogColumn(*column).altered} == set(now["filed"]) for column in now["columns"].values()):
        return True
    oldest = str(Snapshot.parse(before.saw).xmin % 2**32)
    with with_lock_timeout(session):
        return bool(query(session, OLD_ROWS.format(name=now["name"].replace("%", "%%")), (oldest,)))


def _by_rule(way: str) -> bool:
    """Whether a publication carries the table without naming it."""
    return way == EVERY_TABLE or way.startswith(SCHEMA)


def _leaves_out(was: list[Any] | None, now: list[Any] | None, kind: str) -> bool:
    """Whether the publication leaves out changes, or may have done so meanwhile."""
    if now is None or was is None:
        return now is None
    *_, owner_before, row_before = was
    _, complete, via_root, owner, row = now
    return not complete or (kind == "p" and not via_root) or (row != row_before and owner == owner_before)


def _columns(was: Member, now: Member, relation: RelationInfo) -> Iterator[Finding]:
    """What happened to the followed columns. A dropped one is NULL from then on, and no finding."""
    names = {CatalogColumn(*found).number: name for name, found in now["columns"].items()}
    for column in relation.columns:
        place, before, found = column.upstream.number, _column(was, column.name), _column(now, column.name)
        if found and place and found.number != place:
            yield Finding(Event.REPLACED, now["name"], column.name)
        elif not found and place in names:
            yield Finding(Event.RENAMED, now["name"], f"{column.name} to {names[place]}")
        elif found and before and _same_type(before, found) and _prints_differently(was, now, column.name):
            yield Finding(Event.RETYPED, now["name"], column.name)
        elif found and before:
            if before.computed != found.computed and found.computed is not None:
                yield Finding(Event.COMPUTED, now["name"], column.name)
            if column.name in relation.key and before.collation != found.collation:
                yield Finding(Event.KEY, now["name"], f"{column.name} has another collation")


def _prints_differently(was: Member, now: Member, column: str) -> bool:
    """Whether a column's type now prints older values differently; a new enum label does not."""
    before, after = (m.get("types", {}).get(column, {}) for m in (was, now))
    grown = any(key not in before for key in after if key.startswith("attribute"))
    return grown or any(after.get(key) != value for key, value in before.items())


def _notices(before: Look, after: Look, relation: RelationInfo) -> Iterator[str]:
    """Sentences about columns that were added or dropped without harm."""
    was, now = (_root(json.loads(look.shape or "{}")).get("columns", {}) for look in (before, after))
    followed = {c.name for c in relation.columns}
    for name in now:
        if was and name not in was and name not in followed:
            yield f"column {name} was added upstream and is ignored; RESYNC TABLE adds it"
    for name in was:
        if name not in now and name in followed:
            yield f"column {name} was dropped upstream and is NULL from then on"


def _root(tree: dict[str, Member]) -> Member:
    return next((m for m in tree.values() if m["root"]), {})


def _rewritten(was: CatalogColumn | None, now: CatalogColumn | None) -> bool:
    """Whether a column of a table with a new file has new values: it was altered and kept its type.

    A different type is judged by how the log, or the catalog, describes the column.
    """
    return was is not None and now is not None and _same_type(was, now) and was.altered != now.altered


def _same_type(was: CatalogColumn, now: CatalogColumn) -> bool:
    return (was.type, was.modifier) == (now.type, now.modifier)
