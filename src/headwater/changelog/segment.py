"""The segment file: one Arrow IPC file of compressed record batches.

Each batch but the last holds one table's changes under one schema version, in index order; the last holds the
transactions that the segment completes (`op` 0, `index` = the transaction's last, payload = `TRANSACTION`). Meta
records which batch belongs to which table (`model.Part`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater import crash
from headwater.errors import JobError
from headwater.kernel import kernel
from headwater.model import Op
from headwater.ownership.permit import Permit
from headwater.source.base import Bytes, Longs
from headwater.source.frames import Described, Frames, Ops, Transactions
from headwater.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64(), False),
        pa.field("op", pa.int8(), False),
        pa.field("txn", pa.int64(), False),
        pa.field("payload", pa.binary(), False),
    ]
)
TRANSACTION = np.dtype(
    [("commit", "<u8"), ("commit_time_us", "<i8"), ("first_index", "<i8"), ("changes", "<u4")]
)  # packed: 28 bytes; the time counts from 2000-01-01 UTC

Offsets = np.ndarray[Any, np.dtype[np.int32]]

OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)  # the other core is the upstream's reader


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a batch that one table wrote under one row description."""

    relation: Described
    rows: Longs  # row numbers in the batch, ascending
    first_index: int
    last_index: int
    truncates: int


def folder(connection_id: int) -> str:
    """The folder of a connection's segments, relative to the home."""
    return f"changelog/{connection_id}"


def new_path(connection_id: int, first_index: int, permit: Permit) -> str:
    """A new path for each attempt at a segment: an earlier one may be published although its response was lost."""
    return f"{folder(connection_id)}/{permit.new_file(f'{first_index:020d}', 'arrow')}"


def new_merged_path(connection_id: int, first_index: int, last_index: int, permit: Permit) -> str:
    """A path for a merged segment, with the server's fence and not the capture's."""
    return f"{folder(connection_id)}/{permit.new_file(f'merged-{first_index:020d}-{last_index:020d}', 'arrow')}"


def is_merged(path: str) -> bool:
    """Whether the file was written by a merge, not by a capture."""
    return path.rsplit("/", 1)[-1].startswith("merged-")


def group(frames: Frames, known: dict[int, Described]) -> list[Group]:
    """The rows by table and relation message; `known` are the tables described in earlier batches of this flow."""
    sent: dict[int, list[Described]] = {}
    for relation in frames.relations:
        sent.setdefault(relation.upstream_id, []).append(relation)
    groups = []
    for table, rows in _by_table(frames.upstream_id):
        versions = _versions(table, sent.get(table, []), known)
        cuts = np.searchsorted(rows, [v.row for v in versions[1:]])
        for relation, part in zip(versions, np.split(rows, cuts), strict=True):
            groups += [_group(frames, relation, piece) for piece in _pieces(frames.length[part], part) if len(piece)]
    return sorted(groups, key=lambda g: g.first_index)


def _by_table(upstream_id: Longs) -> list[tuple[int, Longs]]:
    """Each table's row numbers, ascending. Most batches of a bulk load have one table, and nothing to sort."""
    if len(upstream_id) and (upstream_id == upstream_id[0]).all():
        return [(int(upstream_id[0]), np.arange(len(upstream_id)))]
    order = np.argsort(upstream_id, kind="stable")
    tables, starts = np.unique(upstream_id[order], return_index=True)
    return list(zip(tables.tolist(), np.split(order, starts[1:]), strict=True))


def _versions(table: int, sent: list[Described], known: dict[int, Described]) -> list[Described]:
    """A table's relation messages, without repetitions."""
    versions = [known[table]] if table in known else []
    for relation in sent:
        if not versions or not same(versions[-1], relation):
            versions.append(relation)
    if not versions:
        raise JobError("job.failed", f"the log sent rows of table {table} without describing it")
    return versions


