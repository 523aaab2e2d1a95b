"""Result rows of a scan → the relation's columns in Arrow, the same values as from the log.

Rows come as the server wrote them: a length and a text for each value, in the column's own charset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode import kernels_bytes
from headwater.decode.column import Decoded, check, offsets_of, unrepresentable_key
from headwater.decode.column import column as make_column
from headwater.decode.kernels import KEPT, NULL, OK
from headwater.decode.mysql import kernels_resultset
from headwater.decode.mysql.charsets import decode_charset
from headwater.decode.mysql.types import BINARIES, GEOMETRIES, INTEGERS
from headwater.decode.text import decode_text
from headwater.decode.values import arrow_schema, arrow_type
from headwater.errors import DataError
from headwater.model import Column, UpstreamType
from headwater.source.mysql.client.codepoints import UTF8

ROWS_AT_ONCE = 65_536  # the places of their values stay in the CPU cache
SRID_BYTES = 4  # before the WKB of a geometry
FLOAT_BYTES = 4


def select_expression(column: Column) -> str:
    """What a scan selects for a column, with `{0}` in place of its quoted name."""
    type = column.upstream
    if type.name in INTEGERS and type.unsigned:
        return "{0} + 0"  # without ZEROFILL's zeros, which are not in the log
    if type.name == "decimal" and type.unsigned and column.lake_type == "STRING":
        return f"CAST({{0}} AS DECIMAL({type.precision},{type.scale or 0}))"
    if type.name in ("float", "double"):
        return "{0} * 1e0"  # a FLOAT alone is rounded to 6 digits, and a DOUBLE(M,D) to D; plus 0 would lose -0
    if column.lake_type == "STRING" and _is_bytes(type):
        return f"CONCAT('0x', HEX({_bytes(type)}))"
    return "{0}"


def text_expression(column: Column) -> str:
    """The text form of a key column for bounds, with `{0}` in place of its quoted name."""
    type = column.upstream
    if column.lake_type == "BOOLEAN" and type.name == "bit":
        return "{0} + 0"
    if _is_bytes(type):
        return f"CONCAT(_utf8mb4 x'5c78', LOWER(HEX({_bytes(type)})))"
    if type.charset and type.charset not in UTF8:
        return "CONVERT({0} USING utf8mb4)"
    return select_expression(column)


def to_lake(
    batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str] = ()
) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The batch in `arrow_schema(columns)`, and per column the number of unrepresentable values, which became NULL.

    The batch has one value per row: its texts, those of the columns first. In a key such a value raises data.key_value.
    """
    schema = arrow_schema(columns)
    unrepresentable: dict[str, int] = {}
    parts = []
    for data, starts, lengths in _pieces(batch, len(columns)):
        arrays = []
        for i, column in enumerate(columns):
            decoded = decode(data, starts[i], lengths[i], column.upstream, column.lake_type)
            if decoded.unrepresentable:
                if column.name in key:
                    raise unrepresentable_key(column.name)
                unrepresentable[column.name] = unrepresentable.get(column.name, 0) + decoded.unrepresentable
            arrays.append(decoded.array)
        parts.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return _joined(parts, schema), unrepresentable


def decode(buffer: Any, starts: Any, lengths: Any, type: UpstreamType, lake_type: str) -> Decoded:
    """The lake values of the texts in `buffer` (uint8) at `starts`; a negative length is a NULL."""
    if lake_type == "BOOLEAN":
        out = np.empty(starts.size, np.uint8)
        marks = np.empty(starts.size, np.uint8)
        check(kernels_resultset.parse_booleans(buffer, starts, lengths, out, marks), type.name)
        return make_column(pa.bool_(), marks, np.packbits(out, bitorder="little"))
    if lake_type == "DATE":
        return _times(kernels_resultset.parse_dates, np.int32, buffer, starts, lengths, type, lake_type)
    if lake_type in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return _times(kernels_resultset.parse_moments, np.int64, buffer, starts, lengths, type, lake_type)
    if lake_type == "BINARY":
        return _bytes_of(buffer, starts, lengths, SRID_BYTES if type.name in GEOMETRIES else 0)
    if lake_type.startswith("ARRAY<"):
        return _vectors(buffer, starts, lengths, lake_type)
    if lake_type == "STRING" and type.charset and not _is_bytes(type):
        return decode_charset(buffer, starts, lengths, type.charset)
    return decode_text(buffer, starts, lengths, type, lake_type)


def _pieces(batch: pa.RecordBatch, values: int) -> Iterator[tuple[Any, Any, Any]]:
    """Some rows' bytes, and where the first values of each are: (values, rows)."""
    rows = batch.column(0)
    _, offsets, data = rows.buffers()
    every = np.frombuffer(offsets, np.int32)[rows.offset : rows.offset + len(rows) + 1]
    bytes_ = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        some = every[first : first + ROWS_AT_ONCE + 1]
        starts = np.empty((values, some.size - 1), np.int64)
        lengths = np.empty((values, some.size - 1), np.int64)
        if kernels_resultset.lay_out(bytes_, some, starts, lengths) != OK:
            raise DataError(
                "data.log_damaged",
                "a row of a scan has fewer values than the statement selected",
                "Report it with the upstream's version.",
            )
        yield bytes_, starts, lengths


def _joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches(parts, schema).combine_chunks()
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def _times(
    parse: Any, width: Any, buffer: Any, starts: Any, lengths: Any, type: UpstreamType, lake_type: str
) -> Decoded:
    out = np.empty(starts.size, width)
    marks = np.empty(starts.size, np.uint8)
    check(parse(buffer, starts, lengths, out, marks), type.name)
    return make_column(arrow_type(lake_type), marks, out)


def _bytes_of(buffer: Any, starts: Any, lengths: Any, skip: int) -> Decoded:
    """The values' bytes, without the first `skip` bytes."""
    if skip:
        starts, lengths = starts + skip, np.where(lengths < 0, lengths, np.maximum(lengths - skip, 0))
    offsets = offsets_of(np.maximum(lengths, 0))
    out = np.empty(int(offsets[-1]), np.uint8)
    kernels_bytes.gather(buffer, starts, lengths, offsets, out)
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    return make_column(pa.binary(), marks, offsets, out)


def _vectors(buffer: Any, starts: Any, lengths: Any, lake_type: str) -> Decoded:
    """Little-endian four-byte floats, one after another."""
    sizes = np.maximum(lengths, 0)
    offsets = offsets_of(sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    kernels_bytes.gather(buffer, starts, lengths, offsets, out)
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    type_ = arrow_type(lake_type)
    numbers = pa.array(out.view("<f4")).cast(type_.value_type)
    return make_column(type_, marks, offsets // FLOAT_BYTES, children=[numbers])


def _is_bytes(type: UpstreamType) -> bool:
    """Whether SELECT returns bytes that are not text."""
    return type.name in BINARIES | GEOMETRIES | {"bit", "vector"} or (type.charset == "binary" and type.name != "json")


def _bytes(type: UpstreamType) -> str:
    """The column as bytes: HEX of a bit would be that of a number, without its leading zeros."""
    return "CAST({0} AS BINARY)" if type.name == "bit" else "{0}"
