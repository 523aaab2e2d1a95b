"""Where transactions begin and end among messages: all that splitting a flow needs to know."""

from __future__ import annotations

import numpy as np

from headwater.kernel import kernel
from headwater.source.base import Bytes, Longs
from headwater.source.mysql.binlog import events as ev

BODY = ev.BODY
OUTSIDE, INSIDE, EXPECTING = ev.OUTSIDE, ev.INSIDE, ev.EXPECTING
OTHER, BEGIN, COMMIT, ROLLBACK, XA_START, XA_END = 0, 1, 2, 3, 4, 5  # what a QUERY event's text is

_TYPE = ev.NUMBER_BYTES + ev.TYPE
_SIZE = ev.NUMBER_BYTES + ev.SIZE
_QUERY, _XID, _XA_PREPARE, _INCIDENT, _FORMAT = ev.QUERY, ev.XID, ev.XA_PREPARE, ev.INCIDENT, ev.FORMAT_DESCRIPTION
_GTID, _ANONYMOUS, _TAGGED, _MARIA = ev.GTID, ev.ANONYMOUS_GTID, ev.GTID_TAGGED, ev.MARIA_GTID
_STANDALONE, _COMPLETED_XA = ev.STANDALONE, ev.COMPLETED_XA
_EPOCH_US = ev.EPOCH_US

# words of up to eight letters as numbers
_BEGIN = int.from_bytes(b"BEGIN", "little")
_COMMIT = int.from_bytes(b"COMMIT", "little")
_ROLLBACK = int.from_bytes(b"ROLLBACK", "little")
_XA_START = int.from_bytes(b"XA START", "little")
_XA_END = int.from_bytes(b"XA END", "little")


@kernel("int64(uint8[::1], int64, int64)")
def number(data: Bytes, at: int, size: int) -> int:
    """A little-endian number of `size` bytes. Unsigned indexes need no check for negative values."""
    first = np.uint64(at)
    value = 0
    for i in range(np.uint64(size)):
        value |= int(data[first + i]) << (8 * int(i))
    return value


@kernel("boolean(uint8[::1], int64, int64, int64, int64)")
def _starts(data: Bytes, at: int, end: int, word: int, size: int) -> bool:
    return end - at >= size and number(data, at, size) == word


@kernel("int64(uint8[::1], int64)")
def query_text(data: Bytes, at: int) -> int:
    """Where the text of the QUERY event in the message at `at` begins."""
    body = at + BODY
    return body + 13 + number(data, body + 11, 2) + int(data[body + 8]) + 1


@kernel("int64(uint8[::1], int64, int64)")
def query_kind(data: Bytes, at: int, end: int) -> int:
    """The kind of a QUERY event's text, as far as transactions are concerned: the server writes these texts itself."""
    text = query_text(data, at)
    size = end - text
    if size == 5 and _starts(data, text, end, _BEGIN, 5):
        return BEGIN
    if size == 6 and _starts(data, text, end, _COMMIT, 6):
        return COMMIT
    if size == 8 and _starts(data, text, end, _ROLLBACK, 8):
        return ROLLBACK
    if _starts(data, text, end, _XA_START, 8):
        return XA_START
    if _starts(data, text, end, _XA_END, 6):
        return XA_END
    return OTHER


@kernel("boolean(int64)")
def begins(kind: int) -> bool:
    """Whether an event begins a group."""
    return kind in (_GTID, _ANONYMOUS, _TAGGED, _MARIA)


@kernel("int64(uint8[::1], int64, int64)")
def first_state(data: Bytes, at: int, kind: int) -> int:
    """The state of a group after its first event: only MariaDB's says whether a COMMIT will end it."""
    if kind != _MARIA:
        return EXPECTING
    flags = int(data[at + BODY + 12])
    return EXPECTING if flags & (_STANDALONE | _COMPLETED_XA) else INSIDE


@kernel("int64(uint8[::1], int64, int64, int64, int64)")
def next_state(data: Bytes, at: int, end: int, kind: int, state: int) -> int:
    """The state of the log after a message."""
    if begins(kind):
        return first_state(data, at, kind)
    if kind in (_XID, _XA_PREPARE, _FORMAT):
        return OUTSIDE
    if kind == _QUERY:
        text = query_kind(data, at, end)
        if text in (BEGIN, XA_START):
            return INSIDE
        if text in (COMMIT, ROLLBACK) or state == EXPECTING:
            return OUTSIDE
    if kind == _INCIDENT and state == EXPECTING:
        return OUTSIDE
    return state


@kernel("int64(uint8[::1], int64, int64, int64)")
def begin_time_us(data: Bytes, at: int, end: int, kind: int) -> int:
    """When a group committed, in microseconds since 2000, if its first event says so; otherwise 0."""
    if (kind in (_GTID, _ANONYMOUS)) and end - at >= BODY + 42 + 7:
        return (number(data, at + BODY + 42, 7) & 0x7FFFFFFFFFFFFF) - _EPOCH_US
    return 0


@kernel("int64(uint8[::1], int64)")
def header_time_us(data: Bytes, at: int) -> int:
    """A header's time, in whole seconds."""
    return number(data, at + 8, 4) * 1_000_000 - _EPOCH_US


@kernel("UniTuple(int64, 6)(uint8[::1], int64[::1], boolean)")
def find_boundary(data: Bytes, lengths: Longs, open: bool) -> tuple[int, int, int, int, int, int]:
    """See `source.frames.Boundary`. A transaction may be split anywhere inside: framing holds a row back."""
    at = whole = whole_bytes = piece = piece_bytes = ends = position = 0
    state = INSIDE if open else OUTSIDE
    for i in range(len(lengths)):
        after = at + lengths[i]
        before = state
        kind = int(data[at + _TYPE])
        state = next_state(data, at, after, kind, state)
        if state == OUTSIDE:
            whole = i + 1
            whole_bytes = after
            ends_at = number(data, at, 8)
            if ends_at > position:
                position = ends_at
            if before != OUTSIDE:
                ends += 1
        elif state == INSIDE:
            piece = i + 1
            piece_bytes = after
        at = after
    return whole, whole_bytes, piece, piece_bytes, ends, position


@kernel("int64(uint8[::1], int64[::1], boolean, int64, int64)")
def find_end(data: Bytes, lengths: Longs, open: bool, position: int, time_us: int) -> int:
    """See `source.frames.Framing.end`."""
    at = began = 0
    state = INSIDE if open else OUTSIDE
    known = not open  # the open transaction's beginning is among these messages
    for i in range(len(lengths)):
        after = at + lengths[i]
        kind = int(data[at + _TYPE])
        ends_at = number(data, at, 8)
        if begins(kind):
            began = i
            known = True
            moment = begin_time_us(data, at, after, kind)
            if moment == 0:
                moment = header_time_us(data, at)
            if position > 0 and ends_at - number(data, at + _SIZE, 4) >= position:
                return i
            if time_us > 0 and moment > time_us:
                return i
        before = state
        state = next_state(data, at, after, kind, state)
        if state == OUTSIDE and position > 0 and ends_at >= position:
            return began if before != OUTSIDE and known and ends_at > position else i + 1
        at = after
    return -1
