"""Whether to move a view by its inputs' changes or to recompute it: from what past refreshes cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, linear_regression
from typing import Protocol

FIRST_GUESS = 0.1  # of the inputs' rows; more changes than that are assumed to cost more than recomputing
FEWEST = 2  # measurements before a line is trusted
REACH = 3  # a line says nothing about changes that are so many times larger than any that was measured
WORTH_KNOWING = 0.01  # of the inputs' rows; for more changes than that, it is worth learning what recomputing costs
MARGIN = 1.2  # a strategy must be this much better before the other one is given up


class Past(Protocol):
    """A recorded refresh."""

    @property
    def strategy(self) -> str: ...
    @property
    def rows_read(self) -> int: ...
    @property
    def ms(self) -> float: ...


def why_full(past: Sequence[Past], changes: int, rows: int) -> str:
    """Why recomputing is expected to be faster, as text; empty if it is not. `rows` is the size of all inputs."""
    by_changes = [p for p in past if p.strategy not in ("full", "none")]
    full = [p for p in past if p.strategy == "full"]
    learned = len(by_changes) >= FEWEST and changes <= REACH * max(p.rows_read for p in by_changes)
    if learned and full:
        expected, whole = predicted(by_changes, changes), min(p.ms for p in full)
        if expected > MARGIN * whole:
            return f"recomputing took {whole:.0f} ms; {changes:,} changes would take about {expected:.0f} ms"
        return ""
    if rows and changes > FIRST_GUESS * rows:
        return f"{changes:,} changes are more than {FIRST_GUESS:.0%} of {rows:,} rows"
    if rows and learned and changes > WORTH_KNOWING * rows:
        return f"to learn what it costs, where {changes:,} changes take about {predicted(by_changes, changes):.0f} ms"
    return ""


def predicted(past: Sequence[Past], rows: int) -> float:
    """Milliseconds for so many rows, by a line through past refreshes; never below zero or falling."""
    sizes, times = [p.rows_read for p in past], [p.ms for p in past]
    mean_rows, mean_ms = fmean(sizes), fmean(times)
    slope = 0.0
    if len(set(sizes)) > 1:
        slope = max(0.0, linear_regression(sizes, times).slope)
    elif mean_rows and rows > mean_rows:
        slope = mean_ms / mean_rows / 2  # one size was measured: assume that half of the time depends on it
    return max(0.0, mean_ms + slope * (rows - mean_rows))
