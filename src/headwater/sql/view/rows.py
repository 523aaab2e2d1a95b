"""Listings as results: columns of a few types, rows as tuples."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.engine.results import Result

STRING, LONG, DOUBLE, TIME = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC")
DDL = {STRING: "STRING", LONG: "BIGINT", DOUBLE: "DOUBLE", TIME: "TIMESTAMP"}
Columns = Sequence[tuple[str, pa.DataType]]


def rows_of(columns: Columns, rows: Sequence[Sequence[object]], statement: str) -> Result:
    by_column = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    arrays = [pa.array(list(v), type) for v, (_, type) in zip(by_column, columns, strict=True)]
    names = tuple(name for name, _ in columns)
    table = pa.Table.from_arrays(arrays, names=list(names))
    return Result(names, tuple(DDL[type] for _, type in columns), table, statement=statement)


def error_text(error: dict[str, str] | None) -> str | None:
    """A stored error as a listing shows it."""
    return None if error is None else f"{error['message']} ({error['code']})"
