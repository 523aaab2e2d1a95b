"""Rows to checksums: the number of rows and the sum of their hashes, per range of the key's hash.

Ranges of a hash instead of the key itself work for every key type, even if only the database knows its order, and are
evenly filled whatever the keys look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater.check import kernels
from headwater.decode.values import arrow_schema
from headwater.model import Column
from headwater.source.names import HASH

RANGE_BITS = 10
RANGES = 1 << RANGE_BITS
SHIFT = 64 - RANGE_BITS
SEED = np.uint64(0x5DEECE66D)
NAN_WORD = np.uint64(0x7FF8000000000000)

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Digest:
    """A table's contents in 16 KB: rows and checksum per range."""

    counts: NDArray[np.int64]
    sums: Hashes

    @classmethod
    def empty(cls) -> Digest:
        return cls(np.zeros(RANGES, np.int64), np.zeros(RANGES, np.uint64))

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.counts + other.counts, self.sums + other.sums)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def differing(self, other: Digest) -> NDArray[np.int64]:
        """The ranges in which two tables differ."""
        return np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums)).astype(np.int64)


def digest(batches: Iterable[pa.RecordBatch], columns: Sequence[Column], key: Sequence[str]) -> Digest:
    """The digest of rows in lake types (or types that cast to them); columns are found by name."""
    total = Digest.empty()
    for batch in batches:
        keys, rows = hashes(batch, columns, key)
        kernels.add_up(keys, rows, SHIFT, total.counts, total.sums)
    return total


def rows_in(
    batches: Iterable[pa.RecordBatch], columns: Sequence[Column], key: Sequence[str], ranges: NDArray[np.int64]
) -> Iterator[pa.RecordBatch]:
    """Key columns and row hash (`__hash`) of the rows in these ranges."""
    for batch in batches:
        keys, rows = hashes(batch, columns, key)
        wanted = np.flatnonzero(np.isin((keys >> np.uint64(SHIFT)).astype(np.int64), ranges))
        picked = _typed(batch, [c for c in columns if c.name in key]).take(pa.array(wanted))
        yield picked.append_column(HASH, pa.array(rows[wanted].view(np.int64)))


def hashes(batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str]) -> tuple[Hashes, Hashes]:
    """The hash of each row's key and of each whole row."""
    by_name = {c.name: c for c in columns}
    keys = _fold(_typed(batch, [by_name[k] for k in key]))
    return keys, _fold(_typed(batch, columns))


def _typed(batch: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    schema = arrow_schema(columns)
    arrays = [pc.cast(batch.column(f.name), f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fold(batch: pa.RecordBatch) -> Hashes:
    result = np.full(batch.num_rows, SEED, np.uint64)
    for array in batch.columns:
        _fold_array(array, result)
    return result


def _fold_array(array: pa.Array, result: Hashes) -> None:
    valid = np.ascontiguousarray(array.is_valid().to_numpy(zero_copy_only=False))
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        buffer = array.buffers()[2]
        data = np.frombuffer(buffer, np.uint8) if buffer else np.zeros(0, np.uint8)
        kernels.fold_bytes(_read_only(data), _offsets(array), valid, result)
    elif pa.types.is_list(kind):
        elements = np.full(len(array.values), SEED, np.uint64)
        _fold_array(array.values, elements)
        kernels.fold_lists(elements, _offsets(array), valid, result)
    elif pa.types.is_decimal(kind):
        words = np.frombuffer(array.buffers()[1], np.uint64)[2 * array.offset : 2 * (array.offset + len(array))]
        kernels.fold_words(np.ascontiguousarray(words[0::2]), valid, result)
        kernels.fold_words(np.ascontiguousarray(words[1::2]), valid, result)
    else:
        kernels.fold_words(_words(array), valid, result)


def _words(array: pa.Array) -> Hashes:
    """Fixed-width values as 64-bit words; all NaNs are equal."""
    kind = array.type
    if pa.types.is_floating(kind):
        numbers = np.ascontiguousarray(pc.cast(array, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
        words = numbers.view(np.uint64).copy()
        words[np.isnan(numbers)] = NAN_WORD
        return words
    if pa.types.is_boolean(kind):
        array = pc.cast(array, pa.int8())
    elif pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    whole: Any = pc.cast(array, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(whole).view(np.uint64)


def _offsets(array: pa.Array) -> NDArray[np.int64]:
    places = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return places.astype(np.int64)


def _read_only(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    data.setflags(write=False)
    return data
