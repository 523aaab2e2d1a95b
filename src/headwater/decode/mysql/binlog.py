"""Where the values of binlog row images stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.column import NO_VALUE
from headwater.decode.kernels import ALL_WELL
from headwater.decode.layout import Piece, RowLayout, buffers, damaged
from headwater.decode.mysql import kernels_rows
from headwater.decode.mysql.kernels_rows import VARIES
from headwater.errors import DataError
from headwater.model import LogColumn, Op
from headwater.source.mysql.binlog import codes


def lay_out(batch: pa.RecordBatch, layout: RowLayout) -> Piece:
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
    size = codes.value_size(column.type_oid, column.modifier)
    if size is None:
        raise DataError(
            "data.log_damaged",
            f"column {column.name} has the binlog type {column.type_oid}, which no known server writes",
            "Report it with the upstream's version.",
        )
    own, length = size
    return (VARIES if length else own), length


def _numbers(values: Any) -> Any:
    return np.fromiter(values, dtype=np.int32)
