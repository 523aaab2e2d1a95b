"""Reads published segments: one table's raw changes in an index range, and the transactions around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.changelog import segment
from headwater.errors import DataError
from headwater.model import Part
from headwater.storage import Storage

RAW = segment.SCHEMA.append(pa.field("schema_id", pa.int64(), False))
TRANSACTIONS = pa.schema(
    [
        pa.field(name, pa.int64(), False)
        for name in ("last_index", "txn", "commit", "commit_time_us", "first_index", "changes")
    ]
)


@dataclass(frozen=True, slots=True)
class Limit:
    """How much of a changelog is read at once."""

    changes: int
    bytes: int  # of raw messages; a single larger one is read anyway


def read_table(storage: Storage, pieces: list[tuple[str, Part]], after: int, upto: int) -> pa.Table:
    """One table's changes in (after, upto] in index order: index, op, txn, payload, schema_id.

    `pieces` are what `meta.segments.of_table` returns, in its order; only their own batches are read.
    """
    return pa.Table.from_batches(_batches(storage, pieces, after, upto), schema=RAW)


def read_slices(
    storage: Storage, pieces: list[tuple[str, Part]], after: int, upto: int, limit: Limit
) -> Iterator[tuple[int, pa.Table]]:
    """The same in slices of bounded size: (last index of the slice, its changes). The last one ends at `upto`.

    A slice may end inside a transaction.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _batches(storage, pieces, after, upto):
        while batch.num_rows:
            taken = min(batch.num_rows, limit.changes - rows, _fitting(batch, limit.bytes - size) or (0 if rows else 1))
            if taken:
                waiting.append(batch.slice(0, taken))
                rows, size = rows + taken, size + waiting[-1].nbytes
                batch = batch.slice(taken)
            if batch.num_rows:  # it did not fit
                yield int(waiting[-1].column(0)[-1].as_py()), pa.Table.from_batches(waiting, schema=RAW)
                waiting, rows, size = [], 0, 0
    yield upto, pa.Table.from_batches(waiting, schema=RAW)


def _batches(storage: Storage, pieces: list[tuple[str, Part]], after: int, upto: int) -> Iterator[pa.RecordBatch]:
    for path, part in pieces:
        batch = open_file(storage, path).get_batch(part.batch)
        index = batch.column(0).to_numpy()
        first, last = (int(i) for i in np.searchsorted(index, [after, upto], side="right"))
        if first < last:
            ids = pa.array(np.full(last - first, part.schema_id, np.int64))
            yield pa.record_batch([*batch.slice(first, last - first).columns, ids], schema=RAW)


def _fitting(batch: pa.RecordBatch, room: int) -> int:
    """About how many of a batch's changes fit into `room` bytes."""
    return int(max(room, 0) * batch.num_rows // max(batch.nbytes, 1))


def read_transactions(storage: Storage, paths: Iterable[str]) -> pa.Table:
    """The transactions that these segments complete, in commit order; `commit_time_us` counts from 2000-01-01 UTC."""
    batches = [_transactions(open_file(storage, path)) for path in paths]
    return pa.Table.from_batches(batches, schema=TRANSACTIONS)


def index_at(transactions: pa.Table, position: int, after: int) -> int:
    """The last index of the last transaction whose commit ends at or before a position; `after` if there is none."""
    ends = transactions["commit"].to_numpy()
    last = transactions["last_index"].to_numpy()[ends <= position]
    return max(int(last.max(initial=after)), after)


def _transactions(file: pa.ipc.RecordBatchFileReader) -> pa.RecordBatch:
    batch = file.get_batch(file.num_record_batches - 1)
    payload = batch.column(3)
    begin = payload.offset * segment.TRANSACTION.itemsize
    packed = np.frombuffer(payload.buffers()[2] or b"", segment.TRANSACTION, len(batch), begin)
    return pa.record_batch(
        [
            batch.column(0),
            batch.column(2),
            *(
                pa.array(packed[name].astype(np.int64))
                for name in ("commit", "commit_time_us", "first_index", "changes")
            ),
        ],
        schema=TRANSACTIONS,
    )


def open_file(storage: Storage, path: str) -> pa.ipc.RecordBatchFileReader:
    """A segment's batches; an error with a hint if the file is gone or damaged."""
    try:
        return pa.ipc.open_file(storage.open(path))
    except FileNotFoundError as e:
        raise DataError(
            "data.history_missing",
            f"the changelog's file {path} is gone",
            "Restore it from a backup of the home, or RESYNC TABLE.",
        ) from e
    except pa.ArrowInvalid as e:
        raise DataError(
            "data.history_missing",
            f"the changelog's file {path} is damaged",
            "Restore it from a backup of the home, or RESYNC TABLE.",
        ) from e
