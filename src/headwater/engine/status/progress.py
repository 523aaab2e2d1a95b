"""Rates, estimates and lags from samples over time. Pure: times are passed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.engine.live import Lag
from headwater.meta.progress import Progress

RATE_WINDOW_S = 30.0  # spans finish every few seconds: a shorter window would show that rhythm instead of the rate
STALE_S = 20.0  # after this long without an answer, the upstream's position is unknown
SAMPLES = 512

Passed = Callable[[str, str], bool]  # (position, end) → whether the end is reached


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a count grows, from its past values."""

    seen: tuple[tuple[float, int], ...] = ()

    def saw(self, count: int, now: float) -> Rate:
        """The rate with one more sample; a count that went down starts over."""
        before = self.seen if not self.seen or count >= self.seen[-1][1] else ()
        old = sum(at <= now - RATE_WINDOW_S for at, _ in before)  # the newest of these starts the window
        return Rate((*before[max(0, old - 1) :], (now, count)))

    def per_second(self) -> float:
        """The rate over the window; 0 with fewer than two samples."""
        if len(self.seen) < 2:
            return 0.0
        (began, first), (ended, last) = self.seen[0], self.seen[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """The end of an upstream's log at past times, and when it was last queried."""

    ends: tuple[tuple[float, str], ...] = ()
    behind_bytes: int = 0  # as of the last query
    asked_at: float = 0.0

    def saw(self, end: str, behind_bytes: int, now: float, position: str, passed: Passed) -> Ahead:
        """Adds a sample; drops those that a changelog at `position` has passed."""
        ends = [e for e in self.ends[:-1] if not passed(position, e[1])] + list(self.ends[-1:])
        if not ends or ends[-1][1] != end:
            ends.append((now, end))
        if len(ends) > SAMPLES:  # far behind: keep every other sample, and the first and the last
            ends = [*ends[:-1:2], ends[-1]]
        return Ahead(tuple(ends), behind_bytes, now)

    def lag(self, position: str, passed: Passed, now: float) -> Lag | None:
        """How far `position` is behind; None while unknown.

        In seconds: for how long the upstream has been known to be past `position`. So an idle upstream has no lag,
        however old its last change is.
        """
        if not self.ends or now - self.asked_at > STALE_S:
            return None
        since = next((at for at, end in self.ends if not passed(position, end)), now)
        return Lag(0 if passed(position, self.ends[-1][1]) else self.behind_bytes, now - since)


def estimated_rows(p: Progress) -> int | None:
    """Approximately how many rows the upstream table has; None while unknown.

    This is the upstream's own estimate until scans have read more than that (its statistics are stale or missing); then
    it is extrapolated from the scanned spans. Once everything is read, it is the number of rows read.
    """
    if p.planned and p.scanned == p.total:
        return p.rows
    if p.rows_estimate > p.rows:
        return p.rows_estimate
    # without the span beyond the largest key, which is planned first and is empty
    read, all = p.scanned - 1, p.total - 1
    return round(p.rows * all / read) if p.planned and p.rows and read > 0 else None


def seconds_left(p: Progress, rate: float) -> float | None:
    """Approximately how long the remaining scans take at this rate; None while unknown."""
    if p.planned and p.scanned == p.total:
        return None
    rows = estimated_rows(p)
    return None if rows is None or rate <= 0 else (rows - p.rows) / rate


def about(seconds: float) -> str:
    """An estimated duration as text: `≈ 40 s`, `≈ 3 min`, `≈ 2 h 10 min`, `≈ 3 days`."""
    if seconds < 90:
        return f"≈ {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"≈ {round(seconds / 60)} min"
    if seconds < 36 * 3600:
        hours, minutes = divmod(round(seconds / 600) * 10, 60)
        return f"≈ {hours} h {minutes} min" if minutes else f"≈ {hours} h"
    return f"≈ {round(seconds / 86400)} days"


def percent(share: float) -> str:
    """A share as text, never rounded up to 100 %."""
    return "100 %" if share >= 1 else f"{min(int(share * 100), 99)} %"
