"""Kernels for dates, datetimes, timestamps and times of row images.

Valid dates in the years 1 to 9999 are representable. The servers also store zero dates (`0000-00-00`), dates with
zero parts, and under some settings the 31st of February.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, PLACES, UNREPRESENTABLE
from headwater.decode.kernels_time import DAY_US, SECOND_US, days_since_1970
from headwater.decode.mysql.kernels_numbers import little_endian
from headwater.kernel import kernel

NO_DAY = -(1 << 40)
_LAST_YEAR = 9999
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)
_DATETIME_BASE = 0x8000000000
_MONTHS = 13  # the packed form counts months 0 to 12
_MINUS, _DOT, _COLON, _SPACE, _ZERO = 45, 46, 58, 32, 48
# Kinds of packed form, by the contents of the bytes
DATETIME, TIMESTAMP, OLD_DATETIME, OLD_TIMESTAMP = 0, 1, 2, 3


@kernel(types.int64(types.int64, types.int64, types.int64))
def day_of(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01, or NO_DAY if it is not a valid date."""
    if year < 1 or year > _LAST_YEAR or month < 1 or month > 12 or day < 1:
        return NO_DAY
    if day > _DAYS[month - 1]:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if month != 2 or day != 29 or not leap:
            return NO_DAY
    return days_since_1970(year, month, day)


@kernel(types.int64(BYTES, types.int64, types.int64))
def _big_endian(buffer: Any, at: Any, size: Any) -> Any:
    value = np.int64(0)
    for j in range(size):
        value = value << 8 | np.int64(buffer[at + j])
    return value


@kernel(types.int64(BYTES, types.int64, types.int64))
def _fraction(buffer: Any, at: Any, digits: Any) -> Any:
    """Microseconds from the bytes of a fraction with `digits` digits."""
    size = (digits + 1) // 2
    value = _big_endian(buffer, at, size)
    if size == 1:
        return value * 10_000
    return value * 100 if size == 2 else value


@kernel(types.UniTuple(types.int64, 5)(BYTES, types.int64, types.int64, types.int64))
def _parts(buffer: Any, at: Any, kind: Any, digits: Any) -> Any:
    """(year, month, day, seconds of the day, microseconds) of a datetime."""
    if kind == OLD_DATETIME:
        number = little_endian(buffer, at, 8)  # as the digits YYYYMMDDhhmmss
        date, clock = number // 1_000_000, number % 1_000_000
        seconds = clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100
        return date // 10_000, date // 100 % 100, date % 100, seconds, 0
    packed = _big_endian(buffer, at, 5) - _DATETIME_BASE
    months = packed >> 22
    seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    return months // _MONTHS, months % _MONTHS, packed >> 17 & 31, seconds, _fraction(buffer, at + 5, digits)


@kernel(types.int64(BYTES, types.int64, types.int64, types.int64))
def _instant(buffer: Any, at: Any, kind: Any, digits: Any) -> Any:
    """Microseconds since 1970-01-01 UTC of a timestamp; 0 is the zero timestamp."""
    if kind == OLD_TIMESTAMP:
        return little_endian(buffer, at, 4) * SECOND_US
    return _big_endian(buffer, at, 4) * SECOND_US + _fraction(buffer, at + 4, digits)


