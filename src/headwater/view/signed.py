"""Signed changes: rows removed (-1) and added (+1) between two states of a relation, and a view's runs.

A view's run is two files: a layer like any other, and the rows that it replaces or removes as they were. So the
change of a view needs no look-up, and runs telescope: the change over several runs has the first run's old row of a
key and the last run's new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.decode.values import arrow_schema
from headwater.model import RelationInfo, RunInfo
from headwater.relation.layers import read_layer, write_layer
from headwater.relation.net import named_by
from headwater.relation.schema import GONE, UPSERT, overlay_schema
from headwater.source.names import FROM, INDEX, MISSING, OP, TXN
from headwater.storage import Storage
from headwater.view.shape import WEIGHT


@dataclass(frozen=True, slots=True)
class Change:
    """The net change of a view: its rows as they are now (a layer) and the replaced and removed ones as they were."""

    layer: pa.Table
    before: pa.Table

    @property
    def rows(self) -> int:
        return int(self.layer.num_rows)

    @property
    def bytes(self) -> int:
        return int(self.layer.nbytes + self.before.nbytes)


def change(relation: RelationInfo, signed: pa.Table, index: int) -> Change:
    """The change that leads to an index; `signed` has each key at most once per weight."""
    weights = signed[WEIGHT].to_numpy()
    if (np.abs(weights) != 1).any():
        raise AssertionError(f"{relation.name} has rows that are stored more than once")
    came, went = (signed.filter(pa.array(weights == w)).select(_names(relation)) for w in (1, -1))
    gone = went.filter(pa.array(~named_by(went, came, relation.key)))
    layer = pa.concat_tables([_layer(relation, came, UPSERT, index), _layer(relation, gone, GONE, index)])
    return Change(layer, went.cast(arrow_schema(relation.columns)))


def telescoped(relation: RelationInfo, changes: Sequence[Change]) -> Change:
    """The net change of several that follow each other. A key that was added and removed again is in neither."""
    total = changes[0]
    for later in changes[1:]:
        kept = total.layer.filter(pa.array(~named_by(total.layer, later.layer, relation.key)))
        first = later.before.filter(pa.array(~named_by(later.before, total.layer, relation.key)))
        layer, before = pa.concat_tables([kept, later.layer]), pa.concat_tables([total.before, first])
        never = (layer[OP].to_numpy() == GONE) & ~named_by(layer, before, relation.key)
        total = Change(layer.filter(pa.array(~never)), before)
    return total


def signed_rows(relation: RelationInfo, of: Change) -> pa.Table:
    """The rows of a change with their weights."""
    came = of.layer.filter(pa.array(of.layer[OP].to_numpy() == UPSERT)).select(_names(relation))
    schema = arrow_schema(relation.columns)
    return pa.concat_tables([_weighed(came.cast(schema), 1), _weighed(of.before, -1)])


def write_change(storage: Storage, of: Change, path: str, before_path: str) -> None:
    """Writes both files of a run; durable on return."""
    for name, rows in ((path, of.layer), (before_path, of.before)):
        with storage.create(name) as file:
            write_layer(file, rows, compression="lz4")


def read_change(storage: Storage, relation: RelationInfo, run: RunInfo) -> Change:
    """The change that a view's run holds."""
    before = pq.read_table(storage.open(run.before_path)).cast(arrow_schema(relation.columns))
    return Change(read_layer(storage, relation, run.path), before)


def _weighed(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.array(np.full(rows.num_rows, weight, np.int32)))


def _layer(relation: RelationInfo, rows: pa.Table, op: int, index: int) -> pa.Table:
    n, schema = rows.num_rows, overlay_schema(relation.columns, relation.key)
    values = {name: rows[name].cast(schema.field(name).type) for name in _names(relation)}
    own = {
        OP: pa.array(np.full(n, op, np.int8)),
        INDEX: pa.array(np.full(n, index, np.int64)),
        TXN: pa.array(np.zeros(n, np.int64)),
        MISSING: pa.nulls(n, schema.field(MISSING).type),
        FROM: pa.nulls(n, schema.field(FROM).type),
    }
    return pa.table({**values, **own}, schema=schema)


def _names(relation: RelationInfo) -> list[str]:
    return [c.name for c in relation.columns]
