"""The kernel that splits PostgreSQL's array texts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OK, PLACES, UNREPRESENTABLE
from headwater.kernel import kernel

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH, _BRACKET = 123, 125, 44, 34, 92, 91
_NULL_TEXT = np.frombuffer(b"NULL", dtype=np.uint8)


@kernel(
    types.int64(BYTES, PLACES, PLACES, types.int32[::1], types.uint8[::1], types.int64[::1], types.int64[::1], MARKS)
)
def split_arrays(
    buffer: Any, starts: Any, lengths: Any, offsets: Any, out: Any, out_starts: Any, out_lengths: Any, marks: Any
) -> Any:
    """Elements of one-dimensional arrays, unquoted, in `out`; `offsets` says which belong to which array.

    Arrays with more dimensions and arrays that do not begin at 1 are unrepresentable.
    """
    count = 0
    size = 0
    for i in range(starts.size):
        offsets[i] = count
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        marks[i] = UNREPRESENTABLE
        at = starts[i]
        end = at + lengths[i]
        if lengths[i] > 0 and buffer[at] == _BRACKET:
            continue
        if lengths[i] < 2 or buffer[at] != _OPEN or buffer[end - 1] != _CLOSE:
            return i
        at += 1
        end -= 1
        if at < end and buffer[at] == _OPEN:
            continue
        marks[i] = KEPT
        while at < end:
            out_starts[count] = size
            if buffer[at] == _QUOTE:
                at += 1
                while at < end and buffer[at] != _QUOTE:
                    if buffer[at] == _BACKSLASH:
                        at += 1
                    out[size] = buffer[at]
                    size += 1
                    at += 1
                if at >= end:
                    return i
                at += 1
                out_lengths[count] = size - out_starts[count]
            else:
                first = at
                null = True
                while at < end and buffer[at] != _COMMA:
                    null = null and at - first < 4 and buffer[at] == _NULL_TEXT[at - first]
                    out[size] = buffer[at]
                    size += 1
                    at += 1
                if at == first:
                    return i
                null = null and at - first == 4
                out_lengths[count] = -1 if null else size - out_starts[count]
            count += 1
            if at < end:
                if buffer[at] != _COMMA or at + 1 == end:
                    return i
                at += 1
    offsets[starts.size] = count
    return OK
