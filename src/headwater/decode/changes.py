"""Raw changes of one table → the relation's columns in Arrow, with what a fold needs to know about each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.column import MISSING_VALUE, NO_VALUE, unrepresentable_key
from headwater.decode.dialects import dialect_of
from headwater.decode.layout import Piece, lay_out
from headwater.decode.values import arrow_schema, arrow_type
from headwater.errors import DataError
from headwater.model import Column, Op, SchemaVersion
from headwater.source.names import BEFORE, INDEX, MISSING, OLD, OP, TXN


@dataclass(frozen=True, slots=True)
class DecodedChanges:
    """Decoded changes in index order.

    `table`: the relation's columns, then `__index`, `__txn`, `__op`, `__missing` (ordinals of columns missing from the
    message; NULL if none) and `__old` (the old key; NULL unless an update changed the key). A DELETE has only its
    key, a TRUNCATE nothing. On request, `__before` is the whole row before an UPDATE or a DELETE, if the log has
    all of it. `unrepresentable`: per column, the number of values that became NULL.
    """

    table: pa.Table
    unrepresentable: dict[str, int] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def changes_schema(columns: tuple[Column, ...], key: tuple[str, ...], *, before: bool = False) -> pa.Schema:
    """The schema of `DecodedChanges.table`."""
    schema = arrow_schema(columns)
    return pa.schema(
        [
            *schema,
            pa.field(INDEX, pa.int64()),
            pa.field(TXN, pa.int64()),
            pa.field(OP, pa.int8()),
            pa.field(MISSING, pa.list_(pa.int32())),
            pa.field(OLD, pa.struct([schema.field(k) for k in key])),
            *([pa.field(BEFORE, pa.struct(list(schema)))] if before else []),
        ]
    )


def decode_changes(
    raw: pa.Table,
    schemas: Mapping[int, SchemaVersion],
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    *,
    before: bool = False,
) -> DecodedChanges:
    """Decodes `raw` (index, op, txn, payload, schema_id), each change with the schema that it was written with.

    Columns are matched by name: a dropped one is NULL, an added one is ignored (and named in `notices` if an earlier
    schema did not have it), a wider type decodes if the lake type holds all of it. Any other change of the schema
    raises DataError data.schema_changed (see `RowLayout`); an unrepresentable key raises data.key_value.
    """
    schema = changes_schema(columns, key, before=before)
    unrepresentable: Counter[str] = Counter()
    pieces = []
    for piece in lay_out(raw, schemas, columns, key):
        arrays = _decode(piece, columns, key, unrepresentable)
        if before:
            arrays.append(_before(piece, columns, key))
        pieces.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return DecodedChanges(pa.Table.from_batches(pieces, schema), dict(unrepresentable), _added(schemas, columns))


def _decode(piece: Piece, columns: tuple[Column, ...], key: tuple[str, ...], lost: Counter[str]) -> list[pa.Array]:
    """The arrays of `changes_schema` for one piece."""
    batch = piece.batch
    _require_keys(piece.lengths[piece.layout.keys], batch.column("op").to_numpy())
    return [
        *(_column(piece, piece.starts, piece.lengths, slot, c, key, lost) for slot, c in enumerate(columns)),
        batch.column("index"),
        batch.column("txn"),
        batch.column("op"),
        _missing(piece.lengths),
        _old_keys(piece, columns, key),
    ]


def _column(
    piece: Piece,
    starts: Any,
    lengths: Any,
    slot: int,
    column: Column,
    key: tuple[str, ...],
    lost: Counter[str],
) -> pa.Array:
    """One column from a grid of places."""
    upstream = piece.layout.types[slot]
    if upstream is None:
        return pa.nulls(starts.shape[1], arrow_type(column.lake_type))
    decoded = dialect_of(column.upstream).decode_logged(
        piece.data, starts[slot], lengths[slot], upstream, column.lake_type
    )
    if decoded.unrepresentable:
        if column.name in key:
            raise unrepresentable_key(column.name)
        lost[column.name] += decoded.unrepresentable
    return decoded.array


def _require_keys(lengths: Any, op: Any) -> None:
    if (lengths[:, op != Op.TRUNCATE] < 0).any():
        raise DataError(
            "data.key_value",
            "a change has no key",
            "Give the upstream table a replica identity (its primary key or FULL), then RESYNC TABLE.",
        )


def _missing(lengths: Any) -> pa.Array:
    """The ordinals of the columns missing from each row's message."""
    n = lengths.shape[1]
    mask = lengths == MISSING_VALUE
    if not mask.any():
        return pa.nulls(n, pa.list_(pa.int32()))
    counts = mask.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    ordinals = np.nonzero(mask.T)[1].astype(np.int32)
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    children = [pa.array(ordinals)]
    return pa.Array.from_buffers(pa.list_(pa.int32()), n, [validity, pa.py_buffer(offsets)], children=children)


def _old_keys(piece: Piece, columns: tuple[Column, ...], key: tuple[str, ...]) -> pa.Array:
    """The old key, for rows whose key changed."""
    keys = [columns[s] for s in piece.layout.keys]
    fields = [pa.field(c.name, arrow_type(c.lake_type)) for c in keys]
    if not piece.moved.any():
        return pa.nulls(piece.batch.num_rows, pa.struct(fields))
    here = piece.moved == 1
    lengths = np.where(here, piece.old_lengths, NO_VALUE)
    arrays = [
        _column(piece, piece.old_starts, lengths, slot, column, key, Counter())
        for slot, column in zip(piece.layout.keys, keys, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~here))


def _before(piece: Piece, columns: tuple[Column, ...], key: tuple[str, ...]) -> pa.Array:
    """The row before an UPDATE or a DELETE; NULL if the log does not have all of it."""
    fields, op = list(arrow_schema(columns)), piece.batch.column("op").to_numpy()
    here = (op == Op.UPDATE) | (op == Op.DELETE)
    if not piece.layout.whole_old or not here.any():
        return pa.nulls(piece.batch.num_rows, pa.struct(fields))
    here &= ~(piece.old_lengths == MISSING_VALUE).any(axis=0)
    lengths = np.where(here, piece.old_lengths, NO_VALUE)
    arrays = [_column(piece, piece.old_starts, lengths, slot, c, key, Counter()) for slot, c in enumerate(columns)]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~here))


def _added(schemas: Mapping[int, SchemaVersion], columns: tuple[Column, ...]) -> list[str]:
    """Sentences about columns that later schemas have but the first one and the relation do not."""
    versions = sorted(schemas.values(), key=lambda v: v.from_index)
    if not versions:
        return []
    known = {c.name for c in versions[0].columns} | {c.name for c in columns}
    names = {c.name for v in versions for c in v.columns if c.name not in known}
    return [f"column {name} was added upstream and is ignored; RESYNC TABLE adds it" for name in sorted(names)]
