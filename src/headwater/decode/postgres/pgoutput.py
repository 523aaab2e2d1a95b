"""Where the values of pgoutput's row messages are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.kernels import OK
from headwater.decode.layout import Piece, RowLayout, buffers, damaged
from headwater.decode.postgres import kernels_pgoutput

_TAG_AT = 5  # after the type byte and the table's oid


def lay_out(batch: pa.RecordBatch, layout: RowLayout) -> Piece:
    """Where the values of these messages are."""
    data, offsets = buffers(batch.column("payload"))
    piece = Piece.blank(batch, layout, data, has_old=_has_old(data, offsets))
    answer = kernels_pgoutput.lay_out(data, offsets, layout.ordinals, layout.keys, layout.identity, *piece.grids)
    if answer != OK:
        raise damaged(batch, answer)
    return piece


def _has_old(data: Any, offsets: Any) -> bool:
    """Whether any message begins with an old tuple, of kind K or O."""
    places = offsets[:-1].astype(np.int64) + _TAG_AT
    tags = data[np.minimum(places, data.size - 1)] if data.size else np.zeros(places.size, np.uint8)
    return bool(((tags == ord("K")) | (tags == ord("O"))).any())
