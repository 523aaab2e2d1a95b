"""Texts that all databases write the same way, by their places in a buffer → an Arrow array of lake values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.decode import kernels_bytes, kernels_number, kernels_time
from headwater.decode.column import Decoded, check, column, offsets_of
from headwater.decode.kernels import KEPT, NULL
from headwater.decode.values import arrow_type, decimal_size
from headwater.errors import DataError
from headwater.model import UpstreamType

_HIGHEST = {
    "TINYINT": (np.int8, 2**7 - 1),
    "SMALLINT": (np.int16, 2**15 - 1),
    "INT": (np.int32, 2**31 - 1),
    "BIGINT": (np.int64, 2**63 - 1),
}


def decode_text(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    """The values of the texts in `buffer` (uint8) at `starts` (int64); a negative length is a NULL.

    An invalid text raises DataError data.log_damaged: settings or schema are not the expected ones.
    """
    if lake_type == "STRING":
        return _strings(buffer, starts, lengths)
    if lake_type in ("FLOAT", "DOUBLE"):
        return _floats(buffer, starts, lengths, upstream, lake_type)
    if lake_type == "BINARY":
        return _binaries(buffer, starts, lengths)
    return _fixed(buffer, starts, lengths, upstream, lake_type)


def _fixed(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    """Types whose values have a fixed width."""
    n = starts.size
    marks = np.empty(n, dtype=np.uint8)
    size = decimal_size(lake_type)
    out: Any
    if lake_type == "BOOLEAN":
        out = np.empty(n, dtype=np.uint8)
        answer = kernels_number.parse_booleans(buffer, starts, lengths, out, marks)
        out = np.packbits(out, bitorder="little")
    elif lake_type in _HIGHEST:
        dtype, highest = _HIGHEST[lake_type]
        out = np.empty(n, dtype=dtype)
        answer = kernels_number.parse_integers(buffer, starts, lengths, highest, out, marks)
    elif lake_type == "DATE":
        out = np.empty(n, dtype=np.int32)
        answer = kernels_time.parse_dates(buffer, starts, lengths, out, marks)
    elif lake_type in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        out = np.empty(n, dtype=np.int64)
        answer = kernels_time.parse_timestamps(buffer, starts, lengths, out, marks)
    elif size is not None:
        out = np.empty((n, 2), dtype=np.uint64)
        limit = 10 ** size[0]
        answer = kernels_number.parse_decimals(
            buffer, starts, lengths, size[1], np.uint64(limit >> 64), np.uint64(limit & (2**64 - 1)), out, marks
        )
    else:
        raise AssertionError(f"no decoder for {lake_type}")
    check(answer, upstream.name)
    return column(arrow_type(lake_type), marks, out)


def _gathered(buffer: Any, starts: Any, lengths: Any) -> tuple[Any, Any, int]:
    """Texts concatenated: offsets, bytes, and the OR of all their bytes."""
    offsets = offsets_of(np.maximum(lengths, 0))
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    return offsets, out, kernels_bytes.gather(buffer, starts, lengths, offsets, out)


def _strings(buffer: Any, starts: Any, lengths: Any) -> Decoded:
    offsets, out, seen = _gathered(buffer, starts, lengths)
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    if seen & 0x80:
        kernels_bytes.mark_utf8(out, offsets, marks)
    return column(pa.string(), marks, offsets, out)


def _binaries(buffer: Any, starts: Any, lengths: Any) -> Decoded:
    offsets = offsets_of(np.maximum(lengths - 2, 0) // 2)
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    marks = np.empty(starts.size, dtype=np.uint8)
    answer = kernels_bytes.parse_hex(buffer, starts, lengths, offsets, out, marks)
    check(answer, "bytea")
    return column(pa.binary(), marks, offsets, out)


def _floats(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    """Float values; Arrow's parser rounds correctly, so the shortest text of extra_float_digits yields the same bits.

    A float4 is parsed as one and then widened: its text has only the digits that distinguish float4 values.
    """
    offsets, out, _ = _gathered(buffer, starts, lengths)
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    texts = column(pa.string(), marks, offsets, out).array
    target = arrow_type(lake_type)
    own = pa.float32() if upstream.name == "float4" else pa.float64()
    try:
        values = pc.cast(texts, own)
    except pa.ArrowInvalid as e:
        raise DataError("data.log_damaged", f"a value of type {upstream.name} is not a number") from e
    if own == target:
        return Decoded(values, 0, None)
    cast = pc.cast(values, target, safe=False)
    if own == pa.float32():
        return Decoded(cast, 0, None)
    return exact_floats(values, cast)


def exact_floats(values: pa.Array, cast: pa.Array) -> Decoded:
    """The narrower floats if they are the same numbers, NULL otherwise (the column was widened to double upstream)."""
    wide = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    back = cast.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    bad = ~((wide == back) | (np.isnan(wide) & np.isnan(back)))
    if not bad.any():
        return Decoded(cast, 0, None)
    return Decoded(pc.if_else(pa.array(bad), pa.scalar(None, cast.type), cast), int(bad.sum()), bad)
