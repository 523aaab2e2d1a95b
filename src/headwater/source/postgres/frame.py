"""Frames PostgreSQL log messages: where each row message is, its table and its transaction. Values stay raw.

A message is a replication message (`w` data with a 25-byte header, `k` keepalive) around a pgoutput message, protocol
version 1 (`B` begin, `C` commit, `R` relation, `I U D T` rows; `Y O M` are ignored here). All numbers are
big-endian.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.kernel import kernel
from headwater.model import LogColumn, Op
from headwater.source.base import Bytes, Longs
from headwater.source.frames import Boundary, Described, FramedTo, Frames, Memory, Ops, Transactions
from headwater.source.postgres.client.session import int_to_lsn, lsn_to_int

HEADER = 25
_W, _K = ord("w"), ord("k")
_B, _C, _R = ord("B"), ord("C"), ord("R")
_I, _U, _D, _T = ord("I"), ord("U"), ord("D"), ord("T")
_INSERT, _UPDATE, _DELETE, _TRUNCATE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE), int(Op.TRUNCATE)


class PostgresFraming:
    """`source.frames.Framing` for a replication slot's messages. `next_txn` is the server's next transaction number."""

    def __init__(self, next_txn: int = 0) -> None:
        self._next_txn = next_txn

    def begin(self, position: str, next_index: int, last_txn: int) -> FramedTo:
        # an upstream that wrote nothing for us for 2^31 transactions still needs a reference in this half of the ring
        return FramedTo(next_index, position, max(last_txn, self._next_txn - 1))

    def number(self, position: str) -> int:
        return lsn_to_int(position)

    def boundary(self, data: Bytes, lengths: Longs, open: bool) -> Boundary:
        return Boundary(*(int(v) for v in _boundary(data, lengths, open)))

    def end(self, data: Bytes, lengths: Longs, open: bool, position: int, time_us: int) -> int:
        return int(_end(data, lengths, open, position, time_us))

    def frame(self, data: Bytes, lengths: Longs, before: FramedTo, memory: Memory) -> tuple[Frames, FramedTo]:
        """Asks nothing of the home: the publication already holds exactly the followed tables."""
        return frame(data, lengths, before)


def frame(data: Bytes, lengths: Longs, before: FramedTo) -> tuple[Frames, FramedTo]:
    """The rows, transactions and relations of a batch, and the state of framing after it."""
    rows, commits, relations = (int(n) for n in _count(data, lengths))
    op = np.empty(rows, np.int8)
    longs = np.empty((4, rows), np.int64)  # txn, upstream id, start, length
    completed = np.empty((5, commits), np.int64)
    described = np.empty((3, relations), np.int64)
    state = np.array(
        [
            *(before.next_index, before.last_txn, lsn_to_int(before.position)),
            *(before.open, before.txn, before.first_index),
        ],
        np.int64,
    )
    kept = int(_walk(data, lengths, state, op, longs, completed, described))
    after = replace(
        before,
        next_index=int(state[0]),
        last_txn=int(state[1]),
        position=int_to_lsn(int(state[2])),
        open=bool(state[3]),
        txn=int(state[4]),
        first_index=int(state[5]),
    )
    frames = Frames(
        data=data,
        first_index=before.next_index,
        op=op,
        txn=longs[0],
        upstream_id=longs[1],
        start=longs[2],
        length=longs[3],
        transactions=Transactions(*(completed[i, :kept] for i in range(5))),
        relations=tuple(
            parse_relation(data[start : start + length].tobytes(), row) for row, start, length in described.T.tolist()
        ),
    )
    return frames, after


def parse_relation(message: bytes, row: int = 0) -> Described:
    """A relation message as a value. Plain Python, because it is rare."""
    at = 5
    names = []
    for _ in range(2):
        end = message.index(0, at)
        names.append(message[at:end].decode())
        at = end + 1
    identity = chr(message[at])
    count = int.from_bytes(message[at + 1 : at + 3], "big")
    at += 3
    columns = []
    for _ in range(count):
        end = message.index(0, at + 1)
        name = message[at + 1 : end].decode()
        type_oid = int.from_bytes(message[end + 1 : end + 5], "big")
        modifier = int.from_bytes(message[end + 5 : end + 9], "big", signed=True)
        columns.append(LogColumn(name, type_oid, modifier, bool(message[at] & 1)))
        at = end + 9
    # the log sends an empty name for pg_catalog
    schema = names[0] or "pg_catalog"
    return Described(row, int.from_bytes(message[1:5], "big"), schema, names[1], identity, tuple(columns))


@kernel("int64(int64, int64)")
def widen(xid: int, reference: int) -> int:
    """The 64-bit transaction number nearest to `reference` that ends in the 32-bit `xid`."""
    distance = (xid - reference) & 0xFFFFFFFF
    if distance >= 0x80000000:
        distance -= 0x100000000
    return reference + distance


@kernel("int64(uint8[::1], int64)")
def _u32(data: Bytes, at: int) -> int:
    value = 0
    for i in range(4):
        value = (value << 8) | int(data[at + i])
    return value


@kernel("int64(uint8[::1], int64)")
def _i64(data: Bytes, at: int) -> int:
    return (_u32(data, at) << 32) | _u32(data, at + 4)


@kernel("int64(uint8[::1], int64[::1], boolean, int64, int64)")
def _end(data: Bytes, lengths: Longs, open: bool, position: int, time_us: int) -> int:
    at = 0
    for i in range(len(lengths)):
        if data[at] == _W:
            kind = data[at + HEADER]
            if kind == _B:  # has the place and time of its transaction's commit
                committed, moment = _i64(data, at + HEADER + 1), _i64(data, at + HEADER + 9)
                if (position > 0 and committed >= position) or (time_us > 0 and moment > time_us):
                    return i
                open = True
            elif kind == _C:
                open = False
        elif data[at] == _K and not open and position > 0 and _i64(data, at + 1) >= position:
            return i + 1
        at += lengths[i]
    return -1


@kernel("UniTuple(int64, 6)(uint8[::1], int64[::1], boolean)")
def _boundary(data: Bytes, lengths: Longs, open: bool) -> tuple[int, int, int, int, int, int]:
    at = whole = whole_bytes = piece = piece_bytes = commits = position = rows = 0
    for i in range(len(lengths)):
        after = at + lengths[i]
        if data[at] == _W:
            kind = data[at + HEADER]
            if kind == _B:
                open = True
            elif kind == _C:
                open = False
                commits += 1
                whole = i + 1
                whole_bytes = after
                rows = 0
            elif kind in (_I, _U, _D, _T):
                if rows > 0:
                    piece = i
                    piece_bytes = at
                rows += 1
        elif data[at] == _K and not open:
            whole = i + 1
            whole_bytes = after
            position = _i64(data, at + 1)
        at = after
    return whole, whole_bytes, piece, piece_bytes, commits, position


@kernel("UniTuple(int64, 3)(uint8[::1], int64[::1])")
def _count(data: Bytes, lengths: Longs) -> tuple[int, int, int]:
    at = rows = commits = relations = 0
    for i in range(len(lengths)):
        if data[at] == _W:
            kind = data[at + HEADER]
            if kind in (_I, _U, _D):
                rows += 1
            elif kind == _T:
                rows += _u32(data, at + HEADER + 1)
            elif kind == _C:
                commits += 1
            elif kind == _R:
                relations += 1
        at += lengths[i]
    return rows, commits, relations


@kernel("int64(uint8[::1], int64[::1], int64[::1], int8[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1])")
def _walk(data: Bytes, lengths: Longs, state: Longs, op: Ops, longs: Longs, completed: Longs, described: Longs) -> int:
    next_index, last_txn, position, open, txn, first_index = state
    at = row = kept = relations = 0
    for i in range(len(lengths)):
        if data[at] == _K:
            if not open:
                position = max(position, _i64(data, at + 1))
            at += lengths[i]
            continue
        body = at + HEADER
        size = lengths[i] - HEADER
        kind = data[body] if data[at] == _W else 0
        if kind in (_I, _U, _D):
            op[row] = _INSERT if kind == _I else _UPDATE if kind == _U else _DELETE
            longs[0, row] = txn
            longs[1, row] = _u32(data, body + 1)
            longs[2, row] = body
            longs[3, row] = size
            row += 1
            next_index += 1
        elif kind == _T:  # one change for each table that it empties
            for table in range(_u32(data, body + 1)):
                op[row] = _TRUNCATE
                longs[0, row] = txn
                longs[1, row] = _u32(data, body + 6 + 4 * table)
                longs[2, row] = body
                longs[3, row] = size
                row += 1
                next_index += 1
        elif kind == _B:
            txn = widen(_u32(data, body + 17), last_txn)
            last_txn = txn
            first_index = next_index
            open = 1
        elif kind == _C:
            position = max(position, _i64(data, body + 10))
            if next_index > first_index:
                completed[0, kept] = txn
                completed[1, kept] = _i64(data, body + 10)
                completed[2, kept] = _i64(data, body + 18)
                completed[3, kept] = first_index
                completed[4, kept] = next_index - 1
                kept += 1
            open = 0
        elif kind == _R:
            described[0, relations] = row
            described[1, relations] = body
            described[2, relations] = size
            relations += 1
        at += lengths[i]
    state[0] = next_index
    state[1] = last_txn
    state[2] = position
    state[3] = open
    state[4] = txn
    state[5] = first_index
    return kept
