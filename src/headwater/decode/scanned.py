"""Batches of a scan, as returned by the source → the relation's columns in Arrow, the same values as from the log."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.decode.dialects import dialect_of
from headwater.model import Column


def select_expression(column: Column) -> str:
    """What a scan selects for a column, with `{0}` in place of its quoted name."""
    return dialect_of(column.upstream).select_expression(column)


def text_expression(column: Column) -> str:
    """The text form of a key column for bounds, with `{0}` in place of its quoted name."""
    return dialect_of(column.upstream).text_expression(column)


def to_lake(
    batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str] = ()
) -> tuple[pa.RecordBatch, dict[str, int]]:
    """The batch in `arrow_schema(columns)`, and per column the number of unrepresentable values, which became NULL.

    The batch is what `Scan.batches` returns. In a key such a value raises data.key_value.
    """
    return dialect_of(columns[0].upstream).to_lake(batch, columns, key)
