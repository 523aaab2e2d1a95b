"""The walk over a batch's events: rows, transactions and their numbers, as long as nothing new is met.

`walk` stops at anything it does not know (a table not yet described, a statement, a prepared transaction);
framing handles that message and resumes the walk after it.
"""

from __future__ import annotations

import numpy as np

from headwater.kernel import kernel
from headwater.source.base import Bytes, Longs
from headwater.source.frames import Ops
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.groups import (
    BEGIN,
    COMMIT,
    begin_time_us,
    first_state,
    header_time_us,
    number,
    query_kind,
)
from headwater.source.mysql.binlog.images import add_rows, find_ordinal
from headwater.source.mysql.binlog.state import (
    ASIDE,
    AT,
    DAMAGED,
    DESCRIBED,
    DONE,
    FIRST,
    FOLLOWED,
    FULL,
    GNO,
    GROUP,
    KEPT,
    LOOK,
    MAP_LENGTH,
    MAP_START,
    MESSAGE,
    NEXT,
    POSITION,
    RUNS,
    SOURCE,
    SOURCE_BYTES,
    SOURCE_UNKNOWN,
    TIME,
    TXN,
    Ints,
)

BODY = ev.BODY
_TYPE, _SIZE, _SERVER = ev.NUMBER_BYTES + ev.TYPE, ev.NUMBER_BYTES + ev.SIZE, ev.NUMBER_BYTES + ev.SERVER
_QUERY, _XID, _TABLE_MAP, _FORMAT, _LOAD = ev.QUERY, ev.XID, ev.TABLE_MAP, ev.FORMAT_DESCRIPTION, ev.EXECUTE_LOAD_QUERY
_GTID, _ANONYMOUS, _TAGGED, _MARIA = ev.GTID, ev.ANONYMOUS_GTID, ev.GTID_TAGGED, ev.MARIA_GTID
_XA_PREPARE, _INCIDENT, _PARTIAL, _PREPARED_XA = ev.XA_PREPARE, ev.INCIDENT, ev.PARTIAL_UPDATE_ROWS, ev.PREPARED_XA
_OUTSIDE, _INSIDE, _EXPECTING = ev.OUTSIDE, ev.INSIDE, ev.EXPECTING
_EPOCH_US = ev.EPOCH_US


@kernel("UniTuple(int64, 2)(uint8[::1], int64)")
def varlen(data: Bytes, at: int) -> tuple[int, int]:
    """A number in MySQL's serialization (the first byte's low one-bits count further bytes), and its end."""
    first = int(data[at])
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    if more == 8:
        return number(data, at + 1, 8), at + 9
    return number(data, at, more + 1) >> (more + 1), at + more + 1


@kernel("UniTuple(int64, 2)(uint8[::1], int64, int64, uint8[::1])")
def tagged_gtid(data: Bytes, at: int, end: int, source: Bytes) -> tuple[int, int]:
    """A tagged GTID event: fills `source` (length first), and returns the number and the commit time (since 2000)."""
    at += BODY
    _version, at = varlen(data, at)
    _size, at = varlen(data, at)
    _last, at = varlen(data, at)
    gno = moment = 0
    while at < end:
        field, at = varlen(data, at)
        if field == 1:
            for i in range(16):
                value, at = varlen(data, at)
                source[1 + i] = value
        elif field == 3:
            length, at = varlen(data, at)
            source[0] = 16 + length
            for i in range(length):
                source[17 + i] = data[at + i]
            at += length
        else:
            value, at = varlen(data, at)
            if field == 2:
                gno = value >> 1  # signed: the lowest bit is the sign
            elif field == 6:
                moment = value - _EPOCH_US
    return gno, moment


@kernel("int64(uint8[::1], uint8[:, ::1], int64, int64)")
def _find_source(source: Bytes, sources: Bytes, count: int, last: int) -> int:
    for turn in range(count + 1):
        i = last if turn == 0 else turn - 1
        if 0 <= i < count:
            same = True
            for k in range(int(source[0]) + 1):
                if sources[i, k] != source[k]:
                    same = False
                    break
            if same:
                return i
    return -1


@kernel("boolean(int64[::1], int64, int64, int64[:, ::1], int64[:, ::1])")
def complete(s: Longs, position: int, moment: int, done: Longs, runs: Longs) -> bool:
    """Ends the open group at `position`; False if there is no room for it."""
    if s[KEPT] >= done.shape[1] or s[RUNS] >= runs.shape[1]:
        return False
    if s[NEXT] > s[FIRST]:
        kept = s[KEPT]
        done[0, kept] = s[TXN]
        done[1, kept] = position
        done[2, kept] = s[TIME] if s[TIME] != 0 else moment
        done[3, kept] = s[FIRST]
        done[4, kept] = s[NEXT] - 1
        s[KEPT] += 1
    if s[SOURCE] >= 0:
        last = s[RUNS] - 1
        if last >= 0 and runs[0, last] == s[SOURCE] and runs[2, last] + 1 == s[GNO]:
            runs[2, last] = s[GNO]
        else:
            runs[0, s[RUNS]] = s[SOURCE]
            runs[1, s[RUNS]] = s[GNO]
            runs[2, s[RUNS]] = s[GNO]
            s[RUNS] += 1
    s[GROUP] = _OUTSIDE
    s[SOURCE] = -1
    s[TIME] = 0
    s[ASIDE] = 0
    if position > s[POSITION]:
        s[POSITION] = position
    return True


