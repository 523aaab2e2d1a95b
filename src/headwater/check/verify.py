"""Verifies one relation against its upstream at one cut, while captures, scans, folds and writers keep running.

It makes a cut upstream and reads its snapshot there; the lake is read at the index that holds exactly the commits up
to the cut's position. The lake's layout was pinned before, so only log has been added since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.backfill.read_span import scan_table
from headwater.backfill.span import joined
from headwater.changelog.reader import index_at, read_transactions
from headwater.check.compare import KEY_LIMIT, Comparison, compare
from headwater.check.digest import Digest, digest, rows_in
from headwater.decode.scanned import to_lake
from headwater.errors import SourceError, restored
from headwater.meta import connections, segments
from headwater.meta.store import Meta
from headwater.model import Column, ConnectionState, Layout, RelationInfo, Span
from headwater.relation.schema import quoted
from headwater.source.names import HASH
from headwater.source.spans import OnWait, Reach, Scan, UpstreamCut
from headwater.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A TRUNCATE or a rewrite between a cut and the read of its rows invalidates the cut. Later cuts are taken until both
# are used up: a slow machine gets as many as a fast one, and a slow upstream as much time.
CUT_TRIES, CUT_S = 5, 60.0
REACH_POLL_S = 0.05
AT_ONCE = 4  # tables of the lake that are read at once, while the upstream is read for the next one

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a verification, and its cut."""

    table: str
    position: str
    index: int
    complete: bool  # every span was covered, so the whole table was compared
    comparison: Comparison
    seconds: float

    @property
    def equal(self) -> bool:
        return self.comparison.equal


@dataclass(frozen=True, slots=True)
class Unverified:
    """A table that could not be compared, and why."""

    table: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Target:
    """A relation to verify: a pinned layout of it, and how to read it with that layout at an index."""

    relation: RelationInfo
    layout: Layout
    lake: Callable[[int], AbstractContextManager[DataFrame]]


def verify(
    targets: Sequence[Target],
    upstream: Reach,
    reach: Callable[[str], int],
    *,
    limit: int = KEY_LIMIT,
    on_wait: OnWait = lambda who: None,
) -> Iterator[Compared | Unverified]:
    """Compares the covered spans of relations of one connection with the upstream, all at one cut.

    A relation that cannot be compared is reported with its error; the others are still compared.

    `reach(position)` waits until the changelog holds every commit up to the position and returns the index that holds
    exactly those. A table that was truncated just after the cut is compared at a later one.
    """
    waiting = list(targets)
    cuts, began = 0, time.monotonic()
    while waiting and (cuts < CUT_TRIES or time.monotonic() - began < CUT_S):
        cuts += 1
        spoiled = []
        with upstream.cut(on_wait) as cut, ThreadPoolExecutor(AT_ONCE, thread_name_prefix="verify") as lakes:
            for target, begun in [(t, _guarded(t, partial(_begin, t, cut, reach, lakes))) for t in waiting]:
                if begun is None:
                    spoiled.append(target)
                elif isinstance(begun, Unverified):
                    yield begun
                else:
                    yield _guarded(target, partial(_end, target, begun, limit))
        waiting = spoiled
    for target in waiting:
        yield Unverified(target.relation.name, _spoiled(target.relation, cuts))


def _guarded(target: Target, work: Callable[[], T]) -> T | Unverified:
    try:
        return work()
    except Exception as e:  # any error: a missing file, a revoked privilege, a dropped table
        return Unverified(target.relation.name, e)


def _spoiled(relation: RelationInfo, cuts: int) -> SourceError:
    return SourceError(
        "source.failed",
        f"{relation.name} was truncated or rewritten upstream during the comparison ({cuts} cuts were tried)",
        "Verify again when the table is less busy.",
    )


@dataclass(frozen=True, slots=True)
class _Begun:
    """A comparison whose upstream side is known, while the lake's is being read."""

    upstream: UpstreamRows
    theirs: Digest
    index: int
    ours: Future[tuple[Digest, float]]  # and how long it took
    position: str
    seconds: float


def _begin(target: Target, cut: UpstreamCut, reach: Callable[[str], int], lakes: Executor) -> _Begun | None:
    """Reads the upstream at a cut, and the lake in parallel; None if the snapshot can no longer read the table."""
    started = time.monotonic()
    upstream = UpstreamRows(target.relation, cut, joined(s.span for s in target.layout.spans))
    theirs = upstream.digest()
    if theirs is None:
        return None
    index = reach(cut.position)
    ours = lakes.submit(_lake_digest, target, index)
    return _Begun(upstream, theirs, index, ours, cut.position, time.monotonic() - started)


def _lake_digest(target: Target, index: int) -> tuple[Digest, float]:
    started = time.monotonic()
    with target.lake(index) as rows:
        return digest_of(rows, target.relation.columns, target.relation.key), time.monotonic() - started


