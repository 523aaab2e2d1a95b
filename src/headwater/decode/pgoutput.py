"""Raw changes of one table → the relation's columns in Arrow, with what a fold needs to know of each change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode import kernels_pgoutput
from headwater.decode.evolve import as_written
from headwater.decode.kernels import ALL_WELL
from headwater.decode.text import decode_text
from headwater.decode.values import arrow_schema, arrow_type
from headwater.errors import DataError
from headwater.model import Column, Op, SchemaVersion, UpstreamType

ROWS_AT_ONCE = 131_072  # the places of their values stay in the processor's cache
BYTES_AT_ONCE = 512 << 20  # Arrow's offsets end at 2 GB

INDEX, TXN, OP, MISSING, OLD = "__index", "__txn", "__op", "__missing", "__old"
_TAG_AT = 5  # after the type byte and the table's oid


@dataclass(frozen=True, slots=True)
class Changes:
    """Decoded changes in index order.

    `table`: the relation's columns, then `__index`, `__txn`, `__op`, `__missing` (ordinals of columns that the message
    did not carry; NULL when none) and `__old` (the old key; NULL unless an update changed the key). A DELETE has its
    key only, a TRUNCATE nothing. `unkept`: per column, values that became NULL because the lake cannot keep them.
    """

    table: pa.Table
    unkept: dict[str, int] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def changes_schema(columns: tuple[Column, ...], key: tuple[str, ...]) -> pa.Schema:
    """The schema of `Changes.table`."""
    schema = arrow_schema(columns)
    return pa.schema(
        [
            *schema,
            pa.field(INDEX, pa.int64()),
            pa.field(TXN, pa.int64()),
            pa.field(OP, pa.int8()),
            pa.field(MISSING, pa.list_(pa.int32())),
            pa.field(OLD, pa.struct([schema.field(k) for k in key])),
        ]
    )


def decode_changes(
    raw: pa.Table, schemas: Mapping[int, SchemaVersion], columns: tuple[Column, ...], key: tuple[str, ...]
) -> Changes:
    """Decodes `raw` (index, op, txn, payload, schema_id), each change with the schema that it was written with.

    Columns are matched by name: one that the log no longer has is NULL, one that it has in addition is ignored (and
    named in `notices` if an earlier schema did not have it), a widened type decodes. Any other change of the schema
    is DataError data.schema_changed; a key that the lake cannot keep is DataError data.key_value.
    """
    schema = changes_schema(columns, key)
    unkept: Counter[str] = Counter()
    pieces = []
    layouts: dict[int, _Layout] = {}
    for batch, schema_id in _pieces(raw):
        if schema_id not in layouts:
            layouts[schema_id] = _Layout.of(schemas[schema_id], columns, key)
        arrays = _decode(batch, layouts[schema_id], columns, key, unkept)
        pieces.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return Changes(pa.Table.from_batches(pieces, schema), dict(unkept), _added(schemas, columns))


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the log wrote a row under one schema: slots are ordinals of the relation's columns."""

    slots: Any  # int32 per column of the message: the slot, or -1
    identity: Any  # uint8 per slot: an old tuple of kind K carries it
    keys: Any  # int32: the slots of the key
    types: tuple[UpstreamType | None, ...]  # per slot; None: the log has no such column

    @classmethod
    def of(cls, version: SchemaVersion, columns: tuple[Column, ...], key: tuple[str, ...]) -> _Layout:
        ordinals = {c.name: i for i, c in enumerate(columns)}
        slots = np.array([ordinals.get(c.name, -1) for c in version.columns], dtype=np.int32)
        identity = np.zeros(len(columns), dtype=np.uint8)
        types: list[UpstreamType | None] = [None] * len(columns)
        for written, slot in zip(version.columns, slots, strict=True):
            if slot < 0:
                continue
            identity[slot] = written.key
            types[slot] = as_written(columns[slot].upstream, written.type_oid, written.modifier)
            if types[slot] is None:
                raise _schema_changed(version, f"the type of column {written.name} changed")
        for name in key:
            if types[ordinals[name]] is None:
                raise _schema_changed(version, f"key column {name} is gone")
        return cls(slots, identity, np.array([ordinals[k] for k in key], dtype=np.int32), tuple(types))


def _schema_changed(version: SchemaVersion, what: str) -> DataError:
    return DataError(
        "data.schema_changed",
        f"{version.schema}.{version.table}: {what} at index {version.from_index}",
        "DROP TABLE and CREATE TABLE again: it is read anew in its new form.",
    )