@kernel("int64(uint8[::1], int64, int64, int64, int64[::1], uint8[:, ::1], int64, uint8[::1])")
def _begin(data: Bytes, at: int, end: int, kind: int, s: Longs, sources: Bytes, count: int, source: Bytes) -> int:
    """Begins a group; -1 if its source is not among the known ones."""
    gno = moment = 0
    for i in range(SOURCE_BYTES):
        source[i] = 0
    if kind == _GTID:
        source[0] = 16
        for i in range(16):
            source[1 + i] = data[at + BODY + 1 + i]
        gno = number(data, at + BODY + 17, 8)
    elif kind == _MARIA:
        source[0] = 8
        for i in range(4):
            source[1 + i] = data[at + BODY + 8 + i]
            source[5 + i] = data[at + _SERVER + i]
        gno = number(data, at + BODY, 8)
    elif kind == _TAGGED:
        gno, moment = tagged_gtid(data, at, end, source)
    if kind != _TAGGED:
        moment = begin_time_us(data, at, end, kind)
    found = -1
    if kind != _ANONYMOUS:
        found = _find_source(source, sources, count, 0)
        if found < 0:
            return -1
    s[SOURCE] = found
    s[GNO] = gno
    s[TIME] = moment
    s[TXN] = number(data, at, 8) - number(data, at + _SIZE, 4)
    s[FIRST] = s[NEXT]
    s[GROUP] = first_state(data, at, kind)
    s[ASIDE] = 1 if kind == _MARIA and int(data[at + BODY + 12]) & _PREPARED_XA else 0
    return 0


@kernel("boolean(uint8[::1], int64, int64, int64[::1], int64[::1], int64[:, ::1], uint8[::1])")
def _known_map(data: Bytes, at: int, end: int, keys: Longs, ordinals: Longs, info: Longs, maps: Bytes) -> bool:
    """Whether a table map repeats a known one (already described, if anybody follows the table)."""
    ordinal = find_ordinal(number(data, at + BODY, 6), keys, ordinals)
    if ordinal < 0 or (info[ordinal, FOLLOWED] and not info[ordinal, DESCRIBED]):
        return False
    length = info[ordinal, MAP_LENGTH]
    if end - at - BODY - 8 != length:
        return False
    here, known = np.uint64(at + BODY + 8), np.uint64(info[ordinal, MAP_START])
    differ = np.uint8(0)
    for i in range(np.uint64(length)):  # compare to the end, many bytes at once, because usually nothing differs
        differ |= data[here + i] ^ maps[known + i]
    return bool(differ == 0)


@kernel(
    "int64(uint8[::1], int64[::1], int64[::1], int8[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1],"
    " uint8[:, ::1], int64, uint8[::1], int64[::1], int64[::1], int64[:, ::1], int32[:, ::1],"
    " int32[:, ::1], uint8[::1])"
)
def walk(
    data: Bytes,
    lengths: Longs,
    s: Longs,
    op: Ops,
    longs: Longs,
    done: Longs,
    runs: Longs,
    sources: Bytes,
    count: int,
    source: Bytes,
    keys: Longs,
    ordinals: Longs,
    info: Longs,
    columns: Ints,
    steps: Ints,
    maps: Bytes,
) -> int:
    """Continues at message MESSAGE at byte AT; stops where it needs help, otherwise at the end (DONE)."""
    for i in range(s[MESSAGE], len(lengths)):
        at = s[AT]
        end = at + lengths[i]
        kind = int(data[at + _TYPE])
        ends_at = number(data, at, 8)
        inside = s[GROUP] != _OUTSIDE
        code = DONE
        if 23 <= kind <= 25 or 30 <= kind <= 32:
            code = (
                LOOK if s[ASIDE] else add_rows(data, at, end, kind, s, op, longs, keys, ordinals, info, columns, steps)
            )
        elif kind == _TABLE_MAP:
            if s[ASIDE] or not _known_map(data, at, end, keys, ordinals, info, maps):
                code = LOOK
        elif kind in (_GTID, _ANONYMOUS, _TAGGED, _MARIA):
            if s[GROUP] == _INSIDE:
                code = DAMAGED
            elif inside and not complete(
                s, ends_at - number(data, at + _SIZE, 4), header_time_us(data, at), done, runs
            ):
                code = FULL
            elif _begin(data, at, end, kind, s, sources, count, source) < 0:
                code = SOURCE_UNKNOWN
            elif s[ASIDE]:
                code = LOOK  # at its name
        elif kind == _XID:
            if not inside or s[ASIDE]:
                code = LOOK
            elif not complete(s, ends_at, header_time_us(data, at), done, runs):
                code = FULL
        elif kind == _QUERY:
            text = query_kind(data, at, end)
            if text == BEGIN and s[GROUP] == _EXPECTING:
                s[GROUP] = _INSIDE
            elif text == COMMIT and s[GROUP] == _INSIDE and not s[ASIDE]:
                if not complete(s, ends_at, header_time_us(data, at), done, runs):
                    code = FULL
            else:
                code = LOOK
        elif kind in (_PARTIAL, _XA_PREPARE, _INCIDENT, _LOAD):
            code = LOOK
        elif kind == _FORMAT and s[GROUP] == _INSIDE:
            code = DONE if ends_at == 0 else LOOK
        elif not inside and ends_at > s[POSITION]:
            s[POSITION] = ends_at
        if code != DONE:
            return code
        s[AT] = end
        s[MESSAGE] = i + 1
    return DONE
