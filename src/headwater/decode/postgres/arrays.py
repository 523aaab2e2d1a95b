"""Array texts → Arrow lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.column import Decoded, check, column, offsets_of
from headwater.decode.kernels import KEPT, UNREPRESENTABLE
from headwater.decode.postgres import kernels_array
from headwater.decode.postgres.types import element_of
from headwater.decode.values import arrow_type
from headwater.model import UpstreamType


def decode_arrays(
    buffer: Any,
    starts: Any,
    lengths: Any,
    upstream: UpstreamType,
    lake_type: str,
    decode_elements: Callable[[Any, Any, Any, UpstreamType, str], Decoded],
) -> Decoded:
    """Lists of the elements' lake values. NULL elements stay.

    Unrepresentable as a whole: an array with several dimensions, one that does not begin at 1, and one with an
    unrepresentable element (a NULL in its place would look like one of the upstream's).
    """
    sizes = np.maximum(lengths, 0)
    n = starts.size
    marks = np.empty(n, dtype=np.uint8)
    offsets = np.empty(n + 1, dtype=np.int32)
    texts = np.empty(int(sizes.sum()), dtype=np.uint8)
    most = int(((sizes + 1) // 2).sum())
    element_starts = np.empty(most, dtype=np.int64)
    element_lengths = np.empty(most, dtype=np.int64)
    answer = kernels_array.split_arrays(buffer, starts, lengths, offsets, texts, element_starts, element_lengths, marks)
    check(answer, upstream.name)
    count = int(offsets[-1])
    elements = decode_elements(
        texts, element_starts[:count], element_lengths[:count], element_of(upstream), lake_type[6:-1]
    )
    values = elements.array
    if elements.bad is not None:
        owners = np.searchsorted(offsets, np.flatnonzero(elements.bad), side="right") - 1
        marks[owners] = UNREPRESENTABLE
        counts = np.diff(offsets)
        # Parquet allows no elements in a NULL list
        values = values.filter(pa.array(np.repeat(marks == KEPT, counts)))
        offsets = offsets_of(np.where(marks == KEPT, counts, 0))
    return column(arrow_type(lake_type), marks, offsets, children=[values])
