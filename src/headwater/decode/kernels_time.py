"""Kernels for the calendar, and for dates and timestamps in ISO form, as PostgreSQL prints them under DateStyle ISO.

Only the years 1 to 9999 are representable: SQL, Spark, Parquet and Python's datetime all have these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from headwater.decode.kernels import BYTES, KEPT, MARKS, NULL, OK, PLACES, UNREPRESENTABLE
from headwater.kernel import kernel

FIRST_DAY = -719162  # 0001-01-01 in days since 1970-01-01
LAST_DAY = 2932896  # 9999-12-31
DAY_US, SECOND_US = 86_400_000_000, 1_000_000
FIRST_US = FIRST_DAY * DAY_US
LAST_US = (LAST_DAY + 1) * DAY_US - 1

_MINUS, _PLUS, _DOT, _COLON, _SPACE, _ZERO, _NINE = 45, 43, 46, 58, 32, 48, 57
_I, _B = 105, 66  # infinity, BC
_MALFORMED = -(1 << 40)  # no valid date has this number
_OUTSIDE = _MALFORMED + 1
_HOUR_US, _MINUTE_US = 3_600_000_000, 60_000_000


@kernel(types.int64(types.int64, types.int64, types.int64))
def days_since_1970(year: Any, month: Any, day: Any) -> Any:
    """Days since 1970-01-01 of a calendar date."""
    shifted = year - 1 if month <= 2 else year  # years that begin in March put the leap day last
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@kernel(types.int64(BYTES, types.int64, types.int64))
def _pair(buffer: Any, at: Any, end: Any) -> Any:
    """Two digits as a number, or -1."""
    if at + 2 > end:
        return -1
    a = np.int64(buffer[at]) - _ZERO
    b = np.int64(buffer[at + 1]) - _ZERO
    if a < 0 or a > 9 or b < 0 or b > 9:
        return -1
    return a * 10 + b


@kernel(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def _day(buffer: Any, at: Any, end: Any) -> Any:
    """Days since 1970-01-01 of the `YYYY-MM-DD` at `at`, and where it ends."""
    year = np.int64(0)
    first = at
    while at < end and _ZERO <= buffer[at] <= _NINE and at - first < 9:
        year = year * 10 + (np.int64(buffer[at]) - _ZERO)
        at += 1
    if at - first < 4 or at + 6 > end or buffer[at] != _MINUS or buffer[at + 3] != _MINUS:
        return _MALFORMED, at
    month = _pair(buffer, at + 1, end)
    day = _pair(buffer, at + 4, end)
    at += 6
    if month < 1 or month > 12 or day < 1 or day > 31:
        return _MALFORMED, at
    if year < 1 or year > 9999:
        return _OUTSIDE, at
    return days_since_1970(year, month, day), at


@kernel(types.boolean(BYTES, types.int64, types.int64))
def _infinite(buffer: Any, at: Any, end: Any) -> Any:
    if at < end and buffer[at] == _MINUS:
        at += 1
    return at < end and buffer[at] == _I


@kernel(types.boolean(BYTES, types.int64, types.int64))
def _before_christ(buffer: Any, at: Any, end: Any) -> Any:
    return end - at == 3 and buffer[at] == _SPACE and buffer[at + 1] == _B


@kernel(types.int64(BYTES, PLACES, PLACES, types.int32[::1], MARKS))
def parse_dates(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> Any:
    """Days since 1970-01-01."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        marks[i] = UNREPRESENTABLE
        at = starts[i]
        end = at + lengths[i]
        if _infinite(buffer, at, end):
            continue
        day, at = _day(buffer, at, end)
        before_christ = _before_christ(buffer, at, end)
        if day == _MALFORMED or (at != end and not before_christ):
            return i
        if day == _OUTSIDE or before_christ:
            continue
        out[i] = np.int32(day)
        marks[i] = KEPT
    return OK


@kernel(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def _clock(buffer: Any, at: Any, end: Any) -> Any:
    """Microseconds of the `HH:MM:SS[.ffffff]` at `at` (or -1), and where it ends."""
    hour = _pair(buffer, at, end)
    minute = _pair(buffer, at + 3, end)
    second = _pair(buffer, at + 6, end)
    if hour < 0 or minute < 0 or second < 0 or buffer[at + 2] != _COLON or buffer[at + 5] != _COLON:
        return -1, at
    at += 8
    fraction = np.int64(0)
    if at < end and buffer[at] == _DOT:
        at += 1
        unit = np.int64(100_000)
        while at < end and _ZERO <= buffer[at] <= _NINE:
            fraction += (np.int64(buffer[at]) - _ZERO) * unit
            unit //= 10
            at += 1
    return hour * _HOUR_US + minute * _MINUTE_US + second * SECOND_US + fraction, at


@kernel(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64))
def _zone(buffer: Any, at: Any, end: Any) -> Any:
    """Microseconds east of UTC of the `±HH[:MM[:SS]]` at `at`, and where it ends (-1: malformed)."""
    if at >= end or (buffer[at] != _PLUS and buffer[at] != _MINUS):
        return 0, at
    sign = 1 if buffer[at] == _PLUS else -1
    total = _pair(buffer, at + 1, end) * _HOUR_US
    if total < 0:
        return 0, -1
    at += 3
    unit = np.int64(_MINUTE_US)
    while at < end and buffer[at] == _COLON and unit > 0:
        part = _pair(buffer, at + 1, end)
        if part < 0:
            return 0, -1
        total += part * unit
        unit = np.int64(SECOND_US) if unit == _MINUTE_US else np.int64(0)
        at += 3
    return sign * total, at


@kernel(types.int64(BYTES, PLACES, PLACES, types.int64[::1], MARKS))
def parse_timestamps(buffer: Any, starts: Any, lengths: Any, out: Any, marks: Any) -> Any:
    """Microseconds since 1970-01-01 00:00; an offset, if present, is subtracted."""
    for i in range(starts.size):
        out[i] = 0
        if lengths[i] < 0:
            marks[i] = NULL
            continue
        marks[i] = UNREPRESENTABLE
        at = starts[i]
        end = at + lengths[i]
        if _infinite(buffer, at, end):
            continue
        day, at = _day(buffer, at, end)
        if day == _MALFORMED or at >= end or buffer[at] != _SPACE:
            return i
        clock, at = _clock(buffer, at + 1, end)
        if clock < 0:
            return i
        zone, at = _zone(buffer, at, end)
        before_christ = _before_christ(buffer, at, end)
        if at < 0 or (at != end and not before_christ):
            return i
        if day == _OUTSIDE or before_christ:
            continue
        value = day * DAY_US + clock - zone
        if value < FIRST_US or value > LAST_US:
            continue
        out[i] = value
        marks[i] = KEPT
    return OK
