"""A table's filter as a Spark expression: the authoritative evaluation."""

from __future__ import annotations

import datetime
from functools import reduce
from operator import and_, or_
from typing import Any

from pyspark.sql import Column as Expression
from pyspark.sql import functions as fn

from headwater.backfill.filter import columns_of, read_filter
from headwater.model import Condition, Joined, RelationInfo, Test
from headwater.relation.schema import quoted
from headwater.source.names import MISSING

_COMPARE = {"=": "__eq__", "<>": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}


def wanted(relation: RelationInfo) -> Expression | None:
    """Whether a row belongs to the table (NULL: no); None when every row does."""
    return expression(read_filter(relation.filter, relation.columns)) if relation.filter else None


def may_be_wanted(relation: RelationInfo) -> Expression | None:
    """Whether a change's row may belong to the table: it does, or the change lacks a column that the filter uses."""
    own = wanted(relation)
    if own is None:
        return None
    asked = columns_of(read_filter(relation.filter, relation.columns))
    ordinals = [fn.lit(i) for i, c in enumerate(relation.columns) if c.name in asked]
    return fn.arrays_overlap(fn.col(MISSING), fn.array(*ordinals)) | fn.coalesce(own, fn.lit(False))


def expression(condition: Condition) -> Expression:
    """The condition as a Spark expression, with SQL's three-valued logic."""
    match condition:
        case Joined(word="not", parts=(part,)):
            return ~expression(part)
        case Joined(word=word, parts=parts):
            return reduce(and_ if word == "and" else or_, (expression(p) for p in parts))
        case Test(column=column, op="null"):
            return fn.col(quoted(column)).isNull()
        case Test(column=column, op="in", values=values):
            return fn.col(quoted(column)).isin([_constant(v) for v in values])
        case Test(column=column, op=op, values=(value,)):
            compared: Expression = getattr(fn.col(quoted(column)), _COMPARE[op])(_constant(value))
            return compared
    raise AssertionError(condition)


def _constant(value: Any) -> Expression:
    if isinstance(value, datetime.datetime):
        return fn.lit(value.isoformat(sep=" ")).cast("timestamp_ntz" if value.tzinfo is None else "timestamp")
    if isinstance(value, datetime.date):
        return fn.lit(value.isoformat()).cast("date")
    return fn.lit(value)
