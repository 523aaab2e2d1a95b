"""Where the values of binlog row images stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.column import NO_VALUE
from headwater.decode.kernels import ALL_WELL
from headwater.decode.layout import Layout, Piece, buffers, damaged
from headwater.decode.mysql import codes, kernels_rows
from headwater.decode.mysql.kernels_rows import VARIES
from headwater.errors import DataError
from headwater.model import LogColumn, Op

_FIXED = {
    codes.TINY: 1,
    codes.SHORT: 2,
    codes.INT24: 3,
    codes.LONG: 4,
    codes.LONGLONG: 8,
    codes.FLOAT: 4,
    codes.DOUBLE: 8,
    codes.YEAR: 1,
    codes.DATE: 3,
    codes.NEWDATE: 3,
    codes.OLD_TIME: 3,
    codes.OLD_DATETIME: 8,
    codes.OLD_TIMESTAMP: 4,
}
_WHOLE_SECONDS = {codes.TIME: 3, codes.DATETIME: 5, codes.TIMESTAMP: 4}
_PREFIX_IN_METADATA = {
    *(codes.TINY_BLOB, codes.MEDIUM_BLOB, codes.LONG_BLOB, codes.BLOB),
    *(codes.JSON, codes.GEOMETRY, codes.VECTOR, codes.BLOB_COMPRESSED),
}
_SHORT_STRING = 255  # the longest column whose lengths take one byte


def lay_out(batch: pa.RecordBatch, layout: Layout) -> Piece:
    """Where the values of these row images stand."""
    data, offsets = buffers(batch.column("payload"))
    ops = batch.column("op").to_numpy()
    forms = [form(c) for c in layout.written]
    shape = (len(layout.types), batch.num_rows)
    has_old = (ops == Op.UPDATE) | (ops == Op.DELETE)
    old_shape = (shape[0], shape[1] if has_old.any() else 0)
    starts, old_starts = np.zeros(shape, np.int64), np.zeros(old_shape, np.int64)
    lengths = np.full(shape, NO_VALUE, np.int64)
    old_lengths = np.full(old_shape, NO_VALUE, np.int64)
    moved = np.zeros(batch.num_rows, dtype=np.uint8)
    answer = kernels_rows.lay_out(
        *(data, offsets, ops, _numbers(f[0] for f in forms), _numbers(f[1] for f in forms), layout.slots, layout.keys),
        *(starts, lengths, old_starts, old_lengths, moved),
    )
    if answer != ALL_WELL:
        raise damaged(batch, answer)
    return Piece(batch, layout, data, starts, lengths, old_starts, old_lengths, has_old, moved)


def form(column: LogColumn) -> tuple[int, int]:
    """Size of a column's values in an image, and how many bytes before each tell it if the size is VARIES."""
    code, modifier = column.type_oid, column.modifier
    if code in _FIXED:
        return _FIXED[code], 0
    if code in _WHOLE_SECONDS:
        return _WHOLE_SECONDS[code] + (modifier + 1) // 2, 0
    if code == codes.DECIMAL:
        return codes.decimal_bytes(modifier >> 8, modifier & 0xFF), 0
    if code == codes.BIT:
        return (modifier >> 8) + (modifier & 0xFF > 0), 0
    if code in (codes.ENUM, codes.SET):
        return modifier, 0
    if code in _PREFIX_IN_METADATA:
        return VARIES, modifier
    if code in (codes.VARCHAR, codes.VAR_STRING, codes.STRING, codes.VARCHAR_COMPRESSED):
        return VARIES, 1 if modifier <= _SHORT_STRING else 2
    raise DataError(
        "data.log_damaged",
        f"column {column.name} has the binlog type {code}, which no known server writes",
        "Report it with the upstream's version.",
    )


def _numbers(values: Any) -> Any:
    return np.fromiter(values, dtype=np.int32)
