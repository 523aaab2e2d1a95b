"""Delta statistics of a file, from its own data: engines use them to skip it, so a wrong one silently loses rows.

Minimum and maximum are given only if every engine reads and compares them like the data itself: integers, short
decimals, dates, timestamps (rounded outward to the milliseconds that Delta stores) and strings that are stored whole.
Not for floats (NaN is above every number but in no maximum), not for strings that would be truncated.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

INDEXED_COLUMNS = 32  # what Delta itself collects by default
WHOLE_STRING_CHARS = 32  # Delta truncates longer ones, and engines differ in how
EPOCH = datetime(1970, 1, 1)
# Outside these years calendars and text forms differ between engines.
FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(9999, 12, 30)
FIRST_MS = int((datetime(1900, 1, 1) - EPOCH).total_seconds()) * 1000
LAST_MS = int((datetime(9999, 12, 30) - EPOCH).total_seconds()) * 1000


class Statistics:
    """Collects the statistics of one file, row group by row group: of the first columns, and of all in `key`."""

    def __init__(self, schema: pa.Schema, key: Collection[str] = ()) -> None:
        self.rows = 0
        self._fields = [f for i, f in enumerate(schema) if i < INDEXED_COLUMNS or f.name in key]
        self._nulls = dict.fromkeys((f.name for f in self._fields), 0)
        self._ranges: dict[str, tuple[Any, Any]] = {}
        self._ranged = {f.name for f in self._fields if has_order(f.type)}

    def add(self, group: pa.Table) -> None:
        """Adds the next rows of the file."""
        self.rows += group.num_rows
        for field in self._fields:
            column = group.column(field.name)
            self._nulls[field.name] += column.null_count
            if field.name in self._ranged and column.null_count < len(column):
                self._widen(field, column)

    def to_json(self) -> str:
        """The `stats` of a Delta add action."""
        ranges = {f.name: _as_stored(f.type, self._ranges[f.name]) for f in self._fields if f.name in self._ranges}
        stored = {name: r for name, r in ranges.items() if r is not None}
        body = {
            "numRecords": self.rows,
            "minValues": {name: lo for name, (lo, _) in stored.items()},
            "maxValues": {name: hi for name, (_, hi) in stored.items()},
            "nullCount": self._nulls,
            "tightBounds": True,  # no row of the file is marked as deleted
        }
        return _dump(body)

    def _widen(self, field: pa.Field, column: pa.ChunkedArray) -> None:
        found = pc.min_max(_comparable(column))
        lo, hi = found["min"].as_py(), found["max"].as_py()
        if isinstance(lo, str) and max(len(lo), len(hi)) > WHOLE_STRING_CHARS:
            # Never narrowed again: a later row group could only widen the range.
            self._ranged.discard(field.name)
            self._ranges.pop(field.name, None)
            return
        if field.name in self._ranges:
            before = self._ranges[field.name]
            lo, hi = _least(lo, before[0]), _greatest(hi, before[1])
        self._ranges[field.name] = (lo, hi)


def has_order(kind: pa.DataType) -> bool:
    """Whether every engine understands the column's minimum and maximum the same way."""
    t = pa.types
    return any(holds(kind) for holds in (t.is_integer, t.is_decimal, t.is_date32, t.is_timestamp, t.is_string))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and timestamps as numbers: Python's own end with the year 9999."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _as_stored(kind: pa.DataType, values: tuple[Any, Any]) -> tuple[Any, Any] | None:
    """Minimum and maximum as Delta stores them, or None if they cannot be stored reliably."""
    lo, hi = values
    if pa.types.is_timestamp(kind):
        lo_ms, hi_ms = lo // 1000, -(-hi // 1000)
        if lo_ms < FIRST_MS or hi_ms > LAST_MS:
            return None
        return _instant(lo_ms, kind.tz), _instant(hi_ms, kind.tz)
    if pa.types.is_date32(kind):
        first, last = (FIRST_DAY - EPOCH.date()).days, (LAST_DAY - EPOCH.date()).days
        if lo < first or hi > last:
            return None
        return tuple((EPOCH.date() + timedelta(days=d)).isoformat() for d in (lo, hi))  # type: ignore[return-value]
    return lo, hi


def _instant(ms: int, zone: str | None) -> str:
    text = (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    return f"{text}Z" if zone else text


def _least(a: Any, b: Any) -> Any:
    return min(a, b, key=_in_bytes)


def _greatest(a: Any, b: Any) -> Any:
    return max(a, b, key=_in_bytes)


def _in_bytes(value: Any) -> Any:
    """Strings as UTF-8 bytes, which is Spark's order."""
    return value.encode() if isinstance(value, str) else value


def _dump(body: dict[str, Any]) -> str:
    """JSON in which a decimal is a number with all its digits."""
    numbers: dict[str, str] = {}

    def mark(value: Any) -> str:
        assert isinstance(value, Decimal)
        token = f"\x00{len(numbers)}\x00"
        numbers[json.dumps(token)] = f"{value:f}"
        return token

    text = json.dumps(body, ensure_ascii=False, default=mark, separators=(",", ":"))
    for token, digits in numbers.items():
        text = text.replace(token, digits)
    return text
