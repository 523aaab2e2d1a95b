"""The kernel that finds the values in pgoutput row messages (protocol version 1, text mode)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, MARKS, OFFSETS, OK
from headwater.decode.kernels_bytes import same_bytes
from headwater.kernel import kernel

_INSERT, _UPDATE, _DELETE, _TRUNCATE = 73, 85, 68, 84
_KEY, _OLD, _NEW = 75, 79, 78
_IS_NULL, _UNCHANGED, _TEXT = 110, 117, 116
NO_VALUE = -1
MISSING = -2  # the message does not have the column
_HEADER = 5  # type byte and table oid

SLOTS = types.Array(types.int32, 1, "C", readonly=True)
FLAGS = types.Array(types.uint8, 1, "C", readonly=True)
GRID = types.int64[:, ::1]


@kernel(types.int64(BYTES, types.int64, types.int64, SLOTS, types.int64, GRID, GRID))
def _tuple(data: Any, at: Any, end: Any, ordinals: Any, row: Any, starts: Any, lengths: Any) -> Any:
    """Records where the tuple's values are; returns where it ends, or -1."""
    if at + 2 > end or (np.int64(data[at]) << 8 | np.int64(data[at + 1])) != ordinals.size:
        return -1
    at += 2
    for column in range(ordinals.size):
        if at >= end:
            return -1
        kind = data[at]
        at += 1
        start: Any = np.int64(0)
        length: Any = np.int64(NO_VALUE)
        if kind == _TEXT:
            if at + 4 > end:
                return -1
            length = (
                np.int64(data[at]) << 24
                | np.int64(data[at + 1]) << 16
                | np.int64(data[at + 2]) << 8
                | np.int64(data[at + 3])
            )
            start = at + 4
            at = start + length
            if at > end:
                return -1
        elif kind == _UNCHANGED:
            length = np.int64(MISSING)
        elif kind != _IS_NULL:
            return -1
        ordinal = ordinals[column]
        if ordinal >= 0:
            starts[ordinal, row] = start
            lengths[ordinal, row] = length
    return at


@kernel(
    types.int64(BYTES, OFFSETS, SLOTS, SLOTS, FLAGS, GRID, GRID, GRID, GRID, MARKS),
)
def lay_out(
    data: Any,
    offsets: Any,
    ordinals: Any,
    keys: Any,
    identity: Any,
    starts: Any,
    lengths: Any,
    old_starts: Any,
    old_lengths: Any,
    moved: Any,
) -> Any:
    """Places of all values of all rows: the row as it is now, and the old key if `moved`.

    `ordinals[c]` is the output row for the message's column c (-1: not needed), `keys` are the ordinals of the key,
    `identity[ordinal]` says that an old tuple of kind K has the ordinal. The grids are (ordinals, rows), preset to "no
    value". A deleted row keeps only its key. Values that an update left unchanged are taken from its old tuple if it
    has them.
    """
    wanted = starts.shape[0]
    for i in range(offsets.size - 1):
        at = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        if end - at < _HEADER + 1:
            return i
        kind = data[at]
        if kind == _TRUNCATE:
            continue
        at += _HEADER
        old = np.uint8(0)
        if kind != _INSERT and (data[at] == _KEY or data[at] == _OLD):
            old = data[at]
            at = _tuple(data, at + 1, end, ordinals, i, old_starts, old_lengths)
            if at < 0:
                return i
        if kind == _DELETE:
            if old == 0 or at != end:
                return i
            for k in range(keys.size):
                starts[keys[k], i] = old_starts[keys[k], i]
                lengths[keys[k], i] = old_lengths[keys[k], i]
            continue
        if (kind != _INSERT and kind != _UPDATE) or at >= end or data[at] != _NEW:
            return i
        at = _tuple(data, at + 1, end, ordinals, i, starts, lengths)
        if at != end:
            return i
        if old == 0:
            continue
        for s in range(wanted):
            if lengths[s, i] == MISSING and (old == _OLD or identity[s]):
                starts[s, i] = old_starts[s, i]
                lengths[s, i] = old_lengths[s, i]
        for k in range(keys.size):
            s = keys[k]
            if not same_bytes(data, starts[s, i], lengths[s, i], old_starts[s, i], old_lengths[s, i]):
                moved[i] = 1
    return OK
