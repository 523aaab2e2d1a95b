"""Where the values of raw changes are: pieces of bounded size, each under one schema, laid out by the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa

from headwater.decode.column import NO_VALUE
from headwater.decode.dialects import dialect_of
from headwater.errors import DataError
from headwater.model import Column, LogColumn, SchemaVersion, UpstreamType

ROWS_AT_ONCE = 131_072  # the places of their values stay in the CPU cache
BYTES_AT_ONCE = 512 << 20  # Arrow's offsets end at 2 GB


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How the log wrote a row under one schema: ordinals are those of the relation's columns."""

    ordinals: Any  # int32 per column of the message: the ordinal, or -1
    identity: Any  # uint8 per ordinal: an old tuple of kind K has it
    keys: Any  # int32: the ordinals of the key
    types: tuple[UpstreamType | None, ...]  # per ordinal; None: the log has no such column
    written: tuple[LogColumn, ...]  # the columns of the message
    whole_old: bool = False  # an UPDATE or a DELETE has the whole row before it

    @classmethod
    def of(cls, version: SchemaVersion, columns: tuple[Column, ...], key: tuple[str, ...]) -> RowLayout:
        if version.broken:
            raise DataError(
                "data.rewritten",
                f"{version.schema}.{version.table}: {version.broken}; the log does not show what that did to the rows",
                "RESYNC TABLE reads it again.",
            )
        ordinal_of = {c.name: i for i, c in enumerate(columns)}
        ordinals = np.array([ordinal_of.get(c.name, -1) for c in version.columns], dtype=np.int32)
        identity = np.zeros(len(columns), dtype=np.uint8)
        types: list[UpstreamType | None] = [None] * len(columns)
        for written, ordinal in zip(version.columns, ordinals, strict=True):
            if ordinal < 0:
                continue
            identity[ordinal] = written.key
            types[ordinal] = _type_of(version, columns[ordinal], written)
        for name in key:
            # a description without columns belongs to a TRUNCATE before any row: it says nothing about values
            if types[ordinal_of[name]] is None and version.columns:
                raise _schema_changed(version, f"key column {name} is gone")
        _check_names(version, columns, ordinals)
        _check_key(version, columns, key)
        keys = np.array([ordinal_of[k] for k in key], dtype=np.int32)
        whole_old = dialect_of(columns[0].upstream).whole_old(version)
        return cls(ordinals, identity, keys, tuple(types), version.columns, whole_old)


def _type_of(version: SchemaVersion, column: Column, written: LogColumn) -> UpstreamType:
    """The type to decode a column with: one whose values all fit the column's lake type."""
    dialect = dialect_of(column.upstream)
    type = dialect.as_written(column.upstream, written)
    if type is not None and dialect.still_holds(column, type):
        return type
    raise DataError(
        "data.schema_changed",
        f"{_place(version)}: the type of column {written.name} changed, and {column.lake_type} does not hold it"
        if type is not None
        else f"{_place(version)}: the type of column {written.name} changed",
        "RESYNC TABLE reads it again in its new form; if the definition declares the column's type, DROP the table and "
        "CREATE it with a type that holds the new one.",
    )


def _check_names(version: SchemaVersion, columns: tuple[Column, ...], ordinals: Any) -> None:
    """Raises if a followed column continues under another name, or gave its name to another one.

    A dropped column is NULL from then on, but only if it cannot have been renamed: no column that is not followed is in
    its place. Where columns have numbers, the log lists them in the order of these.
    """
    found = [int(ordinal) for ordinal in ordinals if ordinal >= 0]
    places = [columns[ordinal].upstream.number for ordinal in found]
    if any(a > b > 0 for a, b in pairwise(places)):
        names = ", ".join(columns[ordinal].name for ordinal in found)
        raise _schema_changed(version, f"columns were renamed or re-created ({names})")
    for column in (c for i, c in enumerate(columns) if i not in set(found)):
        before, after = 0, len(ordinals)
        if column.upstream.number and all(places):
            at = [i for i, ordinal in enumerate(ordinals) if ordinal >= 0]
            before = max((i for i, p in zip(at, places, strict=True) if p < column.upstream.number), default=-1) + 1
            after = min(
                (i for i, p in zip(at, places, strict=True) if p > column.upstream.number), default=len(ordinals)
            )
        if any(ordinal < 0 for ordinal in ordinals[before:after]):
            raise _schema_changed(version, f"column {column.name} is gone or was renamed")


