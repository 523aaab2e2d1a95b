"""Kernels for text and binary values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OFFSETS, OK, PLACES, UNREPRESENTABLE
from headwater.kernel import kernel

_BACKSLASH, _X = 92, 120
_ASCII_END = 0x80


@kernel(types.uint8(BYTES, PLACES, PLACES, OFFSETS, types.uint8[::1]))
def gather(buffer: Any, starts: Any, lengths: Any, offsets: Any, out: Any) -> Any:
    """Concatenates all values; the highest bit of the result is set if any byte is not ASCII."""
    seen = np.uint8(0)
    for i in range(starts.size):
        at, to = np.uint64(starts[i]), np.uint64(offsets[i])
        # unsigned indexes need no check for negative values: moves words
        for j in range(np.uint64(offsets[i + 1]) - to):
            c = buffer[at + j]
            out[to + j] = c
            seen |= c
    return seen


@kernel(types.boolean(BYTES, types.int64, types.int64, types.int64, types.int64))
def same_bytes(data: Any, a: Any, a_length: Any, b: Any, b_length: Any) -> bool:
    """Whether two values of one buffer are equal; a negative length (no value) equals itself."""
    if a_length != b_length:
        return False
    for j in range(a_length):  # noqa: SIM110
        if data[a + j] != data[b + j]:
            return False
    return True


@kernel(types.int64(BYTES, types.int64, types.int64))
def _character(buffer: Any, at: Any, end: Any) -> Any:
    """Where the UTF-8 character at `at` ends, or -1 if it is not one."""
    first = np.int64(buffer[at])
    if first < _ASCII_END:
        return at + 1
    if first < 0xC2 or first > 0xF4:
        return -1
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if at + size > end:
        return -1
    for j in range(at + 1, at + size):
        if buffer[j] & 0xC0 != 0x80:
            return -1
    second = np.int64(buffer[at + 1])
    overlong = (first == 0xE0 and second < 0xA0) or (first == 0xF0 and second < 0x90)
    surrogate = first == 0xED and second > 0x9F
    too_high = first == 0xF4 and second > 0x8F
    return -1 if overlong or surrogate or too_high else at + size


@kernel(types.void(BYTES, OFFSETS, MARKS))
def mark_utf8(buffer: Any, offsets: Any, marks: Any) -> None:
    """Marks values that are not UTF-8 as unrepresentable (a database with encoding SQL_ASCII can hold them)."""
    for i in range(offsets.size - 1):
        if marks[i] != KEPT:
            continue
        at = np.int64(offsets[i])
        end = np.int64(offsets[i + 1])
        while at < end:
            at = _character(buffer, at, end)
            if at < 0:
                marks[i] = UNREPRESENTABLE
                break


@kernel(types.int64(types.uint8))
def _nibble(c: Any) -> Any:
    if 48 <= c <= 57:
        return np.int64(c) - 48
    if 97 <= c <= 102:
        return np.int64(c) - 87
    if 65 <= c <= 70:
        return np.int64(c) - 55
    return -1


@kernel(types.int64(BYTES, PLACES, PLACES, OFFSETS, types.uint8[::1], MARKS))
def parse_hex(buffer: Any, starts: Any, lengths: Any, offsets: Any, out: Any, marks: Any) -> Any:
    r"""Bytes from `\x…`."""
    for i in range(starts.size):
        length = lengths[i]
        if length < 0:
            marks[i] = NULL
            continue
        at = starts[i]
        if length < 2 or length % 2 or buffer[at] != _BACKSLASH or buffer[at + 1] != _X:
            return i
        at += 2
        for j in range(offsets[i], offsets[i + 1]):
            high = _nibble(buffer[at])
            low = _nibble(buffer[at + 1])
            if high < 0 or low < 0:
                return i
            out[j] = np.uint8(high * 16 + low)
            at += 2
        marks[i] = KEPT
    return OK
