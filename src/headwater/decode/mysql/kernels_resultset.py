"""Kernels for result rows: where each value's text is, and texts that only MySQL writes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OFFSETS, OK, PLACES, UNREPRESENTABLE
from headwater.decode.kernels_time import DAY_US, SECOND_US
from headwater.decode.mysql.kernels_numbers import little_endian
from headwater.decode.mysql.kernels_times import NO_DAY, day_of
from headwater.kernel import kernel

_NO_VALUE = -1
_NULL_MARK, _TWO, _THREE = 0xFB, 0xFC, 0xFD  # a length of two, three or eight bytes follows
_MINUS, _DOT, _COLON, _SPACE, _ZERO, _ONE = 45, 46, 58, 32, 48, 49
_DATE, _MICROS = 10, 6  # the length of `YYYY-MM-DD`, and the digits of a fraction
_BAD = -1

GRID = types.int64[:, ::1]


@kernel(types.int64(BYTES, OFFSETS, GRID, GRID))
def lay_out(data: Any, offsets: Any, starts: Any, lengths: Any) -> Any:
    """Records where the first values of each row are; the grids are (values, rows). Returns a row that has too few."""
    for row in range(offsets.size - 1):
        at = np.int64(offsets[row])
        end = np.int64(offsets[row + 1])
        for value in range(starts.shape[0]):
            if at >= end:
                return row
            first = data[at]
            at += 1
            if first == _NULL_MARK:
                starts[value, row] = at
                lengths[value, row] = _NO_VALUE
                continue
            length = np.int64(first)
            if first >= _TWO:
                width = 2 if first == _TWO else 3 if first == _THREE else 8
                if at + width > end:
                    return row
                length = little_endian(data, at, width)
                at += width
            if length > end - at:
                return row
            starts[value, row] = at
            lengths[value, row] = length
            at += length
    return OK


@kernel(types.int64(BYTES, types.int64, types.int64))
def _digits(buffer: Any, at: Any, count: Any) -> Any:
    """A number of `count` digits, or -1."""
    value = np.int64(0)
    for j in range(count):
        digit = np.int64(buffer[at + j]) - _ZERO
        if digit < 0 or digit > 9:
            return _BAD
        value = value * 10 + digit
    return value


@kernel(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def _date(buffer: Any, at: Any, end: Any) -> Any:
    """Whether there is a date, and its day, or NO_DAY if it is not a valid date."""
    if end - at < _DATE or buffer[at + 4] != _MINUS or buffer[at + 7] != _MINUS:
        return 0, NO_DAY
    year, month, day = _digits(buffer, at, 4), _digits(buffer, at + 5, 2), _digits(buffer, at + 8, 2)
    if year < 0 or month < 0 or day < 0:
        return 0, NO_DAY
    return 1, day_of(year, month, day)


@kernel(types.int64(BYTES, PLACES, PLACES, types.int32[::1], MARKS))
def parse_dates(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> Any:
    """Days since 1970 of `YYYY-MM-DD`; invalid dates are unrepresentable."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        fine, day = _date(buffer, starts[i], starts[i] + lengths[i])
        if fine == 0:
            return i
        marks[i] = UNREPRESENTABLE
        if day != NO_DAY:
            out[i] = np.int32(day)
            marks[i] = KEPT
    return OK


@kernel(types.int64(BYTES, types.int64, types.int64))
def _clock(buffer: Any, at: Any, end: Any) -> Any:
    """Microseconds of `HH:MM:SS[.ffffff]`, or -1."""
    if end - at < 8 or buffer[at + 2] != _COLON or buffer[at + 5] != _COLON:
        return _BAD
    hours, minutes, seconds = _digits(buffer, at, 2), _digits(buffer, at + 3, 2), _digits(buffer, at + 6, 2)
    if hours < 0 or minutes < 0 or seconds < 0:
        return _BAD
    micros = np.int64(0)
    if end - at > 8:
        digits = end - at - 9
        if buffer[at + 8] != _DOT or digits > _MICROS:
            return _BAD
        micros = _digits(buffer, at + 9, digits)
        if micros < 0:
            return _BAD
        for _ in range(_MICROS - digits):
            micros *= 10
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND_US + micros


@kernel(types.int64(BYTES, PLACES, PLACES, types.int64[::1], MARKS))
def parse_moments(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> Any:
    """Microseconds since 1970 of `YYYY-MM-DD HH:MM:SS[.ffffff]`; a bare date is its midnight."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        at, end = starts[i], starts[i] + lengths[i]
        fine, day = _date(buffer, at, end)
        clock = np.int64(0)
        if fine and lengths[i] > _DATE:
            if buffer[at + _DATE] != _SPACE:
                return i
            clock = _clock(buffer, at + _DATE + 1, end)
        if fine == 0 or clock < 0:
            return i
        marks[i] = UNREPRESENTABLE
        if day != NO_DAY:
            out[i] = day * DAY_US + clock
            marks[i] = KEPT
    return OK


@kernel(types.int64(BYTES, PLACES, PLACES, MARKS, MARKS))
def parse_booleans(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> Any:
    """A number as a boolean: 0 or 1, as text or (for a bit) as a byte. Any other number is unrepresentable."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        if lengths[i] == 0:
            return i
        marks[i] = UNREPRESENTABLE
        if lengths[i] == 1:
            c = buffer[starts[i]]
            if c in (_ONE, 1):
                out[i] = 1
                marks[i] = KEPT
            elif c in (_ZERO, 0):
                marks[i] = KEPT
    return OK
