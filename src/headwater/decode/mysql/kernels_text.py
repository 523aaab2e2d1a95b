"""Kernels for text in the servers' own charsets, for padded bytes and for hex."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OFFSETS, PLACES, UNREPRESENTABLE
from headwater.kernel import kernel
from headwater.source.mysql.client.codepoints import UNDEFINED

POINTS = types.Array(types.uint32, 1, "C", readonly=True)
_THREE = 0x8F  # in EUC-JP it begins a three-byte character


@kernel(types.int64(types.uint8[::1], types.int64, types.uint32))
def _put(out: Any, at: Any, point: Any) -> Any:
    """Writes a character in UTF-8 (none of these charsets goes beyond three bytes); returns where it ends."""
    if point < 0x80:
        out[at] = np.uint8(point)
        return at + 1
    if point < 0x800:
        out[at] = np.uint8(0xC0 | point >> 6)
        out[at + 1] = np.uint8(0x80 | point & 0x3F)
        return at + 2
    out[at] = np.uint8(0xE0 | point >> 12)
    out[at + 1] = np.uint8(0x80 | point >> 6 & 0x3F)
    out[at + 2] = np.uint8(0x80 | point & 0x3F)
    return at + 3


@kernel(types.int64(BYTES, PLACES, PLACES, POINTS, POINTS, POINTS, types.int32[::1], types.uint8[::1], MARKS))
def transcode(
    buffer: Any,
    starts: Any,
    lengths: Any,
    singles: Any,
    pairs: Any,
    triples: Any,
    offsets: Any,
    out: Any,
    marks: Any,
) -> Any:
    """UTF-8 from a charset of one, two or three bytes per character; returns the number of bytes written.

    `singles` has 256 code points; `pairs` and `triples` (after 0x8F) have 65,536 each, or none if the charset has no
    such characters. A value with bytes that are not a character is unrepresentable.
    """
    to = np.int64(0)
    for i in range(starts.size):
        offsets[i] = to
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        marks[i] = KEPT
        begin = to
        at = starts[i]
        end = at + lengths[i]
        while at < end:
            point = singles[buffer[at]]
            if point != UNDEFINED:
                at += 1
            elif triples.size > 0 and buffer[at] == _THREE and at + 2 < end:
                point = triples[np.int64(buffer[at + 1]) << 8 | np.int64(buffer[at + 2])]
                at += 3
            elif pairs.size > 0 and at + 1 < end:
                point = pairs[np.int64(buffer[at]) << 8 | np.int64(buffer[at + 1])]
                at += 2
            if point == UNDEFINED:
                marks[i] = UNREPRESENTABLE
                to = begin
                break
            to = _put(out, to, point)
    offsets[starts.size] = to
    return to


@kernel(types.void(BYTES, PLACES, PLACES, OFFSETS, types.uint8[::1]))
def gather_padded(buffer: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> None:
    """Concatenates all values, padding those that are too short with zero bytes."""
    for i in range(starts.size):
        at = starts[i]
        to = offsets[i]
        size = offsets[i + 1] - to
        for j in range(size):
            out[to + j] = buffer[at + j] if j < lengths[i] else np.uint8(0)


@kernel(types.uint8(types.uint8))
def _digit(nibble: Any) -> Any:
    return nibble + np.uint8(48 if nibble < 10 else 55)


@kernel(types.void(BYTES, OFFSETS, OFFSETS, MARKS, types.uint8[::1]))
def write_hex(values: Any, value_offsets: Any, offsets: Any, marks: Any, out: Any) -> None:
    """`0x…` of concatenated values."""
    for i in range(marks.size):
        if marks[i] != KEPT:
            continue
        to = offsets[i]
        out[to] = 48
        out[to + 1] = 120
        to += 2
        for j in range(value_offsets[i], value_offsets[i + 1]):
            out[to] = _digit(values[j] >> 4)
            out[to + 1] = _digit(values[j] & 15)
            to += 2
