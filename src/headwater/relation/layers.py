"""Layers: netted files of changes, one per slice, which a read stacks on the base.

`__from` in a layer always names a row of the base: a slice is netted over the rows it touches in older layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.backfill.rule import Sees
from headwater.model import Layout, RelationInfo
from headwater.relation.changes import Slice
from headwater.relation.judge import Ints, after_truncate, judge
from headwater.relation.net import Judgement, holes, keys_named, named_by, net
from headwater.relation.schema import overlay_schema
from headwater.source.names import INDEX, MISSING
from headwater.storage import Storage

ROW_GROUP_ROWS, ROW_GROUP_BYTES = 131_072, 64 << 20
TOUCHED_BYTES = 64 << 20  # of rows in older layers that are netted together with a slice


@dataclass(frozen=True, slots=True)
class Layer:
    """One netted Parquet file of an overlay."""

    path: str
    rows: int
    missing: bool  # some rows lack values that the base has


@dataclass(frozen=True, slots=True)
class Netting:
    """Turns slices of a relation's changes into layers under one layout.

    `emptied`: for each span of the layout, the index of its last TRUNCATE in the whole netted range, or 0.
    """

    relation: RelationInfo
    layout: Layout
    sees: Sees
    emptied: Ints

    def layer(self, changes: pa.Table, older: Iterable[pa.Table] = ()) -> pa.Table:
        """The netted changes; `older` are the rows of older layers that they touch, oldest first."""
        relation, before = self.relation, [rows for rows in older if rows.num_rows]
        judgement = judge(relation, self.layout, changes, self.sees)
        if judgement is not None and before:
            judgement = _with_older(judgement, sum(rows.num_rows for rows in before))
        netted = net([*before, changes], relation.columns, relation.key, judgement)
        return after_truncate(relation, self.layout, netted, self.emptied)


def still_holes(relation: RelationInfo, found: pa.Table, newer: pa.Table) -> pa.Table:
    """The keys of rows that still cannot be completed after one more layer."""
    left = found.filter(pa.array(~named_by(found, newer, relation.key))) if found.num_rows else found
    return pa.concat_tables([left, holes(newer).select(list(relation.key))])


def no_holes(relation: RelationInfo) -> pa.Table:
    return overlay_schema(relation.columns, relation.key).empty_table().select(list(relation.key))


@dataclass(frozen=True, slots=True)
class Fitting:
    """The beginning of a slice, and the rows of older layers that it touches."""

    part: Slice
    older: list[pa.Table]


def fitting(
    storage: Storage, relation: RelationInfo, layers: Sequence[Layer], part: Slice, most_bytes: int = TOUCHED_BYTES
) -> Fitting:
    """As much of a slice as touches few enough rows of older layers, which may be far larger than the changes."""
    while True:
        older, size = list[pa.Table](), 0
        for rows in touched_in(storage, relation, layers, part.table):
            older.append(rows)
            size += rows.nbytes
            if size > most_bytes and part.table.num_rows > 1:
                break
        else:
            return Fitting(part, older)
        first = part.table.slice(0, part.table.num_rows // 2)
        part = Slice(part.after, first[INDEX][first.num_rows - 1].as_py(), first)


def touched_in(
    storage: Storage, relation: RelationInfo, layers: Sequence[Layer], changes: pa.Table
) -> Iterator[pa.Table]:
    """The newest row in the layers of each key that the changes name; nothing if no change lacks a value.

    A layer's row has everything that older layers know of its key, so the newest is enough.
    """
    if changes[MISSING].null_count == changes.num_rows:
        return
    wanted = keys_named(changes, relation.key)
    for layer in reversed(layers):
        for group in groups(storage, layer.path):
            keys = group.read(list(relation.key))
            found = named_by(keys, wanted, relation.key)
            if found.any():
                yield as_layer(relation, group.read().filter(pa.array(found)))
                wanted = wanted.filter(pa.array(~named_by(wanted, keys, relation.key)))
                if not wanted.num_rows:
                    return


@dataclass(frozen=True, slots=True)
class Group:
    """A row group of a layer's file: it fits into memory."""

    file: pq.ParquetFile
    number: int

    def read(self, columns: list[str] | None = None) -> pa.Table:
        return self.file.read_row_group(self.number, columns=columns)


def groups(storage: Storage, path: str) -> Iterator[Group]:
    """The row groups of a layer's file, in order."""
    with pq.ParquetFile(storage.open(path)) as file:
        for number in range(file.num_row_groups):
            yield Group(file, number)


def read_layer(storage: Storage, relation: RelationInfo, path: str) -> pa.Table:
    """All rows of a layer's file."""
    return as_layer(relation, pq.read_table(storage.open(path)))


def stacked(relation: RelationInfo, layers: Sequence[pa.Table]) -> pa.Table:
    """Whole rows of several layers, oldest first, as one: of each key the newest."""
    found = layers[-1]
    for older in reversed(layers[:-1]):
        found = pa.concat_tables([older.filter(pa.array(~named_by(older, found, relation.key))), found])
    return found


def as_layer(relation: RelationInfo, rows: pa.Table) -> pa.Table:
    return rows.cast(overlay_schema(relation.columns, relation.key))


def write_layer(file: object, netted: pa.Table, compression: str) -> None:
    """Writes a layer in the form that Spark reads fastest."""
    pq.write_table(
        netted,
        file,
        compression=compression,
        write_statistics=False,  # Arrow ignores NaN in a maximum, and Spark would skip such rows
        use_dictionary=False,
        row_group_size=max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * netted.num_rows // max(1, netted.nbytes))),
        store_decimal_as_integer=True,
        coerce_timestamps="us",
    )


def has_missing(netted: pa.Table) -> bool:
    return bool(netted[MISSING].null_count < netted.num_rows)


def _with_older(judgement: Judgement, rows: int) -> Judgement:
    """The judgement with rows of older layers in front: they supply values, but belong to their own layer."""
    no = np.zeros(rows, np.bool_)
    return Judgement(
        np.concatenate([no, judgement.counts]),
        np.concatenate([no, judgement.counts_old]),
        np.concatenate([no, judgement.unseen_old]),
        np.concatenate([~no, judgement.covered]),
    )
