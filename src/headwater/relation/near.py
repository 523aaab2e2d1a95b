"""Ranges around some keys as a condition: each of the keys meets it, and Spark skips files of a base without any."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column as Expression
from pyspark.sql import functions as fn

from headwater.decode.values import arrow_type
from headwater.model import RelationInfo
from headwater.relation import base
from headwater.relation.keys import literal
from headwater.relation.schema import quoted
from headwater.storage import Storage

MOST_RANGES = 16  # each is compared with every row that is read

Ints = NDArray[np.int64]


def near(storage: Storage, relation: RelationInfo, version: int, keys: pa.Table) -> Expression | None:
    """A condition on the first key column that all of these keys meet; None if it would skip no file of the version."""
    column = relation.key_columns[0]
    if column.lake_type not in base.RANGED or not keys.num_rows:
        return None
    files = base.ranges_at(storage, relation.base_path, column.name, version)
    if files is None or not files.num_rows:
        return None
    own = keys[column.name]
    lows, highs = ranges(base.as_numbers(own.drop_null()).to_numpy(), MOST_RANGES)
    first, last = (base.as_numbers(files[name]).to_numpy() for name in ("low", "high"))
    if _touched(lows, highs, first, last).all():
        return None
    type = arrow_type(column.lake_type)
    of = fn.col(quoted(column.name))
    parts = [of.isNull()] if own.null_count else []
    for low, high in zip(_values(lows, type), _values(highs, type), strict=True):
        parts.append((of >= literal(low, column.lake_type)) & (of <= literal(high, column.lake_type)))
    return reduce(lambda a, b: a | b, parts)


def ranges(places: Ints, most: int) -> tuple[Ints, Ints]:
    """The first and last numbers of at most `most` ranges that together hold all of these, split at the widest gaps."""
    found = np.unique(places)
    if not len(found):
        return found, found
    apart = np.sort(np.argsort(np.diff(found), kind="stable")[::-1][: most - 1])  # the last places before a gap
    return found[np.append(0, apart + 1)], found[np.append(apart, len(found) - 1)]


def _touched(lows: Ints, highs: Ints, first: Ints, last: Ints) -> NDArray[np.bool_]:
    """For each file, whether a range overlaps it: the first to end at or after its start begins before its end."""
    at = highs.searchsorted(first, side="left")
    begins = np.append(lows, np.iinfo(np.int64).max)[at]
    return (at < len(lows)) & (begins <= last)


def _values(numbers: Ints, type: pa.DataType) -> pa.Array:
    """Numbers as values of a key column."""
    of = pa.array(numbers)
    return of.cast(pa.int32()).cast(type) if pa.types.is_date(type) else of.cast(type)
