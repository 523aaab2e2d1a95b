"""The kernel that finds the values in binlog row images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, MARKS, OFFSETS, OK
from headwater.decode.kernels_bytes import same_bytes
from headwater.decode.mysql.kernels_numbers import little_endian
from headwater.kernel import kernel

_INSERT, _UPDATE, _DELETE, _TRUNCATE, _BREAK = 1, 2, 3, 4, 5  # model.Op
_NO_VALUE = -1
VARIES = -1  # the size of a value with its length before it

SLOTS = types.Array(types.int32, 1, "C", readonly=True)
OPS = types.Array(types.int8, 1, "C", readonly=True)
GRID = types.int64[:, ::1]


@kernel(types.int64(BYTES, types.int64, types.int64, SLOTS, SLOTS, SLOTS, types.int64, GRID, GRID))
def _image(
    data: Any, at: Any, end: Any, sizes: Any, prefixes: Any, ordinals: Any, row: Any, starts: Any, lengths: Any
) -> Any:
    """Records where the image's values are; returns where it ends, or -1."""
    nulls = at
    at += (ordinals.size + 7) >> 3
    if at > end:
        return -1
    for column in range(ordinals.size):
        ordinal = ordinals[column]
        if data[nulls + (column >> 3)] >> (column & 7) & 1:
            if ordinal >= 0:
                lengths[ordinal, row] = _NO_VALUE
            continue
        length = np.int64(sizes[column])
        if length == VARIES:
            prefix = prefixes[column]
            if at + prefix > end:
                return -1
            length = little_endian(data, at, prefix)
            at += prefix
        if at + length > end:
            return -1
        if ordinal >= 0:
            starts[ordinal, row] = at
            lengths[ordinal, row] = length
        at += length
    return at


@kernel(types.int64(BYTES, OFFSETS, OPS, SLOTS, SLOTS, SLOTS, SLOTS, GRID, GRID, GRID, GRID, MARKS))
def lay_out(
    data: Any,
    offsets: Any,
    ops: Any,
    sizes: Any,
    prefixes: Any,
    ordinals: Any,
    keys: Any,
    starts: Any,
    lengths: Any,
    old_starts: Any,
    old_lengths: Any,
    moved: Any,
) -> Any:
    """Places of all values of all rows: the row as it is now, and as it was if an update or a delete has that.

    `sizes[c]` is the size of column c's values, or VARIES: then `prefixes[c]` length bytes precede a value.
    `ordinals[c]` is the output row for column c (-1: not needed), `keys` are the ordinals of the key. The grids are
    (ordinals, rows), preset to "no value". A deleted row keeps only its key.
    """
    for i in range(offsets.size - 1):
        at = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        op = ops[i]
        if op in (_TRUNCATE, _BREAK):
            continue
        if op in (_UPDATE, _DELETE):
            at = _image(data, at, end, sizes, prefixes, ordinals, i, old_starts, old_lengths)
            if at < 0:
                return i
        if op == _DELETE:
            for k in range(keys.size):
                starts[keys[k], i] = old_starts[keys[k], i]
                lengths[keys[k], i] = old_lengths[keys[k], i]
        else:
            if op != _INSERT and op != _UPDATE:
                return i
            at = _image(data, at, end, sizes, prefixes, ordinals, i, starts, lengths)
        if at != end:
            return i
        if op == _UPDATE:
            for k in range(keys.size):
                s = keys[k]
                if not same_bytes(data, starts[s, i], lengths[s, i], old_starts[s, i], old_lengths[s, i]):
                    moved[i] = 1
    return OK
