"""Runs: when a settled relation's tail has grown long, its netted form becomes a file that outlives this process.

A long tail becomes several runs, one per slice of the changelog. Runs are merged as they multiply: a run that is not
clearly larger than what follows it is netted together with it, so that reads see few layers and each change is written
only a few times. Large runs are left alone, so that a merge never needs much memory.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater import crash
from headwater.backfill import rule
from headwater.backfill.rule import Sees
from headwater.meta import changes as changes_of
from headwater.meta import epochs
from headwater.meta import runs as meta_runs
from headwater.meta.store import Meta
from headwater.model import Layout, RelationInfo, RunInfo
from headwater.ownership.lease import Lease
from headwater.relation.changes import Changes, check_history
from headwater.relation.judge import settled
from headwater.relation.layers import Layer, Netting, fitting, has_missing, read_layer, write_layer
from headwater.relation.net import net
from headwater.storage import Storage

GROWTH = 3  # a run is left alone if it has at least this many times the rows that come after it
MERGED_ROWS, MERGED_BYTES = 500_000, 64 << 20  # upper bound of a merged run


def folder(relation_id: int) -> str:
    """The folder of a relation's runs, relative to the home."""
    return f"runs/{relation_id}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The contents of a new run: the runs it replaces and the changes in (after, upto]."""

    contains: tuple[RunInfo, ...]
    after: int
    upto: int
    first_index: int


def plan(chain: Sequence[RunInfo], start: int, upto: int, rows: int, size: int, kept: Collection[int] = ()) -> Plan:
    """The run for the netted changes (so many rows, so many bytes) after a chain of runs that begins at `start`.

    No run that ends before a `kept` index, at which the relation is still read, is merged with what comes after it.
    """
    after = _end(chain, start)
    older = list(chain)
    while (
        older
        and older[-1].rows < GROWTH * rows
        and rows + older[-1].rows <= MERGED_ROWS
        and size + older[-1].bytes <= MERGED_BYTES
        and not any(older[-1].last_index <= index < upto for index in kept)
    ):
        merged = older.pop()
        rows, size = rows + merged.rows, size + merged.bytes
    contains = tuple(chain[len(older) :])
    return Plan(contains, after, upto, older[-1].last_index + 1 if older else start + 1)


def usable(live: Sequence[RunInfo], start: int, schema_version: int, *, gaps: bool = False) -> list[RunInfo]:
    """The runs that form a chain over a base that holds `start`, without gaps unless `gaps` (a view's) mean no change.

    A run is unusable if it straddles `start`, was written when the relation had other columns, or refers to rows of a
    base that held something else (a fold has finished since): those rows may have moved to other keys.
    """
    chain: list[RunInfo] = []
    after = start
    for run in live:
        fits = run.base_index == start or not run.missing
        follows = run.first_index > after if gaps else run.first_index == after + 1
        if follows and run.schema_version == schema_version and fits:
            chain.append(run)
            after = run.last_index
    return chain


def _end(chain: Sequence[RunInfo], start: int) -> int:
    """The last index of a chain that begins after `start`."""
    return chain[-1].last_index if chain else start


def layer_of(run: RunInfo) -> Layer:
    return Layer(run.path, run.rows, run.missing)


@dataclass(frozen=True, slots=True)
class Made:
    """How many runs were written, and how many changes follow the last one."""

    runs: int
    tail: int


@dataclass(slots=True)
class RunWriter:
    """Writes runs. Thread-safe: if several threads want a relation's runs, the first writes and the others wait."""

    storage: Storage
    meta: Meta
    changes: Changes
    _locks: defaultdict[int, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def write(
        self,
        relation: RelationInfo,
        layout: Layout,
        index: int,
        sees: Sees,
        lease: Lease,
        *,
        limit: int,
        until: float = math.inf,
    ) -> Made:
        """Turns a tail of more than `limit` changes into runs, one at a time, and begins none after `until`.

        `until` is a moment of `time.monotonic`. Between two runs other threads have their turn.
        """
        if not settled(relation, layout):
            return Made(0, 0)  # which changes count still depends on the reader's layout
        start = layout.overlay_start(relation)
        written = 0
        while True:
            chain, changes = self._left(relation, start, index)
            if changes <= limit or not self._turn(relation.id, until):
                return Made(written, changes)
            try:
                chain, changes = self._left(relation, start, index)  # another thread may have been faster
                if changes > limit:
                    with lease.under_way.writing(folder(relation.id)):
                        self._write(relation, layout, chain, start, index, sees, lease)
                    written += 1
            finally:
                self._locks[relation.id].release()

    def _turn(self, relation_id: int, until: float) -> bool:
        """Takes the relation's lock; False if it is too late by then."""
        wait_s = until - time.monotonic()
        return wait_s > 0 and self._locks[relation_id].acquire(timeout=min(wait_s, threading.TIMEOUT_MAX))

    def _left(self, relation: RelationInfo, start: int, index: int) -> tuple[list[RunInfo], int]:
        """The usable runs, and how many changes follow them."""
        with self.meta.read() as c:
            chain = usable(meta_runs.live(c, relation.id, start, index), start, relation.schema_version)
            return chain, changes_of.count(c, relation, _end(chain, start), index)

    def _write(
        self,
        relation: RelationInfo,
        layout: Layout,
        chain: Sequence[RunInfo],
        start: int,
        index: int,
        sees: Sees,
        lease: Lease,
    ) -> None:
        whole = next(iter(self.changes.slices(relation, _end(chain, start), index)))
        first = fitting(self.storage, relation, [layer_of(r) for r in chain], whole)
        part = first.part
        truncates = self.changes.truncates(relation, part.after, part.upto)
        emptied = rule.truncated(layout, truncates, sees)
        tail = Netting(relation, layout, sees, emptied).layer(part.table, first.older)
        with self.meta.read() as c:
            kept = epochs.pinned_indexes(c, relation)
        due = plan(chain, start, part.upto, tail.num_rows, tail.nbytes, kept)
        truncate_index = max([int(emptied.max(initial=0)), *(r.truncate_index for r in due.contains)])
        rows = self._merged(relation, due, tail, truncate_index)
        path = f"{folder(relation.id)}/{lease.permit.new_file(f'{due.first_index:020d}-{due.upto:020d}', 'parquet')}"
        with self.storage.create(path) as f:
            write_layer(f, rows, compression="lz4")
        with self.meta.owned(lease) as c:
            crash.here("run.written")
            check_history(c, relation, part.after, part.upto)
            meta_runs.add(
                c,
                relation.id,
                first_index=due.first_index,
                last_index=due.upto,
                path=path,
                rows=rows.num_rows,
                bytes=rows.nbytes,  # not of the file: repeated values compress well, but are merged in memory
                missing=has_missing(rows),
                schema_version=relation.schema_version,
                base_index=start,
                truncate_index=truncate_index,
                replaces=[r.id for r in due.contains],
            )

    def _merged(self, relation: RelationInfo, due: Plan, tail: pa.Table, truncate_index: int) -> pa.Table:
        """The rows of the planned run."""
        contained = [r for r in due.contains if r.last_index >= truncate_index]
        if not contained:
            return tail
        tables = [read_layer(self.storage, relation, r.path) for r in contained]
        # `__from` names base rows in every layer (the tail was netted over the runs), so the newest row of a key wins
        return net([*tables, tail], relation.columns, relation.key)