def _end(target: Target, begun: _Begun, limit: int) -> Compared:
    relation = target.relation
    ours, seconds = begun.ours.result()

    def lake_rows_in(ranges: NDArray[np.int64]) -> pa.Table:
        with target.lake(begun.index) as rows:
            return rows_of(rows, relation.columns, relation.key, ranges)

    found = compare(begun.theirs, ours, relation.key, begun.upstream.rows_in, lake_rows_in, limit=limit)
    took = begun.seconds + seconds
    return Compared(relation.name, begun.position, begun.index, target.layout.complete, found, took)


class UpstreamRows:
    """The upstream's rows of some spans at a cut, in lake types; they can be read repeatedly while the cut is open."""

    def __init__(self, relation: RelationInfo, cut: UpstreamCut, spans: Sequence[Span]) -> None:
        self._relation = relation
        self._cut = cut
        self._spans = spans

    def digest(self) -> Digest | None:
        """The rows' digest; None if the cut can no longer read the table."""
        total = Digest.empty()
        with self._cut.scan(scan_table(self._relation)) as scan:
            if scan is None:
                return None
            for span in self._spans:
                total += digest(self._lake(scan, span), self._relation.columns, self._relation.key)
        return total

    def rows_in(self, ranges: NDArray[np.int64]) -> pa.Table | None:
        """Key and hash of the rows in these ranges; None if the cut can no longer read the table."""
        columns, key = self._relation.columns, self._relation.key
        batches: list[pa.RecordBatch] = []
        with self._cut.scan(scan_table(self._relation)) as scan:
            if scan is None:
                return None
            for span in self._spans:
                batches += rows_in(self._lake(scan, span), columns, key, ranges)
        return _table(batches, columns, key)

    def _lake(self, scan: Scan, span: Span) -> Iterator[pa.RecordBatch]:
        for batch in scan.batches(span):
            yield to_lake(batch, self._relation.columns, self._relation.key)[0]


def digest_of(rows: DataFrame, columns: Sequence[Column], key: Sequence[str]) -> Digest:
    """The digest of a DataFrame, computed where its rows are."""

    names = rows.columns

    def summed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        part = digest((b.rename_columns(names) for b in batches), columns, key)
        used = np.flatnonzero(part.counts)
        yield pa.record_batch(
            [pa.array(used), pa.array(part.counts[used]), pa.array(part.sums[used].view(np.int64))],
            names=["range", "rows", "sum"],
        )

    found = _numbered(rows).mapInArrow(summed, "range BIGINT, rows BIGINT, sum BIGINT")
    parts = found.collect()  # at most 1,024 per task
    total = Digest.empty()
    places = np.array([p["range"] for p in parts], np.int64)
    np.add.at(total.counts, places, np.array([p["rows"] for p in parts], np.int64))
    np.add.at(total.sums, places, np.array([p["sum"] for p in parts], np.int64).view(np.uint64))
    return total


def rows_of(rows: DataFrame, columns: Sequence[Column], key: Sequence[str], ranges: NDArray[np.int64]) -> pa.Table:
    """Key and hash of a DataFrame's rows in these ranges."""
    keys = [c for c in columns if c.name in key]
    schema = ", ".join(f"{quoted(c.name)} {c.lake_type}" for c in keys)
    names = rows.columns

    def picked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows_in((b.rename_columns(names) for b in batches), columns, key, ranges)

    return _numbered(rows).mapInArrow(picked, f"{schema}, __hash BIGINT").toArrow()


def _numbered(rows: DataFrame) -> DataFrame:
    """The rows under names that mapInArrow can resolve: it parses dots and backticks in a name."""
    return rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))


def reach_in(
    meta: Meta,
    storage: Storage,
    connection_id: int,
    after: int,
    *,
    timeout_s: float,
    number: Callable[[str], int],
    nudge: Callable[[], Any],
) -> Callable[[str], int]:
    """A `reach` that waits for the capture to publish; `after` is an index known to be before any new cut.

    `nudge` makes an idle upstream's log advance, so that the position is reached even if nobody writes.
    """

    def reach(position: str) -> int:
        nudge()
        deadline = time.monotonic() + timeout_s
        while True:
            with meta.read() as c:
                info = connections.get(c, connection_id)
                if number(info.position) >= number(position):
                    found = segments.in_range(c, connection_id, after, info.committed_index)
                    break
            if info.state is ConnectionState.FAILED and info.error:
                raise restored(info.error)  # its capture will not get there until somebody fixes it
            if time.monotonic() > deadline:
                raise SourceError(
                    "source.disconnected",
                    f"the changelog of {info.name} did not reach {position} within {timeout_s:.0f} s",
                    "Check SHOW CONNECTIONS; a comparison needs a running capture.",
                )
            time.sleep(REACH_POLL_S)
        return index_at(read_transactions(storage, [s.path for s in found]), number(position), after)

    return reach


def _table(batches: list[pa.RecordBatch], columns: Sequence[Column], key: Sequence[str]) -> pa.Table:
    if batches:
        return pa.Table.from_batches(batches)
    return pa.table({**{k: [] for k in key}, HASH: []})
