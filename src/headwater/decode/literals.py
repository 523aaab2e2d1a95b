"""Key values in the database's text form (bounds of spans) → lake values, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.decode.column import unrepresentable_key
from headwater.decode.text import decode_text
from headwater.model import Column


def key_array(texts: list[str], column: Column) -> pa.Array:
    """The lake values of key texts as `scan.text_expression` or the log provide them."""
    values = [t.encode() for t in texts]
    lengths = np.array([len(v) for v in values], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))[:-1]
    buffer = np.frombuffer(b"".join(values), dtype=np.uint8)
    decoded = decode_text(buffer, starts.astype(np.int64), lengths, column.upstream, column.lake_type)
    if decoded.unrepresentable:
        raise unrepresentable_key(column.name)
    return decoded.array


def key_texts(values: pa.Array | pa.ChunkedArray) -> list[str]:
    """Texts that the database parses back to these key values: bounds from decoded changes."""
    if pa.types.is_binary(values.type):
        return ["\\x" + v.hex() for v in values.to_pylist()]
    return [str(v) for v in values.to_pylist()]
