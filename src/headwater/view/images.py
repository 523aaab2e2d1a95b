"""Rows as they were before a range of changes, from the changes alone where the log has whole old rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.decode.values import arrow_schema
from headwater.model import Column, Op
from headwater.relation.net import key_numbers
from headwater.source.names import BEFORE, OLD, OP


@dataclass(frozen=True, slots=True)
class Went:
    """The old rows of the changed keys: `rows` as far as the log has them; `unknown` keys must be looked up."""

    rows: pa.Table
    unknown: pa.Table
    touched: pa.Table  # all changed keys


def went(slices: Iterable[pa.Table], columns: Sequence[Column], key: Sequence[str]) -> Went:
    """The rows that the first change of each key found; `slices` are decoded changes with `__before`, in index order.

    A key that was inserted first had no row. That is certain only for a relation that holds every row of its upstream.
    """
    names, schema = list(key), arrow_schema(tuple(columns))
    rows, unknown = [schema.empty_table()], [schema.empty_table().select(names)]
    seen = unknown[0]
    for changes in slices:
        touched = _touched(changes, names)
        first = _first(touched, seen, names)
        own = touched.filter(pa.array(first))
        seen = pa.concat_tables([seen, own.select(names).cast(seen.schema)])
        existed = own.filter(own["__existed"])
        known = pc.is_valid(existed[BEFORE])
        images = existed.filter(known)[BEFORE].combine_chunks()
        flat = images.flatten() if isinstance(images, pa.StructArray) else pa.concat_arrays(images.chunks).flatten()
        rows.append(pa.Table.from_arrays(flat, names=schema.names).cast(schema))
        unknown.append(existed.filter(pc.invert(known)).select(names).cast(unknown[0].schema))
    return Went(pa.concat_tables(rows), pa.concat_tables(unknown), seen)


def _touched(changes: pa.Table, key: list[str]) -> pa.Table:
    """Every key that a change names, in order: the old one of a changed key comes before the new one."""
    changes = changes.filter(pc.not_equal(changes[OP], int(Op.TRUNCATE)))
    n = changes.num_rows
    order, moved = np.arange(n), pc.is_valid(changes[OLD])
    op = changes[OP].to_numpy()
    existed = ((op == Op.UPDATE) & ~np.asarray(moved.to_numpy(zero_copy_only=False), np.bool_)) | (op == Op.DELETE)
    own = changes.select([*key, BEFORE])
    own = own.append_column("__existed", pa.array(existed)).append_column("__at", pa.array(2 * order + 1))
    old = changes.filter(moved)
    if not old.num_rows:
        return own
    fields = [pc.struct_field(old[OLD], [i]).cast(changes[k].type) for i, k in enumerate(key)]
    at = pa.array(2 * order[np.asarray(moved.to_numpy(zero_copy_only=False), np.bool_)])
    ended = pa.table([*fields, old[BEFORE], pa.repeat(True, old.num_rows), at], names=own.column_names)
    return pa.concat_tables([own, ended.cast(own.schema)]).sort_by("__at")


def _first(touched: pa.Table, seen: pa.Table, key: list[str]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each row, whether it is the first of its key, and no earlier slice had that key."""
    both = pa.concat_tables([seen, touched.select(key).cast(seen.schema)])
    numbers = key_numbers(both, key)
    _, at = np.unique(numbers, return_index=True)
    first = np.zeros(both.num_rows, np.bool_)
    first[at] = True
    return first[seen.num_rows :]
