"""Spans of a key order: merging them, and finding the one that holds a key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater.model import Bound, Column, Span

WHOLE = Span(None, None)
NOWHERE = -1


def one_key(key: tuple[str, ...]) -> Span:
    """The span that holds one key and nothing else."""
    return Span(Bound(key, after=False), Bound(key, after=True))


def joined(spans: Iterable[Span]) -> list[Span]:
    """The spans (in key order) with neighbours merged."""
    found: list[Span] = []
    for span in spans:
        if found and found[-1].meets(span):
            found[-1] = Span(found[-1].lo, span.hi)
        else:
            found.append(span)
    return found


def locate(spans: Sequence[Span], key_columns: Sequence[Column], keys: pa.Table) -> NDArray[np.int64]:
    """For each key the ordinal of the span that holds it, or -1.

    The spans are disjoint; keys and bounds are compared in the lake's order, which is the database's for every key
    type that is marked `ordered`. `keys` holds the key columns by name, in their lake types, without NULL.
    """
    count = keys.num_rows
    if not spans or not count:
        return np.full(count, NOWHERE, np.int64)
    if len(spans) == 1 and spans[0] == WHOLE:
        return np.zeros(count, np.int64)
    bounds = [b for s in spans for b in (s.lo, s.hi) if b is not None]
    key_rank, bound_rank = _ranks(bounds, key_columns, keys)
    # A key is at twice its rank, a bound one step before or after its key.
    points = iter((2 * bound_rank + np.where([b.after for b in bounds], 1, -1)).tolist())
    lowest, highest = -2, 2 * (count + len(bounds)) + 2
    ends = np.array([[next(points) if s.lo else lowest, next(points) if s.hi else highest] for s in spans], np.int64)
    lo, hi = ends[:, 0], ends[:, 1]
    order = np.lexsort((hi, lo))  # a span without keys before its neighbour that begins at the same place
    at = 2 * key_rank
    place = np.searchsorted(lo[order], at, side="left") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (at < hi[found]), found, NOWHERE).astype(np.int64)


def _ranks(
    bounds: Sequence[Bound], key_columns: Sequence[Column], keys: pa.Table
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranks of all keys and all bounds in one common order; equal keys have equal ranks."""
    from headwater.decode.literals import key_array

    combined: NDArray[np.int64] | None = None
    for i, column in enumerate(key_columns):
        ends = key_array([b.key[i] for b in bounds], column)
        own = keys.column(column.name)
        rank = _dense_rank(pa.chunked_array([*own.chunks, ends.cast(own.type)]))
        combined = rank if combined is None else _dense_rank(pa.array(combined * (len(rank) + 1) + rank))
    assert combined is not None, "a relation has a key"
    return combined[: keys.num_rows], combined[keys.num_rows :]


def _dense_rank(values: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    rank = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    return np.asarray(rank, np.int64)
