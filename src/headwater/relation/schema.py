"""The extra columns of changes and overlays, and quoting of names for Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.decode.values import arrow_schema
from headwater.model import Column
from headwater.source.names import FROM, INDEX, MISSING, OP, TXN

UPSERT = 1  # this is the row's current state
GONE = 3  # the row no longer exists


def key_struct(columns: Sequence[Column], key: Sequence[str]) -> pa.StructType:
    """The type of `__old` and `__from`: the key columns in key order."""
    fields = arrow_schema(tuple(columns))
    return pa.struct([pa.field(k, fields.field(k).type) for k in key])


def overlay_schema(columns: Sequence[Column], key: Sequence[str]) -> pa.Schema:
    """The schema of a netted overlay and of a run's file."""
    return pa.schema(
        [
            *(pa.field(f.name, f.type) for f in arrow_schema(tuple(columns))),
            pa.field(OP, pa.int8()),
            pa.field(INDEX, pa.int64()),
            pa.field(TXN, pa.int64()),
            pa.field(MISSING, pa.list_(pa.int32())),
            pa.field(FROM, key_struct(columns, key)),
        ]
    )


def quoted(name: str) -> str:
    """The name as an identifier in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
