"""The changes of a relation, in slices of bounded size. A table's changes come from its connection's changelog.

Decoding a whole backlog, or a transaction of millions of rows, at once would need memory to match. So changes always
come slice by slice; a slice may end inside a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.engine import Connection

from headwater.backfill.span import NOWHERE, locate
from headwater.changelog.reader import Limit, read_slices, read_table
from headwater.decode.changes import DecodedChanges, changes_schema, decode_changes
from headwater.errors import DataError
from headwater.meta import changes as changes_of
from headwater.meta import relations
from headwater.meta.store import Meta
from headwater.model import Op, RelationInfo, Span
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.names import INDEX, OLD, OP
from headwater.storage import Storage

MOST_CHUNKS = 64

Report = Callable[[RelationInfo, DecodedChanges, int, int], None]


@dataclass(frozen=True, slots=True)
class Slice:
    """A relation's decoded changes in (after, upto], in index order: see `decode.changes.DecodedChanges.table`."""

    after: int
    upto: int
    table: pa.Table

    def rest(self, first: Slice) -> Slice:
        """What follows a first part of it."""
        return Slice(first.upto, self.upto, self.table.slice(first.table.num_rows))


class Changes(Protocol):
    """The source of relations' changes. Thread-safe."""

    def slices(
        self,
        relation: RelationInfo,
        after: int,
        upto: int,
        *,
        before: bool = False,
        within: Span | None = None,
        apart: bool = False,
    ) -> Iterator[Slice]:
        """The changes in (after, upto]: at least one slice, without gaps; the last one ends at `upto`.

        `before` adds the column `__before`. `within` keeps only changes that affect a key of that span. `apart`: the
        range is the caller's own choice, not what the relation's readers need, so nothing is cached or counted for it.
        """

    def truncates(self, relation: RelationInfo, after: int, upto: int) -> list[tuple[int, int]]:
        """(index, transaction) of each TRUNCATE in (after, upto], in index order."""

    def forget(self, relation_id: int) -> None:
        """Drops what is cached for a relation; called when it is gone."""


@dataclass
class _Kept:
    """Decoded changes of one relation in (after, upto], under one version of its columns."""

    after: int
    upto: int
    table: pa.Table
    schema_version: int
    lock: threading.Lock = field(default_factory=threading.Lock)


