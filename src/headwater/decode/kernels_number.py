"""Kernels for booleans, integers and decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OK, PLACES, UNREPRESENTABLE
from headwater.kernel import kernel

_U0 = np.uint64(0)
_U10 = np.uint64(10)
_U32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_MINUS, _PLUS, _DOT, _ZERO, _NINE = 45, 43, 46, 48, 57
_N, _I = 78, 73  # NaN, Infinity
_F, _T, _1 = 102, 116, 49
_WORD_DIGITS = 19  # any number with this many digits fits an unsigned 64-bit word
_MAX_DIGITS = 38


@kernel(types.int64(BYTES, PLACES, PLACES, MARKS, MARKS))
def parse_booleans(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> Any:
    """`t…`/`f…` or the bits `1`/`0`."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        if lengths[i] == 0:
            return i
        c = buffer[starts[i]]
        if c in (_T, _1):
            out[i] = 1
        elif c != _F and c != _ZERO:
            return i
        marks[i] = KEPT
    return OK


@kernel(
    types.int64(BYTES, PLACES, PLACES, types.int64, types.int8[::1], MARKS),
    types.int64(BYTES, PLACES, PLACES, types.int64, types.int16[::1], MARKS),
    types.int64(BYTES, PLACES, PLACES, types.int64, types.int32[::1], MARKS),
    types.int64(BYTES, PLACES, PLACES, types.int64, types.int64[::1], MARKS),
)
def parse_integers(buffer: Any, starts: Any, lengths: Any, highest: Any, out: Any, marks: Any) -> Any:
    """Integers from -highest - 1 to highest; others are unrepresentable."""
    above = np.uint64(highest)
    below = above + _ONE
    for i in range(starts.size):
        out[i] = 0
        length = lengths[i]
        if length < 0:
            marks[i] = NULL
            continue
        at = starts[i]
        end = at + length
        negative = length > 0 and buffer[at] == _MINUS
        if negative:
            at += 1
        if at == end:
            return i
        digits = end - at
        magnitude = _U0
        for j in range(at, end):
            c = buffer[j]
            if c < _ZERO or c > _NINE:
                return i
            magnitude = magnitude * _U10 + np.uint64(c - _ZERO)
        if digits > _WORD_DIGITS or magnitude > (below if negative else above):
            marks[i] = UNREPRESENTABLE
            continue
        out[i] = -np.int64(magnitude) if negative else np.int64(magnitude)
        marks[i] = KEPT
    return OK


@kernel(types.UniTuple(types.uint64, 2)(types.uint64, types.uint64, types.uint64, types.uint64))
def times_plus(high: Any, low: Any, factor: Any, addend: Any) -> Any:
    """(high, low) * factor + addend, modulo 2^128; factor and addend below 2^32."""
    lower = (low & _LOW) * factor + addend
    upper = (low >> _U32) * factor + (lower >> _U32)
    return high * factor + (upper >> _U32), (upper << _U32) | (lower & _LOW)


@kernel(types.UniTuple(types.uint64, 2)(types.uint64, types.uint64))
def negative_of(high: Any, low: Any) -> Any:
    """-(high, low), modulo 2^128."""
    low = ~low + _ONE
    return ~high + (_ONE if low == _U0 else _U0), low


@kernel(types.int64(BYTES, PLACES, PLACES, types.int64, types.uint64, types.uint64, types.uint64[:, ::1], MARKS))
def parse_decimals(
    buffer: Any, starts: Any, lengths: Any, scale: Any, limit_high: Any, limit_low: Any, out: Any, marks: Any
) -> Any:
    """128-bit numbers with `scale` decimals, smaller than the limit; never rounds. `out` is (n, 2): low, high."""
    for i in range(starts.size):
        out[i, 0] = _U0
        out[i, 1] = _U0
        length = lengths[i]
        if length < 0:
            marks[i] = NULL
            continue
        marks[i] = UNREPRESENTABLE
        at = starts[i]
        end = at + length
        negative = length > 0 and buffer[at] == _MINUS
        if negative or (length > 0 and buffer[at] == _PLUS):
            at += 1
        if at == end:
            return i
        if buffer[at] == _N or buffer[at] == _I:
            continue
        high = _U0
        low = _U0
        digits = 0  # significant digits so far
        decimals = -1  # digits after the point; -1 = no point yet
        fits = True
        for j in range(at, end):
            c = buffer[j]
            if c == _DOT and decimals < 0:
                decimals = 0
                continue
            if c < _ZERO or c > _NINE:
                return i
            if decimals >= 0:
                if decimals == scale:
                    fits = fits and c == _ZERO
                    continue
                decimals += 1
            if digits > 0 or c != _ZERO:
                digits += 1
            digit = np.uint64(c - _ZERO)
            if digits <= _WORD_DIGITS:
                low = low * _U10 + digit
            elif digits <= _MAX_DIGITS:
                high, low = times_plus(high, low, _U10, digit)
        padding = scale - max(decimals, 0)
        if not fits or (digits > 0 and digits + padding > _MAX_DIGITS):
            continue
        for _ in range(padding):
            high, low = times_plus(high, low, _U10, _U0)
        if high > limit_high or (high == limit_high and low >= limit_low):
            continue
        if negative:
            high, low = negative_of(high, low)
        out[i, 0] = low
        out[i, 1] = high
        marks[i] = KEPT
    return OK
