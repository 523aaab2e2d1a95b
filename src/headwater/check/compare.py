"""Compares two tables by their digests and finds the keys behind a difference. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.check.digest import RANGES, Digest
from headwater.source.names import HASH

KEY_LIMIT = 20
RANGE_LIMIT = 8  # how many differing ranges are examined: an eighth of a percent of the table each

# RowsIn(ranges) → key columns and `__hash` of the rows in these ranges; None if they can no longer be read
RowsIn = Callable[[NDArray[np.int64]], pa.Table | None]


Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two tables compare. The keys are samples (up to a limit per kind), as text in the key's column order."""

    upstream_rows: int
    lake_rows: int
    ranges: int  # key ranges in which they differ
    missing: tuple[Key, ...] = ()  # upstream, not in the lake
    surplus: tuple[Key, ...] = ()  # in the lake, not upstream
    different: tuple[Key, ...] = ()  # in both, with different values
    sampled: bool = False  # there may be more keys than these

    @property
    def equal(self) -> bool:
        return self.ranges == 0

    def __str__(self) -> str:
        if self.equal:
            return f"{self.upstream_rows:,} rows, all equal"
        found = [
            f"{len(keys)} {word} ({', '.join('/'.join(k) for k in keys[:3])}{', …' if len(keys) > 3 else ''})"
            for word, keys in (
                ("missing in the lake", self.missing),
                ("only in the lake", self.surplus),
                ("different", self.different),
            )
            if keys
        ]
        more = (" or more" if self.sampled else "") if found else "the rows can no longer be read"
        return (
            f"{self.upstream_rows:,} rows upstream, {self.lake_rows:,} in the lake, "
            f"{self.ranges} of {RANGES} key ranges differ: {'; '.join(found)}{more}"
        )


def compare(
    upstream: Digest,
    lake: Digest,
    key: Sequence[str],
    upstream_rows_in: RowsIn,
    lake_rows_in: RowsIn,
    *,
    limit: int = KEY_LIMIT,
) -> Comparison:
    """The comparison: counts and checksums first; if they differ, the keys of the differing ranges."""
    differing = upstream.differing(lake)
    if not len(differing):
        return Comparison(upstream.rows, lake.rows, 0)
    looked_at = differing[:RANGE_LIMIT]
    theirs = upstream_rows_in(looked_at)
    ours = None if theirs is None else lake_rows_in(looked_at)
    if theirs is None or ours is None:  # still a difference, though nobody can say of which rows
        return Comparison(upstream.rows, lake.rows, len(differing), sampled=True)
    missing, surplus, different = keys_of(theirs, ours, key)
    return Comparison(
        upstream_rows=upstream.rows,
        lake_rows=lake.rows,
        ranges=len(differing),
        missing=missing[:limit],
        surplus=surplus[:limit],
        different=different[:limit],
        sampled=len(differing) > len(looked_at) or max(len(missing), len(surplus), len(different)) > limit,
    )


def equal_but_for(hidden: Set[Key], found: Comparison, *, ordered: bool) -> bool | None:
    """Whether two tables are equal apart from keys that are hidden until they are read again; None: unknown."""
    if not hidden:
        return found.equal
    only_hidden = set(found.missing) <= hidden and not (found.surplus or found.different)
    if not ordered or (only_hidden and found.sampled):  # there are too many of them to exclude each
        return None
    return only_hidden


def keys_of(
    upstream: pa.Table, lake: pa.Table, key: Sequence[str]
) -> tuple[tuple[Key, ...], tuple[Key, ...], tuple[Key, ...]]:
    """The keys that only the upstream has, that only the lake has, and whose rows differ (or occur twice)."""
    theirs, ours = _by_key(upstream, key), _by_key(lake, key)
    missing = sorted(theirs.keys() - ours.keys())
    surplus = sorted(ours.keys() - theirs.keys())
    different = sorted(k for k in theirs.keys() & ours.keys() if theirs[k] != ours[k])
    return tuple(missing), tuple(surplus), tuple(different)


def _by_key(table: pa.Table, key: Sequence[str]) -> dict[Key, list[int]]:
    result: dict[Key, list[int]] = {}
    names = ([key_text(v) for v in table[k].to_pylist()] for k in key)
    for hash_, *values in zip(table[HASH].to_pylist(), *names, strict=True):
        result.setdefault(tuple(values), []).append(hash_)
    for found in result.values():
        found.sort()
    return result


def key_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
