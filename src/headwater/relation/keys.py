"""Keys as Spark conditions: equality, and ranges with literals that allow file skipping."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import functions as fn

from headwater.backfill.span import joined
from headwater.decode.literals import key_array
from headwater.model import Bound, Column, Span
from headwater.relation.schema import quoted


def same(left: Expression, right: Expression, column: Column) -> Expression:
    """Whether two values of a key column are equal. Where a key may be NULL, NULL is a key like any other."""
    return left.eqNullSafe(right) if column.nullable else left == right


def equal(left: str, right: str, column: Column) -> str:
    """`same`, as text: one call to the JVM instead of several per column."""
    return f"{left} {'<=>' if column.nullable else '='} {right}"


def in_any(spans: Sequence[Span], key_columns: Sequence[Column], alias: str = "") -> Expression | None:
    """True for keys in any of the spans, which are in key order; None when that is every key."""
    ranges = joined(spans)  # keeps the condition short
    if any(r.lo is None and r.hi is None for r in ranges):
        return None
    return reduce(lambda a, b: a | b, (in_span(r, key_columns, alias) for r in ranges), fn.lit(False))


def in_span(span: Span, key_columns: Sequence[Column], alias: str = "") -> Expression:
    """True for keys in the span; `alias` is the frame that has the columns."""
    condition = fn.lit(True)
    if span.lo is not None:
        condition = condition & _beyond(span.lo, key_columns, alias, above=True)
    if span.hi is not None:
        condition = condition & _beyond(span.hi, key_columns, alias, above=False)
    return condition


def _beyond(bound: Bound, key_columns: Sequence[Column], alias: str, above: bool) -> Expression:
    """Keys on one side of a bound; the bound's own key is above it iff the bound comes before that key."""
    own_key_too = bound.after != above
    values = [literal(key_array([text], c)[0], c.lake_type) for text, c in zip(bound.key, key_columns, strict=True)]
    columns = [fn.col(f"{alias}.{quoted(c.name)}" if alias else quoted(c.name)) for c in key_columns]
    result = fn.lit(own_key_too)
    for column, value in reversed(list(zip(columns, values, strict=True))):
        strictly = column > value if above else column < value
        result = strictly | ((column == value) & result)
    # implied by the rest, but simple enough for file statistics
    return (columns[0] >= values[0] if above else columns[0] <= values[0]) & result


def literal(value: pa.Scalar, lake_type: str) -> Expression:
    """The value as a constant of exactly the lake type (casting the column instead would defeat file statistics)."""
    plain: Any = value
    if lake_type == "BINARY":
        return fn.lit(bytearray(plain.as_py()))
    if lake_type == "TIMESTAMP":
        return fn.timestamp_micros(fn.lit(plain.value))
    if lake_type == "DATE":
        return fn.date_from_unix_date(fn.lit(plain.value))
    if lake_type == "TIMESTAMP_NTZ":
        return fn.lit(str(plain.cast(pa.string()).as_py())).cast("timestamp_ntz")
    if pa.types.is_list(plain.type):
        element = lake_type[len("ARRAY<") : -1]
        return fn.array(*(literal(v, element) for v in plain.values)).cast(lake_type)
    return fn.lit(str(plain.cast(pa.string()).as_py())).cast(lake_type)
