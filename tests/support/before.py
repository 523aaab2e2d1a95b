"""Changed rows as they were, as far as the log has them: decoding itself needs only the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from headwater.decode.changes import _column
from headwater.decode.column import NO_VALUE
from headwater.decode.layout import lay_out
from headwater.decode.values import arrow_schema
from headwater.model import Column, SchemaVersion


def decode_before(
    raw: pa.Table, schemas: Mapping[int, SchemaVersion], columns: tuple[Column, ...], key: tuple[str, ...]
) -> pa.ChunkedArray:
    """Per change the row as it was, as far as the upstream sent it: a struct of the relation's columns.

    NULL if it sent nothing; all columns under REPLICA IDENTITY FULL, otherwise only the key.
    """
    fields = list(arrow_schema(columns))
    chunks = []
    for piece in lay_out(raw, schemas, columns, key):
        if not piece.old_lengths.size:
            chunks.append(pa.nulls(piece.batch.num_rows, pa.struct(fields)))
            continue
        nothing = (piece.old_lengths == NO_VALUE).all(axis=0)  # an existing row has at least its key
        arrays = [
            _column(piece, piece.old_starts, piece.old_lengths, slot, column, key, Counter())
            for slot, column in enumerate(columns)
        ]
        chunks.append(pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(nothing)))
    return pa.chunked_array(chunks, pa.struct(fields))