@kernel(types.void(BYTES, PLACES, PLACES, types.int32[::1], MARKS))
def read_dates(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> None:
    """Days since 1970-01-01."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        packed = little_endian(buffer, starts[i], 3)
        day = day_of(packed >> 9, packed >> 5 & 15, packed & 31)
        marks[i] = UNREPRESENTABLE
        if day != NO_DAY:
            out[i] = np.int32(day)
            marks[i] = KEPT


@kernel(types.void(BYTES, PLACES, PLACES, types.int64, types.int64, types.int64[::1], MARKS))
def read_moments(buffer: Any, starts: Any, lengths: Any, kind: Any, digits: Any, out: Any, marks: Any) -> None:
    """Microseconds since 1970-01-01 00:00 of datetimes or timestamps."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        marks[i] = UNREPRESENTABLE
        if kind in (TIMESTAMP, OLD_TIMESTAMP):
            value = _instant(buffer, starts[i], kind, digits)
            if value == 0:
                continue
        else:
            year, month, of_month, seconds, micros = _parts(buffer, starts[i], kind, digits)
            day = day_of(year, month, of_month)
            if day == NO_DAY:
                continue
            value = day * DAY_US + seconds * SECOND_US + micros
        out[i] = value
        marks[i] = KEPT


@kernel(types.int64(types.uint8[:, ::1], types.int64, types.int64, types.int64, types.int64))
def _number(out: Any, row: Any, at: Any, value: Any, digits: Any) -> Any:
    """Writes a number with at least `digits` digits; returns where it ends."""
    size = digits
    limit = np.int64(10) ** digits
    while value >= limit:
        size += 1
        limit *= 10
    for j in range(size):
        out[row, at + size - 1 - j] = np.uint8(_ZERO + value % 10)
        value //= 10
    return at + size


@kernel(types.int64(types.uint8[:, ::1], types.int64, types.int64, types.int64, types.int64, types.int64))
def _clock(out: Any, row: Any, at: Any, seconds: Any, micros: Any, digits: Any) -> Any:
    """Writes `HH:MM:SS[.f…]`; returns where it ends."""
    at = _number(out, row, at, seconds // 3600, 2)
    out[row, at] = _COLON
    at = _number(out, row, at + 1, seconds // 60 % 60, 2)
    out[row, at] = _COLON
    at = _number(out, row, at + 1, seconds % 60, 2)
    if digits == 0:
        return at
    out[row, at] = _DOT
    for _ in range(6 - digits):
        micros //= 10
    return _number(out, row, at + 1, micros, digits)


@kernel(types.int64(types.uint8[:, ::1], types.int64, types.int64, types.int64, types.int64))
def _calendar(out: Any, row: Any, year: Any, month: Any, day: Any) -> Any:
    """Writes `YYYY-MM-DD`; returns where it ends."""
    at = _number(out, row, 0, year, 4)
    out[row, at] = _MINUS
    at = _number(out, row, at + 1, month, 2)
    out[row, at] = _MINUS
    return _number(out, row, at + 1, day, 2)


@kernel(types.void(BYTES, PLACES, PLACES, types.uint8[:, ::1], types.int64[::1]))
def write_dates(buffer: Any, starts: Any, lengths: Any, out: Any, out_lengths: Any) -> None:
    """The texts of dates, including invalid ones, one per row of `out`."""
    for i in range(starts.size):
        out_lengths[i] = -1
        if lengths[i] >= 0:
            packed = little_endian(buffer, starts[i], 3)
            out_lengths[i] = _calendar(out, i, packed >> 9, packed >> 5 & 15, packed & 31)


@kernel(types.void(BYTES, PLACES, PLACES, types.int64, types.int64, types.uint8[:, ::1], types.int64[::1]))
def write_datetimes(buffer: Any, starts: Any, lengths: Any, kind: Any, digits: Any, out: Any, out_lengths: Any) -> None:
    """The texts of datetimes, including invalid ones, one per row of `out`."""
    for i in range(starts.size):
        out_lengths[i] = -1
        if lengths[i] < 0:
            continue
        year, month, day, seconds, micros = _parts(buffer, starts[i], kind, digits)
        at = _calendar(out, i, year, month, day)
        out[i, at] = _SPACE
        out_lengths[i] = _clock(out, i, at + 1, seconds, micros, digits)


@kernel(types.void(BYTES, PLACES, PLACES, types.int64, types.int64, types.uint8[:, ::1], types.int64[::1]))
def write_times(buffer: Any, starts: Any, lengths: Any, old: Any, digits: Any, out: Any, out_lengths: Any) -> None:
    """The texts of times, including negative ones and those longer than a day, one per row of `out`.

    A time is a signed number of seconds (as hours, minutes and seconds in fields) and a fraction, both counted from the
    lowest bits together; an old one is the signed decimal number hhmmss.
    """
    size = (digits + 1) // 2
    for i in range(starts.size):
        out_lengths[i] = -1
        if lengths[i] < 0:
            continue
        fraction = np.int64(0)
        if old:
            clock = little_endian(buffer, starts[i], 3)
            clock -= (clock & 0x800000) << 1
            negative = clock < 0
            clock = abs(clock)
            seconds = clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100
        else:
            packed = _big_endian(buffer, starts[i], 3 + size) - (np.int64(0x800000) << (8 * size))
            negative = packed < 0
            packed = abs(packed)
            fraction = packed & ((np.int64(1) << (8 * size)) - 1)
            fields = packed >> (8 * size)
            seconds = (fields >> 12 & 0x3FF) * 3600 + (fields >> 6 & 63) * 60 + (fields & 63)
            if size == 1:
                fraction *= 10_000
            elif size == 2:
                fraction *= 100
        at = 0
        if negative:
            out[i, 0] = _MINUS
            at = 1
        out_lengths[i] = _clock(out, i, at, seconds, fraction, digits)
