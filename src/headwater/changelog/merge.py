"""Merges small, old segments into few large ones: the same changes under the same indexes, in one file.

A capture publishes a segment every quarter of a second: thousands of files and meta rows per hour, which would slow
every query down. A merged segment has, per table and schema version, batches of bounded size, so a reader of its last
changes does not unpack all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import sqlalchemy as sa

from headwater import crash
from headwater.changelog import reader, segment
from headwater.errors import HeadwaterError
from headwater.meta import merged, segments
from headwater.meta.merged import Aged
from headwater.meta.store import Meta
from headwater.model import Op, Part, Segment
from headwater.ownership.lease import Lease
from headwater.settings.table import DEFAULTS
from headwater.storage import Storage

LEAST = 16  # fewer are not worth a file, unless their period is over
MOST = 2_000  # per merge; one meta transaction replaces them
GROWTH = 3  # a segment this many times larger than what follows it is left alone: each change is rarely copied
PERIOD_S = 3600.0  # a merged segment holds changes of one such period: retention removes whole segments
PART_CHANGES = 25_000  # a reader unpacks whole batches
PART_BYTES = 8 << 20
HELD_BYTES = 64 << 20  # buffered in memory, over all tables


def plan(found: Sequence[Aged], now: float, most_bytes: int = DEFAULTS.segment_bytes) -> tuple[int, int] | None:
    """The index range of the segments to merge, or None; `found` is in index order."""
    for stretch in _stretches(found, most_bytes):
        over = _period(stretch[0].created_at) < _period(now)
        least = 2 if over else LEAST
        for end in range(len(stretch), 0, -1):
            start = _start(stretch, end, most_bytes)
            total = sum(s.bytes for s in stretch[start:end])
            if end - start >= least or (end - start >= 2 and total >= most_bytes // 2):
                return stretch[start].first_index, stretch[end - 1].last_index
    return None


def _stretches(found: Sequence[Aged], most_bytes: int) -> Iterator[list[Aged]]:
    """Runs of neighbours in one period that are not large enough yet."""
    stretch: list[Aged] = []
    for s in found:
        small = s.bytes < most_bytes // 2
        if stretch and not (
            small
            and s.first_index == stretch[-1].last_index + 1
            and _period(s.created_at) == _period(stretch[-1].created_at)
        ):
            yield stretch
            stretch = []
        if small:
            stretch.append(s)
    if stretch:
        yield stretch


def _start(stretch: Sequence[Aged], end: int, most_bytes: int) -> int:
    """Where a merged segment that ends before `end` begins."""
    start, total = end - 1, stretch[end - 1].bytes
    while start > 0 and end - start < MOST:
        before = stretch[start - 1].bytes
        if before >= GROWTH * total or total + before > most_bytes:
            break
        start, total = start - 1, total + before
    return start


def _period(at: float) -> int:
    return int(at // PERIOD_S)


def merge_once(
    meta: Meta,
    storage: Storage,
    connection_id: int,
    lease: Lease,
    *,
    now: float,
    age_s: float,
    most_bytes: int = DEFAULTS.segment_bytes,
) -> Segment | None:
    """Replaces the segments that are due with one; None if none are. Call it repeatedly until then.

    Only segments older than `age_s` and at or below the committed index are merged, so no capture touches them. The old
    files stay for readers that have already picked them. A crash before the transaction leaves a file that the sweep
    deletes.
    """
    with meta.read() as c:
        due = plan(merged.aged(c, connection_id, now - age_s), now, most_bytes)
        old = [] if due is None else segments.between(c, connection_id, *due)
    if not old:
        return None
    with lease.under_way.writing(segment.folder(connection_id)):
        return _replace(meta, storage, lease, old)


def _replace(meta: Meta, storage: Storage, lease: Lease, old: Sequence[Segment]) -> Segment | None:
    path = segment.new_merged_path(old[0].connection_id, old[0].first_index, old[-1].last_index, lease.permit)
    new = write(storage, path, old)
    try:
        crash.here("segments.merged")
        with meta.owned(lease) as c:
            done = merged.replace(c, old, new)
    except BaseException:
        _remove_unpublished(meta, storage, new)
        raise
    if not done:  # removed meanwhile: by retention, or with its connection
        storage.remove([path])
        return None
    return new


def _remove_unpublished(meta: Meta, storage: Storage, new: Segment) -> None:
    """Removes a merged segment's file, unless the replacement was committed although its response was an error."""
    with suppress(OSError, HeadwaterError, sa.exc.SQLAlchemyError):  # the first error counts; the sweep deletes it
        with meta.write() as c:  # a write waits until a COMMIT still in progress has ended
            known = new.path in merged.paths(c, new.connection_id)
        if not known:
            storage.remove([new.path])


def write(storage: Storage, path: str, old: Sequence[Segment]) -> Segment:
    """Writes consecutive segments as one, durable on return; memory does not depend on their number."""
    with storage.create(path) as f:
        with pa.ipc.new_file(f, segment.SCHEMA, options=segment.OPTIONS) as file:
            parts = _Parts(file)
            transactions = []
            for s in old:
                opened = reader.open_file(storage, s.path)
                for part in s.parts:
                    parts.add(part, opened.get_batch(part.batch))
                transactions.append(opened.get_batch(opened.num_record_batches - 1))
            parts.flush()
            file.write_batch(pa.concat_batches(transactions))
        size = f.tell()
    return Segment(
        connection_id=old[0].connection_id,
        first_index=old[0].first_index,
        last_index=old[-1].last_index,
        committed_index=old[-1].committed_index,
        path=path,
        bytes=size,
        txn_min=min(s.txn_min for s in old),
        txn_max=max(s.txn_max for s in old),
        parts=tuple(parts.written),
    )


@dataclass(slots=True)
class _Waiting:
    batches: list[pa.RecordBatch] = field(default_factory=list)
    changes: int = 0
    bytes: int = 0


@dataclass(slots=True)
class _Parts:
    """Collects batches by table and schema version and writes them in bounded pieces."""

    file: pa.ipc.RecordBatchFileWriter
    written: list[Part] = field(default_factory=list)
    _waiting: dict[tuple[int, int], _Waiting] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, part: Part, batch: pa.RecordBatch) -> None:
        of = (part.upstream_id, part.schema_id)
        for piece in _pieces(batch):
            waiting = self._waiting.setdefault(of, _Waiting())
            full = waiting.changes + len(piece) > PART_CHANGES or waiting.bytes + piece.nbytes > PART_BYTES
            if full and waiting.batches:
                self._write(of)
                waiting = self._waiting.setdefault(of, _Waiting())
            waiting.batches.append(piece)
            waiting.changes += len(piece)
            waiting.bytes += piece.nbytes
            self._bytes += piece.nbytes
            if self._bytes > HELD_BYTES:
                self.flush()

    def flush(self) -> None:
        """Writes what is buffered."""
        for of in list(self._waiting):
            self._write(of)

    def _write(self, of: tuple[int, int]) -> None:
        waiting = self._waiting.pop(of)
        self._bytes -= waiting.bytes
        batch = pa.concat_batches(waiting.batches)
        index, op = batch.column(0), batch.column(1).to_numpy()
        truncates = int(np.count_nonzero(op == Op.TRUNCATE))
        number = len(self.written)
        self.file.write_batch(batch)
        self.written.append(Part(*of, number, len(batch), index[0].as_py(), index[-1].as_py(), truncates))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about the bounded size; a single row may be larger."""
    count = max(-(-len(batch) // PART_CHANGES), -(-batch.nbytes // PART_BYTES), 1)
    rows = max(-(-len(batch) // count), 1)
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)
