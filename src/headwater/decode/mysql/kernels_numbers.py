"""Kernels for integers, floats and packed decimals of row images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OK, PLACES, UNREPRESENTABLE
from headwater.decode.kernels_number import negative_of, times_plus
from headwater.kernel import kernel

_U0, _U1, _U8, _U10 = np.uint64(0), np.uint64(1), np.uint64(8), np.uint64(10)
_MINUS, _DOT, _ZERO = 45, 46, 48
_WORD_DIGITS, _WORD_BYTES = 9, 4
_DIGIT_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4], dtype=np.int64)  # bytes for this many digits
_POWERS = np.array([10**n for n in range(20)], dtype=np.uint64)


@kernel(types.int64(BYTES, types.int64, types.int64), inline="always")
def little_endian(buffer: Any, at: Any, size: Any) -> Any:
    """The number in up to eight bytes, the lowest first."""
    word = np.int64(0)
    for j in range(size):
        word |= np.int64(buffer[at + j]) << (8 * j)
    return word


@kernel(types.void(BYTES, PLACES, PLACES, types.uint64[::1], MARKS))
def read_words(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> None:
    """Little-endian bytes as unsigned numbers: unsigned integers, sets, enums and the bits of floats."""
    for i in range(starts.size):
        word = _U0
        if lengths[i] < 0:
            marks[i] = NULL
        else:
            word = np.uint64(little_endian(buffer, starts[i], lengths[i]))
            marks[i] = KEPT
        out[i] = word


@kernel(
    types.void(BYTES, PLACES, PLACES, types.int64, types.boolean, types.int64, types.int64, types.int8[::1], MARKS),
    types.void(BYTES, PLACES, PLACES, types.int64, types.boolean, types.int64, types.int64, types.int16[::1], MARKS),
    types.void(BYTES, PLACES, PLACES, types.int64, types.boolean, types.int64, types.int64, types.int32[::1], MARKS),
    types.void(BYTES, PLACES, PLACES, types.int64, types.boolean, types.int64, types.int64, types.int64[::1], MARKS),
)
def read_integers(
    buffer: Any,
    starts: Any,
    lengths: Any,
    width: Any,
    unsigned: Any,
    low: Any,
    high: Any,
    out: Any,
    marks: Any,
) -> None:
    """Integers of `width` bytes; those outside low … high, or unsigned beyond 63 bits, are unrepresentable."""
    unused = 64 - 8 * width
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        value = little_endian(buffer, starts[i], width)
        if not unsigned:
            value = value << unused >> unused
        if value < low or value > high or (unsigned and value < 0):
            marks[i] = UNREPRESENTABLE
            continue
        out[i] = value
        marks[i] = KEPT


@kernel(types.UniTuple(types.int64, 2)(types.int64, types.int64, types.int64), inline="always")
def _group(part: Any, digits: Any, number: Any) -> Any:
    """The number of digits in a group of a packed decimal's part (0: whole, 1: fraction), and their bytes.

    All groups have nine digits except one at the part's outer end.
    """
    odd = digits % _WORD_DIGITS
    outer = number == 0 if part == 0 else number == digits // _WORD_DIGITS
    if odd > 0 and outer:
        return odd, _DIGIT_BYTES[odd]
    return _WORD_DIGITS, _WORD_BYTES


@kernel(types.uint64(BYTES, types.int64, types.int64, types.boolean, types.boolean))
def _digits(buffer: Any, at: Any, size: Any, negative: Any, first: Any) -> Any:
    """The digits of a packed decimal's group as a number; the first group's highest bit is the sign."""
    mask = np.uint8(0xFF if negative else 0)
    word = _U0
    for j in range(size):
        word = word << _U8 | np.uint64(buffer[at + j] ^ mask)
    if first:
        word ^= np.uint64(0x80) << np.uint64(8 * (size - 1))
    return word


@kernel(types.int64(BYTES, PLACES, PLACES, types.int64, types.int64, types.int64, types.uint64[:, ::1], MARKS))
def read_decimals(
    buffer: Any, starts: Any, lengths: Any, precision: Any, scale: Any, padding: Any, out: Any, marks: Any
) -> Any:
    """128-bit numbers from packed decimals, with `padding` zeros appended; precision + padding are at most 38.

    A packed decimal is big-endian groups of nine digits, with short groups at the outer ends; the first bit is set for
    a positive number, and a negative one has all its bits inverted. `out` is (n, 2): low, high.
    """
    whole = precision - scale
    for i in range(starts.size):
        out[i, 0] = _U0
        out[i, 1] = _U0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        at = starts[i]
        negative = buffer[at] & 0x80 == 0
        high = _U0
        low = _U0
        for part in range(2):
            digits = whole if part == 0 else scale
            for g in range((digits + _WORD_DIGITS - 1) // _WORD_DIGITS):
                count, size = _group(part, digits, g)
                word = _digits(buffer, at, size, negative, at == starts[i])
                if word >= _POWERS[count]:
                    return i
                high, low = times_plus(high, low, _POWERS[count], word)
                at += size
        for _ in range(padding):
            high, low = times_plus(high, low, _U10, _U0)
        if negative:
            high, low = negative_of(high, low)
        out[i, 0] = low
        out[i, 1] = high
        marks[i] = KEPT
    return OK


@kernel(types.int64(BYTES, PLACES, PLACES, types.int64, types.int64, types.uint8[:, ::1], types.int64[::1]))
def write_decimals(
    buffer: Any, starts: Any, lengths: Any, precision: Any, scale: Any, out: Any, out_lengths: Any
) -> Any:
    """The texts of packed decimals as SELECT prints them, one per row of `out`; see `read_decimals`."""
    whole = precision - scale
    digits_of = np.zeros(precision, dtype=np.uint8)
    for i in range(starts.size):
        out_lengths[i] = -1
        if lengths[i] < 0:
            continue
        at = starts[i]
        negative = buffer[at] & 0x80 == 0
        done = 0
        for part in range(2):
            digits = whole if part == 0 else scale
            for g in range((digits + _WORD_DIGITS - 1) // _WORD_DIGITS):
                count, size = _group(part, digits, g)
                word = _digits(buffer, at, size, negative, at == starts[i])
                if word >= _POWERS[count]:
                    return i
                for j in range(count):
                    digits_of[done + count - 1 - j] = np.uint8(word % _U10)
                    word //= _U10
                done += count
                at += size
        to = 0
        if negative:
            out[i, to] = _MINUS
            to += 1
        first = 0
        while first < whole - 1 and digits_of[first] == 0:
            first += 1
        if whole == 0:
            out[i, to] = _ZERO
            to += 1
        for j in range(first, precision):
            if j == whole:
                out[i, to] = _DOT
                to += 1
            out[i, to] = _ZERO + digits_of[j]
            to += 1
        out_lengths[i] = to
    return OK


@kernel(types.void(types.uint64[::1], types.boolean, types.int64, types.uint64[:, ::1]))
def widen_integers(words: Any, unsigned: Any, scale: Any, out: Any) -> None:
    """128-bit numbers with `scale` zeros appended. Signed ones come sign-extended in their words."""
    for i in range(words.size):
        negative = not unsigned and np.int64(words[i]) < 0
        low = ~words[i] + _U1 if negative else words[i]
        high = _U0
        for _ in range(scale):
            high, low = times_plus(high, low, _U10, _U0)
        if negative:
            high, low = negative_of(high, low)
        out[i, 0] = low
        out[i, 1] = high
