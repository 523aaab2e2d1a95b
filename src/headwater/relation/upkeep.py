"""What a base needs: files rewritten in key order, deletion vectors purged, dead files removed. Decisions only.

Scans write files that are narrow (a key range each), folds write small ones that are wide (changed rows from anywhere)
and mark rows of old files as gone. So files and marks grow with every fold, and a rewrite must put the rows back into
key order, or skipping files by key would be worth less with every fold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

TARGET_BYTES = 128 << 20  # of a file that a rewrite makes
SMALL_BYTES = TARGET_BYTES // 8
STEP_BYTES = 512 << 20  # what one rewrite may read: it holds up covers and folds of its table meanwhile
PURGE_SHARE = 0.25  # rows that are only marked as gone
PURGE_ROWS = 50_000  # fewer cost a read nothing
CHECKPOINT_LAG = 40  # commits since the last checkpoint; a writer makes one every 20, unless it fails to
VACUUM_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A file of a base; `low` and `high` are the first key column's ends as a number, None where they are not known."""

    bytes: int
    rows: int
    deleted: int = 0
    low: int | None = None
    high: int | None = None


class Way(StrEnum):
    """How a base is rewritten."""

    WHOLE = "whole"  # everything, in key order
    RANGE = "range"  # a key range, in key order
    COMPACT = "compact"  # Delta's OPTIMIZE of the small files, without order
    PURGE = "purge"  # Delta's REORG of the files with marked rows


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite that is due; `low` and `high` (inclusive) with RANGE only. `bytes` is about what it reads."""

    way: Way
    bytes: int
    low: int | None = None
    high: int | None = None


def due(files: Sequence[BaseFile], *, many: int, step_bytes: int = STEP_BYTES) -> Rewrite | None:
    """The rewrite that a base needs most, or None.

    A small base is rewritten whole. Of a large one, a key range that holds many small files or many marked rows; where
    ranges are not known, or the small files lie across each other all over the table, Delta's own ways, which keep no
    order.
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
    """The cheapest range that holds `many` small files whole, if it can be read in one step."""
    ordered = sorted(small, key=_low)
    windows = []
    for i in range(len(ordered) - many + 1):
        inside = ordered[i : i + many]
        windows.append(_window(files, _low(inside[0]), max(_high(f) for f in inside)))
    best = min(windows, key=lambda w: w.bytes, default=None)
    return best if best is not None and best.bytes <= step_bytes else None


def _of_marked(files: Sequence[BaseFile], step_bytes: int) -> Rewrite | None:
    """The range of one file in which most rows are marked; what lies across it is rewritten with it."""
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
    """Readers would have to replay too many commits."""
    return version - checkpoint >= CHECKPOINT_LAG


def vacuum_due(dead_files: int, dead_bytes: int, live_bytes: int, *, many: int) -> bool:
    """Enough lies about that no version needs: many files, or as much as the table itself and not little."""
    return dead_files >= max(many, 1) or dead_bytes >= max(live_bytes, VACUUM_BYTES)


def retention_hours(now: float, keep_s: float, superseded_after: float | None) -> int:
    """For how many hours VACUUM must spare removed files: those of `keep_s`, and of every version that is needed.

    `superseded_after` is when the oldest needed version was committed, None if it is the newest. What was removed from
    it was removed later than that. Whole hours, rounded up: Delta rounds a fraction, which would leave less than half
    an hour without any protection.
    """
    needed_s = 0.0 if superseded_after is None else now - superseded_after + 1
    return math.ceil(max(keep_s, needed_s) / 3600)


def orphans(found: Iterable[str], known: Iterable[str], protected: Iterable[str] = ()) -> list[str]:
    """The files that were found but that neither meta nor a running job knows.

    Call it under the owner's lease, with `known` read after `found` was listed: a file is written before it is known.
    """
    return sorted(set(found) - set(known) - set(protected))
