"""Where the values of pgoutput's row messages stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.column import NO_VALUE
from headwater.decode.kernels import ALL_WELL
from headwater.decode.layout import Piece, RowLayout, buffers, damaged
from headwater.decode.postgres import kernels_pgoutput

_TAG_AT = 5  # after the type byte and the table's oid


def lay_out(batch: pa.RecordBatch, layout: RowLayout) -> Piece:
    """Where the values of these messages stand."""
    data, offsets = buffers(batch.column("payload"))
    shape = (len(layout.types), batch.num_rows)
    has_old = _has_old(data, offsets)
    old_shape = (shape[0], shape[1] if has_old.any() else 0)
    starts, old_starts = np.zeros(shape, np.int64), np.zeros(old_shape, np.int64)
    lengths = np.full(shape, NO_VALUE, np.int64)
    old_lengths = np.full(old_shape, NO_VALUE, np.int64)
    moved = np.zeros(batch.num_rows, dtype=np.uint8)
    answer = kernels_pgoutput.lay_out(
        *(data, offsets, layout.slots, layout.keys, layout.identity),
        *(starts, lengths, old_starts, old_lengths, moved),
    )
    if answer != ALL_WELL:
        raise damaged(batch, answer)
    return Piece(batch, layout, data, starts, lengths, old_starts, old_lengths, has_old, moved)


def _has_old(data: Any, offsets: Any) -> Any:
    """Which messages begin with an old tuple, of kind K or O."""
    places = offsets[:-1].astype(np.int64) + _TAG_AT
    tags = data[np.minimum(places, data.size - 1)] if data.size else np.zeros(places.size, np.uint8)
    return (tags == ord("K")) | (tags == ord("O"))