def _check_key(version: SchemaVersion, columns: tuple[Column, ...], key: tuple[str, ...]) -> None:
    """Raises unless our key is the one that the log says the table has: rows that differ upstream must differ in it.

    The log does not show a unique index behind a declared key; the source watches that.
    """
    if any(c.upstream.unique for c in columns if c.name in key):
        return
    logged = dialect_of(columns[0].upstream).logged_key(version)
    if logged is not None and logged != set(key):
        raise _schema_changed(version, f"the primary key is no longer ({', '.join(key)})")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some changes and where their values are in `data`. Grids are (ordinals, rows); a negative length is no value."""

    batch: pa.RecordBatch
    layout: RowLayout
    data: Any  # uint8
    starts: Any
    lengths: Any
    old_starts: Any  # of old tuples; with no rows if there is no old tuple
    old_lengths: Any
    moved: Any  # uint8 per row: the key changed

    @classmethod
    def blank(cls, batch: pa.RecordBatch, layout: RowLayout, data: Any, *, has_old: bool) -> Self:
        """A piece without any values yet: a dialect's kernel records in its `grids` where they are.

        `has_old`: some of its messages have an old tuple.
        """
        shape = (len(layout.types), batch.num_rows)
        old_shape = (shape[0], shape[1] if has_old else 0)
        starts, old_starts = np.zeros(shape, np.int64), np.zeros(old_shape, np.int64)
        lengths, old_lengths = np.full(shape, NO_VALUE, np.int64), np.full(old_shape, NO_VALUE, np.int64)
        moved = np.zeros(batch.num_rows, dtype=np.uint8)
        return cls(batch, layout, data, starts, lengths, old_starts, old_lengths, moved)

    @property
    def grids(self) -> tuple[Any, ...]:
        """What a kernel writes to."""
        return self.starts, self.lengths, self.old_starts, self.old_lengths, self.moved


def decodable_until(
    versions: Iterable[SchemaVersion], columns: tuple[Column, ...], key: tuple[str, ...], after: int, upto: int
) -> int:
    """The last index in (after, upto] up to which the log's own description of the rows can be followed."""
    for version in versions:
        if after < version.from_index <= upto:
            try:
                RowLayout.of(version, columns, key)
            except DataError:
                upto = version.from_index - 1
    return upto


def lay_out(
    raw: pa.Table, schemas: Mapping[int, SchemaVersion], columns: tuple[Column, ...], key: tuple[str, ...]
) -> Iterator[Piece]:
    """The places of all values of `raw` (index, op, txn, payload, schema_id), in order."""
    layouts: dict[int, RowLayout] = {}
    for batch, schema_id in _pieces(raw):
        if schema_id not in layouts:
            layouts[schema_id] = RowLayout.of(schemas[schema_id], columns, key)
        yield dialect_of(columns[0].upstream).lay_out(batch, layouts[schema_id])


def damaged(batch: pa.RecordBatch, row: int) -> DataError:
    """The error for a change whose bytes do not match its schema."""
    return DataError(
        "data.log_damaged",
        f"the change with index {batch.column('index')[row].as_py()} does not match its schema",
        "RESYNC TABLE reads it again; report it if it happens again.",
    )


def _schema_changed(version: SchemaVersion, what: str) -> DataError:
    return DataError(
        "data.schema_changed",
        f"{_place(version)}: {what}",
        "RESYNC TABLE reads it again in its new form.",
    )


def _place(version: SchemaVersion) -> str:
    """The table, and the index where its description begins; a description not taken from the log has no index."""
    at = f" at index {version.from_index}" if version.from_index else ""
    return f"{version.schema}.{version.table}{at}"


def _pieces(raw: pa.Table) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Record batches of bounded size, each under one schema."""
    rows = min(ROWS_AT_ONCE, max(1, BYTES_AT_ONCE * raw.num_rows // max(raw.nbytes, 1)))
    for start in range(0, raw.num_rows, rows):
        for batch in raw.slice(start, rows).combine_chunks().to_batches():
            ids = batch.column("schema_id").to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), batch.num_rows]
            for a, b in pairwise(cuts):
                yield batch.slice(a, b - a), int(ids[a])


def buffers(payload: pa.BinaryArray) -> tuple[Any, Any]:
    """The payloads' bytes and their offsets, without copying."""
    _, offsets, data = payload.buffers()
    all_offsets = np.frombuffer(offsets, dtype=np.int32)
    bytes_ = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, np.uint8)
    return bytes_, all_offsets[payload.offset : payload.offset + len(payload) + 1]
