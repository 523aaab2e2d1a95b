"""Where the row images of an event stand: found by the sizes of the table's columns."""

from __future__ import annotations

from headwater.model import Op
from headwater.source.base import Bytes, Longs
from headwater.source.frames import Ops
from headwater.source.kernel import kernel
from headwater.source.mysql import events as ev
from headwater.source.mysql.groups import number
from headwater.source.mysql.state import (
    COLUMN,
    COLUMNS,
    DAMAGED,
    DESCRIBED,
    DONE,
    FOLLOWED,
    FULL,
    LOOK,
    NEXT,
    ROW,
    STEP,
    STEPS,
    TABLE,
    TXN,
    Ints,
)

BODY = ev.BODY
_INSERT, _UPDATE, _DELETE = int(Op.INSERT), int(Op.UPDATE), int(Op.DELETE)
_NO_TABLE = 0xFFFFFF  # a rows event that only ends a statement


@kernel("int64(int64, int64[::1], int64[::1])")
def find_slot(table_id: int, keys: Longs, slots: Longs) -> int:
    """The slot of a table's number in the log, or -1."""
    mask = len(keys) - 1
    at = (table_id ^ (table_id >> 9)) & mask
    while keys[at] >= 0:
        if keys[at] == table_id:
            return int(slots[at])
        at = (at + 1) & mask
    return -1


@kernel("UniTuple(int64, 2)(uint8[::1], int64)")
def lenenc(data: Bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and what follows it."""
    first = int(data[at])
    if first < 251:
        return first, at + 1
    size = 2 if first == 252 else 3 if first == 253 else 8
    return number(data, at + 1, size), at + 1 + size


@kernel("boolean(uint8[::1], int64, int64)")
def all_set(data: Bytes, at: int, bits: int) -> bool:
    """Whether the first `bits` bits of a bitmap are ones."""
    for i in range(bits >> 3):
        if data[at + i] != 0xFF:
            return False
    left = bits & 7
    return left == 0 or int(data[at + (bits >> 3)]) & ((1 << left) - 1) == (1 << left) - 1


@kernel("int64(uint8[::1], int64, int64)")
def _length(data: Bytes, at: int, prefix: int) -> int:
    if prefix == 1:
        return int(data[at])
    if prefix == 2:
        return int(data[at]) | int(data[at + 1]) << 8
    return number(data, at, prefix)


@kernel("boolean(uint8[::1], int64, int64)")
def _no_nulls(data: Bytes, at: int, count: int) -> bool:
    """Whether a null bitmap is empty; MariaDB sets the bits that belong to no column."""
    found = 0
    for i in range(count >> 3):
        found |= int(data[at + i])
    if count & 7:
        found |= int(data[at + (count >> 3)]) & ((1 << (count & 7)) - 1)
    return found == 0


@kernel("int64(uint8[::1], int64, int64, int64[::1], int32[:, ::1], int32[:, ::1])")
def image_end(data: Bytes, at: int, end: int, slot: Longs, columns: Ints, steps: Ints) -> int:
    """Where the row image at `at` ends, or -1 if that is beyond `end`. Without NULLs, runs of fixed columns are one
    step each."""
    nulls, count = at, slot[COLUMNS]
    at += (count + 7) >> 3
    if at > end:
        return -1
    if _no_nulls(data, nulls, count):
        for i in range(slot[STEP], slot[STEP] + slot[STEPS]):
            at += int(steps[i, 0])
            prefix = int(steps[i, 1])
            if prefix > 0:
                if at + prefix > end:
                    return -1
                at += prefix + _length(data, at, prefix)
        return at if at <= end else -1
    first = slot[COLUMN]
    for c in range(count):
        if int(data[nulls + (c >> 3)]) >> (c & 7) & 1:
            continue
        prefix = int(columns[first + c, 1])
        if prefix == 0:
            at += int(columns[first + c, 0])
        elif at + prefix > end:
            return -1
        else:
            at += prefix + _length(data, at, prefix)
    return at if at <= end else -1


@kernel(
    "int64(uint8[::1], int64, int64, int64, int64[::1], int8[::1], int64[:, ::1],"
    " int64[::1], int64[::1], int64[:, ::1], int32[:, ::1], int32[:, ::1])"
)
def add_rows(
    data: Bytes,
    at: int,
    end: int,
    kind: int,
    s: Longs,
    op: Ops,
    longs: Longs,
    keys: Longs,
    slots: Longs,
    info: Longs,
    columns: Ints,
    steps: Ints,
) -> int:
    """Adds the rows of an event."""
    body = at + BODY
    table_id = number(data, body, 6)
    if table_id == _NO_TABLE:
        return DONE
    slot = find_slot(table_id, keys, slots)
    if slot < 0:
        return LOOK
    if not info[slot, FOLLOWED] or not info[slot, DESCRIBED]:  # the latter: it is broken, and its rows are of no use
        return DONE
    place = body + 8
    if kind >= 30:
        place += number(data, place, 2)
        what = kind - 30
    else:
        what = kind - 23
    width, place = lenenc(data, place)
    count = info[slot, COLUMNS]
    if width != count:
        return DAMAGED
    bitmap = (width + 7) >> 3
    images = 2 if what == 1 else 1
    for _ in range(images):
        if not all_set(data, place, width):
            return LOOK
        place += bitmap
    row = s[ROW]
    table, txn, known = info[slot, TABLE], s[TXN], info[slot]
    while place < end:
        if row >= len(op):
            return FULL
        after = image_end(data, place, end, known, columns, steps)
        if after >= 0 and images == 2:
            after = image_end(data, after, end, known, columns, steps)
        if after < 0:
            return DAMAGED
        op[row] = _INSERT if what == 0 else _UPDATE if what == 1 else _DELETE
        longs[0, row] = txn
        longs[1, row] = table
        longs[2, row] = place
        longs[3, row] = after - place
        row += 1
        place = after
    s[NEXT] += row - s[ROW]
    s[ROW] = row
    return DONE