def _pieces(lengths: Longs, rows: Longs) -> list[Longs]:
    """The rows in runs of at most 1 GB and one message: a batch's offsets are 32-bit, and a row may have 1 GB."""
    if lengths.sum() < 1 << 30:
        return [rows]
    return np.split(rows, np.flatnonzero(np.diff(np.cumsum(lengths) >> 30)) + 1)


def same(a: Described, b: Described) -> bool:
    """Whether both describe rows in the same way."""
    return (a.schema, a.table, a.identity, a.columns, a.broken) == (b.schema, b.table, b.identity, b.columns, b.broken)


def _group(frames: Frames, relation: Described, rows: Longs) -> Group:
    truncates = int(np.count_nonzero(frames.op[rows] == Op.TRUNCATE))
    first, last = frames.first_index + int(rows[0]), frames.first_index + int(rows[-1])
    return Group(relation, rows, first, last, truncates)


def changes_batch(frames: Frames, rows: Longs) -> pa.RecordBatch:
    """One table's rows as a record batch; payloads are copied, so the inbox can be refilled."""
    offsets, payload = _gather(frames.data, frames.start, frames.length, rows)
    return _batch(rows + frames.first_index, frames.op[rows], frames.txn[rows], offsets, payload)


def transactions_batch(done: Transactions) -> pa.RecordBatch:
    """The completed transactions as a record batch."""
    packed = np.empty(len(done), TRANSACTION)
    packed["commit"] = done.commit
    packed["commit_time_us"] = done.commit_time_us
    packed["first_index"] = done.first_index
    packed["changes"] = done.last_index - done.first_index + 1
    offsets = np.arange(len(done) + 1, dtype=np.int32) * TRANSACTION.itemsize
    payload = np.frombuffer(packed.tobytes(), np.uint8)
    return _batch(done.last_index, np.zeros(len(done), np.int8), done.txn, offsets, payload)


def write(storage: Storage, path: str, batches: list[pa.RecordBatch]) -> int:
    """Writes a segment; it is durable on return. Returns its size in bytes."""
    with storage.create(path) as f:
        with pa.ipc.new_file(f, SCHEMA, options=OPTIONS) as writer:
            for batch in batches:
                writer.write_batch(batch)
                crash.here("segment.torn")
        return f.tell()


def _batch(index: Longs, op: Ops, txn: Longs, offsets: Offsets, payload: Bytes) -> pa.RecordBatch:
    """A record batch over these very arrays. `pa.array` would import pandas: a second, and 100 MB."""
    columns: list[tuple[pa.DataType, Longs | Ops]] = [(pa.int64(), index), (pa.int8(), op), (pa.int64(), txn)]
    numbers = [
        pa.Array.from_buffers(type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
        for type, values in columns
    ]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    return pa.record_batch([*numbers, pa.Array.from_buffers(pa.binary(), len(index), buffers)], schema=SCHEMA)


@kernel("Tuple((int32[::1], uint8[::1]))(uint8[::1], int64[::1], int64[::1], int64[::1])")
def _gather(data: Bytes, start: Longs, length: Longs, rows: Longs) -> tuple[np.ndarray[Any, np.dtype[np.int32]], Bytes]:
    """The messages of the given rows concatenated, and where each begins. Neighbours are copied together."""
    count = len(rows)
    offsets = np.empty(count + 1, np.int32)
    total = 0
    for i in range(count):
        offsets[i] = total
        total += length[rows[i]]
    offsets[count] = total
    payload = np.empty(total, np.uint8)
    i = 0
    while i < count:
        begin = start[rows[i]]
        end = begin + length[rows[i]]
        to = np.uint64(offsets[i])
        i += 1
        while i < count and start[rows[i]] == end:
            end += length[rows[i]]
            i += 1
        source = np.uint64(begin)
        # unsigned indexes need no check for negative values: whole words are moved
        for k in range(np.uint64(end - begin)):
            payload[to + k] = data[source + k]
    return offsets, payload
