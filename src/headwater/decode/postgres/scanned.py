"""Batches of a PostgreSQL scan, as returned by ADBC → the relation's columns in Arrow, the same values as the log's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.decode import kernels_bytes, kernels_time
from headwater.decode.column import Decoded, unrepresentable_key
from headwater.decode.column import column as make_column
from headwater.decode.kernels import KEPT, NULL
from headwater.decode.postgres.text import decode_text
from headwater.decode.postgres.types import scans_as_text
from headwater.decode.text import exact_floats
from headwater.decode.values import arrow_schema, arrow_type
from headwater.errors import DataError
from headwater.model import Column

_TEXT = "CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.concat({0}) END"


def select_expression(column: Column) -> str:
    """What a scan selects for a column, with `{0}` in place of its quoted name.

    As text it is the type's output function, which is what the log sends. `::text` is another function for some types:
    it drops the padding of char(n), writes `true` for `t`, and adds `/32` to an inet.
    """
    return _TEXT if scans_as_text(column.upstream, column.lake_type) else "{0}"


def text_expression(column: Column) -> str:
    """The database's own text form of a column, as the log sends it; NULL stays NULL (also for composites)."""
    return _TEXT


def to_lake(
    batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str] = ()
) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The batch in `arrow_schema(columns)`, and per column the number of unrepresentable values, which became NULL.

    The batch has the columns first, in order, by `select_expression`. In a key such a value raises data.key_value.
    """
    unrepresentable: dict[str, int] = {}
    arrays = []
    for array, column in zip(batch.columns[: len(columns)], columns, strict=True):
        decoded = _to_lake(array, column)
        if decoded.unrepresentable:
            if column.name in key:
                raise unrepresentable_key(column.name)
            unrepresentable[column.name] = decoded.unrepresentable
        arrays.append(decoded.array)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns)), unrepresentable


def _to_lake(array: pa.Array, column: Column) -> Decoded:
    target = arrow_type(column.lake_type)
    if scans_as_text(column.upstream, column.lake_type):
        _require(pa.types.is_string(array.type), column)
        if column.lake_type != "STRING":
            return decode_text(*_places(array), column.upstream, column.lake_type)
        return _texts(array)
    _require(_FAMILIES[column.upstream.name](array.type), column)
    if pa.types.is_string(target):
        return _texts(array)
    if pa.types.is_date32(target):
        return _ranged(array, pa.int32(), kernels_time.FIRST_DAY, kernels_time.LAST_DAY, target)
    if pa.types.is_timestamp(target):
        return _ranged(array, pa.int64(), kernels_time.FIRST_US, kernels_time.LAST_US, target)
    if pa.types.is_integer(target) and array.type.bit_width > target.bit_width:
        highest = 2 ** (target.bit_width - 1) - 1
        return _ranged(array, array.type, -highest - 1, highest, target)
    if pa.types.is_float32(target) and pa.types.is_float64(array.type):
        return exact_floats(array, pc.cast(array, target, safe=False))
    return Decoded(array if array.type == target else pc.cast(array, target), 0, None)


# What a scan may return for a type, including wider ones: the column may have been widened upstream.
_FAMILIES: dict[str, Callable[[pa.DataType], bool]] = {
    "bool": pa.types.is_boolean,
    **dict.fromkeys(("int2", "int4", "int8"), pa.types.is_integer),
    **dict.fromkeys(("float4", "float8"), pa.types.is_floating),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), pa.types.is_string),
    "bytea": pa.types.is_binary,
    "date": pa.types.is_date32,
    **dict.fromkeys(("timestamp", "timestamptz"), pa.types.is_timestamp),
}


def _require(right: bool, column: Column) -> None:
    if not right:
        raise DataError(
            "data.schema_changed",
            f"the type of column {column.name} changed",
            "RESYNC TABLE reads it again in its new form.",
        )


def _places(array: pa.Array) -> tuple[Any, Any, Any]:
    """Where the texts of a string array are: buffer, starts, lengths."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return bytes_, ends[:-1], lengths


def _texts(array: pa.Array) -> Decoded:
    """Strings unchanged, except those that are not UTF-8."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return Decoded(array, 0, None)
    places = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    bytes_ = np.frombuffer(data, np.uint8)
    if not (np.bitwise_or.reduce(bytes_[places[0] : places[-1]]) & 0x80 if places[-1] > places[0] else False):
        return Decoded(array, 0, None)
    marks = np.full(len(array), KEPT, dtype=np.uint8)
    if array.null_count:
        marks[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    kernels_bytes.mark_utf8(bytes_, places, marks)
    checked = make_column(pa.string(), marks, np.ascontiguousarray(places), bytes_)
    return checked if checked.unrepresentable else Decoded(array, 0, None)


def _ranged(array: pa.Array, plain: pa.DataType, first: int, last: int, target: pa.DataType) -> Decoded:
    """Numbers, dates and timestamps (as numbers of type `plain`) from `first` to `last`.

    ADBC lets infinities, and values that its epoch pushes out of range, wrap to the far end: they are outside too.
    """
    numbers = array.view(plain)
    outside = pc.or_(pc.less(numbers, pa.scalar(first, plain)), pc.greater(numbers, pa.scalar(last, plain)))
    count = pc.sum(outside).as_py() or 0
    bad = outside.fill_null(False) if count else None
    if bad is not None:
        numbers = pc.if_else(bad, pa.scalar(None, plain), numbers)
    kept = numbers.cast(target) if pa.types.is_integer(target) else numbers.view(target)
    return Decoded(kept, count, None if bad is None else bad.to_numpy(zero_copy_only=False))
