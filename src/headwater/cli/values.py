"""Arrow columns as plain values, exact: what JSON, CSV and the screen show of a row.

Decimals are text, timestamps and dates ISO 8601, binary base64, NaN and the infinities the words "NaN", "Infinity",
"-Infinity". Years beyond 9999, which Python's own dates cannot hold, work too.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt


def plain(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    """The column's values as JSON-compatible values; None for NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # several chunks of an extension type stay separate
        return [value for chunk in array.chunks for value in plain(chunk)]
    return _convert(array)


def distinct_names(names: tuple[str, ...]) -> list[str]:
    """The names with `_2`, `_3`, … appended to repeated ones, so that an object keeps every column."""
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, n = name, 1
        while candidate in seen:
            n += 1
            candidate = f"{name}_{n}"
        seen.add(candidate)
        result.append(candidate)
    return result


def _convert(array: pa.Array) -> list[Any]:
    kind = array.type
    for test, convert in _RULES:
        if test(kind):
            return convert(array)
    return [None if v is None else str(v) for v in array.to_pylist()]


def _as_is(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values


def _floats(array: pa.Array) -> list[Any]:
    values = array.to_pylist()
    if pt.is_float32(array.type):  # the shortest text of the float itself, not of the double
        values = [None if v is None else float(str(np.float32(v))) for v in values]
    return [v if v is None or math.isfinite(v) else _word(v) for v in values]


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decimals(array: pa.Array) -> list[Any]:
    return [None if v is None else f"{v:f}" for v in array.to_pylist()]


def _binary(array: pa.Array) -> list[Any]:
    return [None if v is None else base64.b64encode(v).decode() for v in array.to_pylist()]


def _dates(array: pa.Array) -> list[Any]:
    if pt.is_date64(array.type):
        array = array.cast(pa.date32())
    return _times(array.cast(pa.int32()), "D", "")


def _timestamps(array: pa.Array) -> list[Any]:
    zone = "Z" if array.type.tz is not None else ""
    return _times(array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64()), "us", zone)


def _times(numbers: pa.Array, unit: str, zone: str) -> list[Any]:
    known = numbers.is_valid().to_pylist()
    ticks = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]")
    texts = np.datetime_as_string(ticks).tolist()
    return [_iso(t) + zone if ok else None for t, ok in zip(texts, known, strict=True)]


def _iso(text: str) -> str:
    """ISO 8601: no empty fraction, a year of at least four digits, with a sign if it has five or more."""
    text = text.removesuffix(".000000")
    year, rest = text[: text.index("-", 1)], text[text.index("-", 1) :]
    if year[0] == "-":
        return f"-{year[1:]:0>4}{rest}"
    return f"{'+' if len(year) > 4 else ''}{year}{rest}"


def _lists(array: pa.Array) -> list[Any]:
    values = _convert(array.values)
    if pt.is_fixed_size_list(array.type):
        size = array.type.list_size
        bounds = [((array.offset + i) * size, (array.offset + i + 1) * size) for i in range(len(array))]
    else:
        offsets = array.offsets.to_pylist()
        bounds = list(pairwise(offsets))
    return [values[a:b] if ok else None for (a, b), ok in zip(bounds, array.is_valid().to_pylist(), strict=True)]


def _maps(array: pa.Array) -> list[Any]:
    keys, items, offsets = _convert(array.keys), _convert(array.items), array.offsets.to_pylist()
    entries = [{str(k): v for k, v in zip(keys[a:b], items[a:b], strict=True)} for a, b in pairwise(offsets)]
    return [e if ok else None for e, ok in zip(entries, array.is_valid().to_pylist(), strict=True)]


def _structs(array: pa.Array) -> list[Any]:
    names = distinct_names(tuple(f.name for f in array.type))
    children = [_convert(c) for c in array.flatten()]
    rows = (
        (dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)) if children else ({} for _ in array)
    )
    return [row if ok else None for row, ok in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _dictionary(array: pa.Array) -> list[Any]:
    return _convert(array.dictionary_decode())


def _any_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _any_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _plain_type(kind: pa.DataType) -> bool:
    texts = pt.is_string(kind) or pt.is_large_string(kind)
    return bool(pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_null(kind) or texts)


_RULES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], list[Any]]], ...] = (
    (_plain_type, _as_is),
    (pt.is_floating, _floats),
    (pt.is_decimal, _decimals),
    (_any_binary, _binary),
    (pt.is_date, _dates),
    (pt.is_timestamp, _timestamps),
    (pt.is_map, _maps),
    (_any_list, _lists),
    (pt.is_struct, _structs),
    (pt.is_dictionary, _dictionary),
)
