"""Whether to move a view by its inputs' changes or to recompute it: from what past refreshes cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

FIRST_GUESS = 0.1  # of the inputs' rows; more changes than that are assumed to cost more than recomputing
FEWEST = 2  # measurements before a line is trusted
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
    """Why recomputing is expected to be faster, as text; empty: it is not. `rows` are those of all inputs."""
    by_changes = [p for p in past if p.strategy not in ("full", "none")]
    full = [p for p in past if p.strategy == "full"]
    if len(by_changes) >= FEWEST and full:
        expected, whole = predicted(by_changes, changes), min(p.ms for p in full)
        if expected > MARGIN * whole:
            return f"recomputing took {whole:.0f} ms, {changes:,} changes would take about {expected:.0f} ms"
        return ""
    if rows and changes > FIRST_GUESS * rows:
        return f"{changes:,} changes are more than {FIRST_GUESS:.0%} of {rows:,} rows"
    return ""


def predicted(past: Sequence[Past], rows: int) -> float:
    """Milliseconds for so many rows, by a line through past refreshes; never below zero or falling."""
    n = len(past)
    mean_rows, mean_ms = sum(p.rows_read for p in past) / n, sum(p.ms for p in past) / n
    spread = sum((p.rows_read - mean_rows) ** 2 for p in past)
    slope = sum((p.rows_read - mean_rows) * (p.ms - mean_ms) for p in past) / spread if spread else 0.0
    slope = max(0.0, slope)
    if not spread and mean_rows and rows > mean_rows:
        slope = mean_ms / mean_rows / 2  # one size was measured: assume that half of the time depends on it
    return max(0.0, mean_ms + slope * (rows - mean_rows))