def _pieces(raw: pa.Table) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Record batches of bounded size, each under one schema."""
    rows = min(ROWS_AT_ONCE, max(1, BYTES_AT_ONCE * raw.num_rows // max(raw.nbytes, 1)))
    for start in range(0, raw.num_rows, rows):
        for batch in raw.slice(start, rows).combine_chunks().to_batches():
            ids = batch.column("schema_id").to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), batch.num_rows]
            for a, b in pairwise(cuts):
                yield batch.slice(a, b - a), int(ids[a])


def _decode(
    batch: pa.RecordBatch, layout: _Layout, columns: tuple[Column, ...], key: tuple[str, ...], unkept: Counter[str]
) -> list[pa.Array]:
    """The arrays of `changes_schema` for one piece."""
    data, offsets = _buffers(batch.column("payload"))
    op = batch.column("op").to_numpy()
    n, width = batch.num_rows, len(columns)
    starts, lengths = np.zeros((width, n), np.int64), np.full((width, n), kernels_pgoutput.NO_VALUE, np.int64)
    old_starts = np.zeros((width, n if _any_old(data, offsets) else 0), np.int64)
    old_lengths = np.full(old_starts.shape, kernels_pgoutput.NO_VALUE, np.int64)
    moved = np.zeros(n, dtype=np.uint8)
    answer = kernels_pgoutput.lay_out(
        *(data, offsets, layout.slots, layout.keys, layout.identity),
        *(starts, lengths, old_starts, old_lengths, moved),
    )
    if answer != ALL_WELL:
        raise DataError(
            "data.log_damaged",
            f"the change with index {batch.column('index')[answer].as_py()} does not have the form of its schema",
            "DROP TABLE and CREATE TABLE again; report it if it comes back.",
        )
    arrays = []
    for slot, column in enumerate(columns):
        arrays.append(_column(data, starts[slot], lengths[slot], layout.types[slot], column, key, unkept))
    _require_keys(lengths[layout.keys], op)
    return [
        *arrays,
        batch.column("index"),
        batch.column("txn"),
        batch.column("op"),
        _missing(lengths),
        _old_keys(data, old_starts, old_lengths, moved, layout, columns),
    ]


def _buffers(payload: pa.BinaryArray) -> tuple[Any, Any]:
    """The payloads' bytes and their offsets, without copying."""
    _, offsets, data = payload.buffers()
    all_offsets = np.frombuffer(offsets, dtype=np.int32)
    bytes_ = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, np.uint8)
    return bytes_, all_offsets[payload.offset : payload.offset + len(payload) + 1]


def _any_old(data: Any, offsets: Any) -> bool:
    """Whether any message begins with an old tuple, of kind K or O."""
    places = offsets[:-1].astype(np.int64) + _TAG_AT
    tags = data[places[places < data.size]]
    return bool(((tags == ord("K")) | (tags == ord("O"))).any())


def _column(
    data: Any,
    starts: Any,
    lengths: Any,
    upstream: UpstreamType | None,
    column: Column,
    key: tuple[str, ...],
    unkept: Counter[str],
) -> pa.Array:
    if upstream is None:
        return pa.nulls(starts.size, arrow_type(column.lake_type))
    decoded = decode_text(data, starts, lengths, upstream, column.lake_type)
    if decoded.unkept:
        if column.name in key:
            raise unkept_key(column.name)
        unkept[column.name] += decoded.unkept
    return decoded.array


def unkept_key(name: str) -> DataError:
    """The error for a key that the lake cannot keep: without it the row would be lost or mixed up with another."""
    return DataError(
        "data.key_value",
        f"key column {name} holds a value that its lake type cannot keep",
        f"Declare {name} as STRING in CREATE TABLE, or change the value upstream; then DROP and CREATE the table.",
    )


def _require_keys(lengths: Any, op: Any) -> None:
    if (lengths[:, op != Op.TRUNCATE] < 0).any():
        raise DataError(
            "data.key_value",
            "a change came without its key",
            "Give the upstream table a replica identity (its primary key or FULL), then DROP and CREATE the table.",
        )


def _missing(lengths: Any) -> pa.Array:
    """Per row the ordinals of the columns that the message did not carry."""
    n = lengths.shape[1]
    mask = lengths == kernels_pgoutput.MISSING
    if not mask.any():
        return pa.nulls(n, pa.list_(pa.int32()))
    counts = mask.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    ordinals = np.nonzero(mask.T)[1].astype(np.int32)
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    children = [pa.array(ordinals)]
    return pa.Array.from_buffers(pa.list_(pa.int32()), n, [validity, pa.py_buffer(offsets)], children=children)


def _old_keys(
    data: Any, starts: Any, lengths: Any, moved: Any, layout: _Layout, columns: tuple[Column, ...]
) -> pa.Array:
    """The old key where `moved`."""
    keys = [columns[s] for s in layout.keys]
    fields = [pa.field(c.name, arrow_type(c.lake_type)) for c in keys]
    if not moved.any():
        return pa.nulls(moved.size, pa.struct(fields))
    here = moved == 1
    arrays = []
    for slot, column in zip(layout.keys, keys, strict=True):
        upstream = layout.types[slot]
        assert upstream is not None
        only = np.where(here, lengths[slot], kernels_pgoutput.NO_VALUE)
        decoded = decode_text(data, starts[slot], only, upstream, column.lake_type)
        if decoded.unkept:
            raise unkept_key(column.name)
        arrays.append(decoded.array)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array(~here))


def _added(schemas: Mapping[int, SchemaVersion], columns: tuple[Column, ...]) -> list[str]:
    """Sentences on columns that later schemas have and the first one and the relation do not."""
    versions = sorted(schemas.values(), key=lambda v: v.from_index)
    if not versions:
        return []
    known = {c.name for c in versions[0].columns} | {c.name for c in columns}
    names = {c.name: v for v in reversed(versions) for c in v.columns if c.name not in known}
    return [f"column {n} was added upstream at index {v.from_index} and is ignored" for n, v in sorted(names.items())]
