"""Where the values of binlog row images are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.kernels import OK
from headwater.decode.layout import Piece, RowLayout, buffers, damaged
from headwater.decode.mysql import kernels_rows
from headwater.decode.mysql.kernels_rows import VARIES
from headwater.errors import DataError
from headwater.model import LogColumn, Op
from headwater.source.mysql.binlog import codes


def lay_out(batch: pa.RecordBatch, layout: RowLayout) -> Piece:
    """Where the values of these row images are."""
    data, offsets = buffers(batch.column("payload"))
    ops = batch.column("op").to_numpy()
    forms = [form(c) for c in layout.written]
    has_old = bool(((ops == Op.UPDATE) | (ops == Op.DELETE)).any())
    piece = Piece.blank(batch, layout, data, has_old=has_old)
    answer = kernels_rows.lay_out(
        *(
            data,
            offsets,
            ops,
            _numbers(f[0] for f in forms),
            _numbers(f[1] for f in forms),
            layout.ordinals,
            layout.keys,
        ),
        *piece.grids,
    )
    if answer != OK:
        raise damaged(batch, answer)
    return piece


def form(column: LogColumn) -> tuple[int, int]:
    """Size of a column's values in an image, and the number of length bytes before each if the size is VARIES."""
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
