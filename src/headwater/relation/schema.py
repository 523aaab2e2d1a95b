"""The extra columns of changes and overlays, the order of a base's files, and quoting of names for Spark."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.decode.values import arrow_schema
from headwater.model import Column, RelationInfo
from headwater.source.names import FROM, INDEX, MISSING, OP, TXN

UPSERT = 1  # this is the row's current state
GONE = 3  # the row no longer exists
CLUSTER = "cluster.by"  # the option that says by which columns a view's files are ordered


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


def ordering(relation: RelationInfo) -> tuple[Column, ...]:
    """The columns by which the rows of a base are ordered, so that files have narrow ranges: `cluster.by`, or the key.

    A map has no order; empty if there is nothing else.
    """
    chosen = [name.strip() for name in relation.options.get(CLUSTER, "").split(",") if name.strip()]
    by_name = {c.name: c for c in relation.columns}
    columns = [by_name[name] for name in chosen or relation.key if name in by_name]
    return tuple(c for c in columns if "MAP<" not in c.lake_type)


def quoted(name: str) -> str:
    """The name as an identifier in Spark SQL."""
    return "`" + name.replace("`", "``") + "`"
