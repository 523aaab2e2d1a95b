"""Decides what upkeep a base needs: rewriting files in order, purging deletion vectors, removing dead files.

Scans write narrow files (one key range each); folds write small, wide ones (changed rows from anywhere) and mark rows
of old files as deleted. So files and marks accumulate with every fold, and a rewrite must restore the order (by key, or
by a view's cluster.by: `relation.schema.ordering`), or skipping files would become less effective with every fold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

TARGET_BYTES = 128 << 20  # of a file written by a rewrite
SMALL_BYTES = TARGET_BYTES // 8
STEP_BYTES = 512 << 20  # that one rewrite may read: it blocks covers and folds of its table meanwhile
PURGE_SHARE = 0.25  # of rows marked as deleted
PURGE_ROWS = 50_000  # fewer do not slow a read down
CHECKPOINT_LAG = 40  # commits since the last checkpoint; a writer makes one every 20, unless that fails
VACUUM_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A file of a base; `low` and `high` are the range of the first ordered column as numbers, None if unknown."""

    bytes: int
    rows: int
    deleted: int = 0
    low: int | None = None
    high: int | None = None


class Way(StrEnum):
    """How a base is rewritten."""

    WHOLE = "whole"  # everything, in order
    RANGE = "range"  # a range of the first ordered column, in order
    COMPACT = "compact"  # Delta's OPTIMIZE of the small files, without order
    PURGE = "purge"  # Delta's REORG of the files with marked rows


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite that is due; `low` and `high` (inclusive) with RANGE only. `bytes`: approximately how much it reads."""

    way: Way
    bytes: int
    low: int | None = None
    high: int | None = None


def due(files: Sequence[BaseFile], *, many: int, step_bytes: int = STEP_BYTES) -> Rewrite | None:
    """The rewrite that a base needs most, or None.

    A small base is rewritten whole; a large one, in a range with many small files or many marked rows. Where ranges
    are unknown, or small files overlap all over the table, Delta's own methods are used, which do not preserve order.
    """
    small = [f for f in files if f.bytes < SMALL_BYTES]
    rows, deleted = sum(f.rows for f in files), sum(f.deleted for f in files)
    marked = deleted >= PURGE_ROWS and deleted >= PURGE_SHARE * rows
    scattered = len(small) >= max(many, 2)
    if not marked and not scattered:
        return None
    total = sum(f.bytes for f in files)
    if total <= step_bytes:
        return Rewrite(Way.WHOLE, total)
    ranged = all(f.low is not None and f.high is not None for f in files)
    if scattered:
        window = _of_small(files, small, many, step_bytes) if ranged else None
        return window or Rewrite(Way.COMPACT, sum(f.bytes for f in small))
    window = _of_marked(files, step_bytes) if ranged else None
    return window or Rewrite(Way.PURGE, sum(f.bytes for f in files if f.deleted))


def _of_small(files: Sequence[BaseFile], small: Sequence[BaseFile], many: int, step_bytes: int) -> Rewrite | None:
    """The cheapest range that contains `many` small files, if it can be read in one step."""
    ordered = sorted(small, key=_low)
    windows = []
    for i in range(len(ordered) - many + 1):
        inside = ordered[i : i + many]
        windows.append(_window(files, _low(inside[0]), max(_high(f) for f in inside)))
    best = min(windows, key=lambda w: w.bytes, default=None)
    return best if best is not None and best.bytes <= step_bytes else None


def _of_marked(files: Sequence[BaseFile], step_bytes: int) -> Rewrite | None:
    """The range of the file with the most marked rows; files that overlap with it are rewritten, too."""
    for f in sorted(files, key=lambda f: -f.deleted):
        window = _window(files, _low(f), _high(f))
        if f.deleted and window.bytes <= step_bytes:
            return window
    return None


def _window(files: Sequence[BaseFile], low: int, high: int) -> Rewrite:
    touched = sum(f.bytes for f in files if _low(f) <= high and _high(f) >= low)
    return Rewrite(Way.RANGE, touched, low, high)


def _low(file: BaseFile) -> int:
    assert file.low is not None
    return file.low


def _high(file: BaseFile) -> int:
    assert file.high is not None
    return file.high


def checkpoint_due(version: int, checkpoint: int) -> bool:
    """Whether readers would have to replay too many commits."""
    return version - checkpoint >= CHECKPOINT_LAG


def vacuum_due(dead_files: int, dead_bytes: int, live_bytes: int, *, many: int) -> bool:
    """Whether there is enough to remove: many dead files, or at least as many bytes as in the table, and not few."""
    return dead_files >= max(many, 1) or dead_bytes >= max(live_bytes, VACUUM_BYTES)


def retention_hours(now: float, keep_s: float, superseded_after: float | None) -> int:
    """For how many hours VACUUM must keep removed files: `keep_s`, and long enough for every needed version.

    `superseded_after` is when the oldest needed version was committed, None if it is the newest: its files were removed
    later than that. Whole hours, rounded up: Delta rounds fractions, so less than half an hour would be no protection.
    """
    needed_s = 0.0 if superseded_after is None else now - superseded_after + 1
    return math.ceil(max(keep_s, needed_s) / 3600)
