"""Where an event's row images are, found by the sizes of the table's columns."""

from __future__ import annotations

from headwater.kernel import kernel
from headwater.model import Op
from headwater.source.base import Bytes, Longs
from headwater.source.frames import Ops
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.groups import number
from headwater.source.mysql.binlog.state import (
    COLUMN,
    COLUMNS,
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


@kernel("int64(int64, int64[::1], int64[::1])")
def find_ordinal(table_id: int, keys: Longs, ordinals: Longs) -> int:
    """The ordinal of a table's number in the log, or -1."""
    mask = len(keys) - 1
    at = (table_id ^ (table_id >> 9)) & mask
    while keys[at] >= 0:
        if keys[at] == table_id:
            return int(ordinals[at])
        at = (at + 1) & mask
    return -1


@kernel("UniTuple(int64, 2)(uint8[::1], int64)")
def lenenc(data: Bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and the offset after it."""
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


@kernel("int64(uint8[::1], int64, int64, int64, int64, int32[:, ::1])")
def image_end(data: Bytes, at: int, end: int, first: int, count: int, columns: Ints) -> int:
    """Where the row image at `at` ends, or an offset beyond `end` if it does not."""
    nulls = at
    at += (count + 7) >> 3
    for c in range(count):
        if at > end or int(data[nulls + (c >> 3)]) >> (c & 7) & 1:
            continue
        size, prefix = int(columns[first + c, 0]), int(columns[first + c, 1])
        if prefix > 0:
            if at + prefix > end:
                return end + 1
            for i in range(prefix):
                size |= int(data[at + i]) << (8 * i)
        at += prefix + size
    return at


@kernel("int64(uint8[::1], int64, int64)")
def columns_place(data: Bytes, at: int, kind: int) -> int:
    """Where the rows event in the message at `at` has its number of columns."""
    place = at + BODY + 8
    return place + number(data, place, 2) if kind >= 30 else place


@kernel("boolean(uint8[::1], int64, int64, int64)")
def has_rows(data: Bytes, at: int, end: int, kind: int) -> bool:
    """Whether a rows event has rows: one without only ends its statement, under a number that is no table's.

    (Which number that is depends on the version, and every number becomes a table's sooner or later.)
    """
    width, place = lenenc(data, columns_place(data, at, kind))
    return place + ((width + 7) >> 3) * (2 if kind in (24, 31) else 1) < end


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
    ordinals: Longs,
    info: Longs,
    columns: Ints,
    steps: Ints,
) -> int:
    """Adds the rows of an event. Rows that do not match the table's description are left to slower code."""
    body = at + BODY
    table_id = number(data, body, 6)
    ordinal = find_ordinal(table_id, keys, ordinals)
    if ordinal < 0:
        return LOOK if has_rows(data, at, end, kind) else DONE
    if (
        not info[ordinal, FOLLOWED] or not info[ordinal, DESCRIBED]
    ):  # the latter: it is broken, and its rows are useless
        return DONE
    place = columns_place(data, at, kind)
    what = kind - 30 if kind >= 30 else kind - 23
    width, place = lenenc(data, place)
    count = info[ordinal, COLUMNS]
    if width != count:
        return LOOK if has_rows(data, at, end, kind) else DONE
    bitmap = (width + 7) >> 3
    images = 2 if what == 1 else 1
    for _ in range(images):
        if not all_set(data, place, width):
            return LOOK
        place += bitmap
    row, txn, table = s[ROW], s[TXN], info[ordinal, TABLE]
    op_number = _INSERT if what == 0 else _UPDATE if what == 1 else _DELETE
    first, step, last_step = info[ordinal, COLUMN], info[ordinal, STEP], info[ordinal, STEP] + info[ordinal, STEPS]
    # MariaDB sets the bits of a null bitmap that belong to no column
    mask = (1 << (count & 7)) - 1 if count & 7 else 0xFF
    while place < end:
        if row >= len(op):
            return FULL
        at_image = place
        for _ in range(images):
            # inlined, because a call costs more than all of this; runs of fixed columns are one step
            nulls = 0
            after = at_image + bitmap
            if after <= end:
                for i in range(bitmap - 1):
                    nulls |= int(data[at_image + i])
                nulls |= int(data[after - 1]) & mask
            if nulls:
                after = image_end(data, at_image, end, first, count, columns)
            else:
                for i in range(step, last_step):
                    after += int(steps[i, 0])
                    prefix = int(steps[i, 1])
                    if prefix == 0:
                        continue
                    if after + prefix > end:
                        return LOOK
                    if prefix == 1:
                        after += 1 + int(data[after])
                    elif prefix == 2:
                        after += 2 + (int(data[after]) | int(data[after + 1]) << 8)
                    else:
                        after += prefix + number(data, after, prefix)
            if after > end:
                return LOOK
            at_image = after
        op[row] = op_number
        longs[0, row] = txn
        longs[1, row] = table
        longs[2, row] = place
        longs[3, row] = at_image - place
        row += 1
        place = at_image
    s[NEXT] += row - s[ROW]
    s[ROW] = row
    return DONE