class LoggedChanges:
    """`Changes` over changelogs. The newest changes of each relation are cached, so that each is decoded once.

    `report(relation, changes, before, upto)` is called for decoded changes that have notices and were not counted
    before: those after the relation's counted index, `before`.
    """

    def __init__(
        self, storage: Storage, meta: Meta, report: Report | None = None, settings: Settings = DEFAULTS
    ) -> None:
        self._storage = storage
        self._meta = meta
        self._report = report
        self._settings = settings
        self._kept: dict[int, _Kept] = {}  # in order of use
        self._lock = threading.Lock()

    @property
    def _limit(self) -> Limit:
        return Limit(self._settings.slice_changes, self._settings.slice_bytes)

    def slices(
        self,
        relation: RelationInfo,
        after: int,
        upto: int,
        *,
        before: bool = False,
        within: Span | None = None,
        apart: bool = False,
    ) -> Iterator[Slice]:
        if before or apart:
            parts = self._decoded(relation, after, upto, before=before, report=not apart)
        else:
            parts = self._shared(relation, after, upto)
        for part in parts:
            yield part if within is None else Slice(part.after, part.upto, _within(relation, part.table, within))

    def truncates(self, relation: RelationInfo, after: int, upto: int) -> list[tuple[int, int]]:
        with self._meta.read() as c:
            pieces = [(path, p) for path, p in changes_of.pieces(c, relation, after, upto) if p.truncates]
        found: list[tuple[int, int]] = []
        for piece in pieces:
            raw = read_table(self._storage, [piece], after, upto)
            emptying = raw.filter(pc.equal(raw["op"], int(Op.TRUNCATE)))
            found += zip(emptying["index"].to_pylist(), emptying["txn"].to_pylist(), strict=True)
        return found

    def forget(self, relation_id: int) -> None:
        with self._lock:
            self._kept.pop(relation_id, None)

    def _shared(self, relation: RelationInfo, after: int, upto: int) -> Iterator[Slice]:
        while True:
            part = self._next(relation, after, upto)
            yield part
            after = part.upto
            if after >= upto:
                return

    def _next(self, relation: RelationInfo, after: int, upto: int) -> Slice:
        """The first slice of (after, upto]; caches what it had to decode."""
        kept = self._of(relation, after)
        with kept.lock:
            if after < kept.after:  # a reader of an old epoch must not evict what newer ones need
                return next(iter(self._decoded(relation, after, upto)))
            if after > kept.upto:
                kept.after = kept.upto = after
                kept.table = kept.table.slice(0, 0)
            part = self._cached(kept, after, upto)
            room = self._room(part.table)
            if part.upto == kept.upto < upto and room is not None:
                more = next(iter(self._decoded(relation, kept.upto, upto, limit=room)))
                if more.table.num_rows:
                    kept.table = _compact(pa.concat_tables([kept.table, more.table]))
                kept.upto = more.upto
                part = Slice(after, more.upto, _between(kept.table, after, more.upto))
            self._trim(kept, after)
        self._shrink(relation.id)
        return part

    def _cached(self, kept: _Kept, after: int, upto: int) -> Slice:
        """What is cached after an index, as far as it fits into a slice."""
        upto = min(upto, kept.upto)
        found = _between(kept.table, after, upto)
        rows = _rows_within(found, self._limit)
        if rows == found.num_rows:
            return Slice(after, upto, found)
        first = found.slice(0, rows)
        return Slice(after, first[INDEX][rows - 1].as_py(), first)

    def _room(self, answer: pa.Table) -> Limit | None:
        """How much more a slice may hold; None if it is full."""
        changes, size = self._limit.changes - answer.num_rows, self._limit.bytes - answer.nbytes
        return Limit(changes, size) if changes > 0 and size > 0 else None

    def _of(self, relation: RelationInfo, after: int) -> _Kept:
        with self._lock:
            kept = self._kept.pop(relation.id, None)
            if kept is None or kept.schema_version != relation.schema_version:
                empty = changes_schema(relation.columns, relation.key).empty_table()
                kept = _Kept(after, after, empty, relation.schema_version)
            self._kept[relation.id] = kept  # last in order: most recently used
            return kept

    def _decoded(
        self,
        relation: RelationInfo,
        after: int,
        upto: int,
        *,
        before: bool = False,
        limit: Limit | None = None,
        report: bool = True,
    ) -> Iterator[Slice]:
        """The changes in (after, upto], decoded lazily."""
        with self._meta.read() as c:
            pieces = changes_of.pieces(c, relation, after, upto)
            versions = {v.id: v for v in changes_of.schemas(c, relation)} if pieces else {}
            counted = relations.counted_index(c, relation.id)
        for end, raw in read_slices(self._storage, pieces, after, upto, limit or self._limit):
            tables = [changes_schema(relation.columns, relation.key, before=before).empty_table()]
            # decode what an earlier process, or another reader, has counted separately from the rest
            for first, last in [(after, counted), (counted, end)] if after < counted < end else [(after, end)]:
                part = _between(raw, first, last, "index")
                if not part.num_rows:
                    continue
                decoded = decode_changes(part, versions, relation.columns, relation.key, before=before)
                noticed = report and last > counted and (decoded.unrepresentable or decoded.notices)
                if self._report is not None and noticed:
                    self._report(relation, decoded, counted, last)
                    with self._meta.read() as c:  # another reader may have been first
                        counted = relations.counted_index(c, relation.id)
                tables.append(decoded.table)
            yield Slice(after, end, pa.concat_tables(tables))
            after = end

    def _trim(self, kept: _Kept, after: int) -> None:
        """Drops changes before the index that readers now start from, once there are enough of them.

        Drops the oldest of them whoever may need them if the relation alone fills the cache.
        """
        if kept.table.num_rows and kept.after < after:
            later = _between(kept.table, after, kept.upto)
            if kept.table.num_rows - later.num_rows > self._settings.tail_changes:
                kept.table, kept.after = later.combine_chunks(), after
        most = self._settings.tail_memory_bytes
        if kept.table.nbytes > most:
            rows = _rows_within(kept.table, Limit(kept.table.num_rows, most // 2), newest=True)
            last = kept.table.num_rows - rows - 1  # the last row that is dropped
            kept.after = kept.table[INDEX][last].as_py()
            kept.table = kept.table.slice(last + 1).combine_chunks()

    def _shrink(self, used: int) -> None:
        """Evicts the least recently used relations while the cache is over its memory limit."""
        with self._lock:
            total = sum(k.table.nbytes for k in self._kept.values())
            for id in list(self._kept):
                if total <= self._settings.tail_memory_bytes:
                    break
                if id != used:
                    total -= self._kept.pop(id).table.nbytes


def check_history(c: Connection, relation: RelationInfo, after: int, index: int) -> None:
    """Raises if the changelog no longer holds (after, index]: missing history must not look like no changes."""
    first = changes_of.first_kept(c, relation)
    if after < index and first > after + 1:
        raise DataError(
            "data.history_missing",
            f"{relation.name} needs changes from {after + 1} on, but the changelog begins at {first}",
            f"RESYNC TABLE {relation.name} reads it again.",
        )


def _within(relation: RelationInfo, changes: pa.Table, span: Span) -> pa.Table:
    """The changes whose own or old key lies in the span, and every TRUNCATE."""
    rows = np.ones(changes.num_rows, np.bool_)
    named = np.flatnonzero(changes[OP].to_numpy() != Op.TRUNCATE)
    own = changes.select(list(relation.key)).take(pa.array(named))
    rows[named] = locate([span], relation.key_columns, own) != NOWHERE
    moved = np.flatnonzero(pc.is_valid(changes[OLD]).to_numpy())
    if len(moved):
        fields = [pc.struct_field(changes[OLD], [i]).take(pa.array(moved)) for i in range(len(relation.key))]
        old = pa.table(fields, names=list(relation.key))
        rows[moved] |= locate([span], relation.key_columns, old) != NOWHERE
    return changes.filter(pa.array(rows))


def _rows_within(table: pa.Table, limit: Limit, *, newest: bool = False) -> int:
    """How many of the first (or `newest`) rows fit into a limit, roughly and at least one; all of them if all fit."""
    rows = int(min(table.num_rows, limit.changes))
    while rows > 1:
        size = int(table.slice(table.num_rows - rows if newest else 0, rows).nbytes)
        if size <= limit.bytes:
            break
        rows = max(1, min(rows // 2, rows * limit.bytes // size))
    return rows


def _compact(table: pa.Table) -> pa.Table:
    """The same table in one chunk once it has too many: every read adds one."""
    return table.combine_chunks() if table[INDEX].num_chunks > MOST_CHUNKS else table


def _between(table: pa.Table, after: int, upto: int, index: str = INDEX) -> pa.Table:
    """The slice of an index-ordered table with after < index <= upto."""
    if not table.num_rows:
        return table
    start, end = table[index].to_numpy().searchsorted([after, upto], side="right")
    return table.slice(int(start), int(end - start))
