"""Rates, estimates and lags from what was seen over time. Pure: every moment is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.engine.live import Lag
from headwater.meta.progress import Progress

RATE_WINDOW_S = 30.0  # spans end in jumps of some seconds: a shorter look would show their rhythm instead of the rate
STALE_S = 20.0  # an upstream that did not answer for this long may be anywhere
SAMPLES = 512

Passed = Callable[[str, str], bool]  # (position, end) → whether the end is reached


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a count grows: what it was at moments past."""

    seen: tuple[tuple[float, int], ...] = ()

    def saw(self, count: int, now: float) -> Rate:
        """The rate with one more look; a count that went back begins anew."""
        before = self.seen if not self.seen or count >= self.seen[-1][1] else ()
        old = sum(at <= now - RATE_WINDOW_S for at, _ in before)  # the newest of these begins the window
        return Rate((*before[max(0, old - 1) :], (now, count)))

    def per_second(self) -> float:
        """Over the window; 0 before there are two looks."""
        if len(self.seen) < 2:
            return 0.0
        (began, first), (ended, last) = self.seen[0], self.seen[-1]
        return (last - first) / (ended - began) if ended > began else 0.0


@dataclass(frozen=True, slots=True)
class Ahead:
    """Where an upstream's log ended at moments past, and when it was last asked."""

    ends: tuple[tuple[float, str], ...] = ()
    behind_bytes: int = 0  # when it was last asked
    asked_at: float = 0.0

    def saw(self, end: str, behind_bytes: int, now: float, position: str, passed: Passed) -> Ahead:
        """With one more look; what a changelog at `position` has passed is forgotten."""
        ends = [e for e in self.ends[:-1] if not passed(position, e[1])] + list(self.ends[-1:])
        if not ends or ends[-1][1] != end:
            ends.append((now, end))
        if len(ends) > SAMPLES:  # far behind: every other moment will do, the first and the last stay
            ends = [*ends[:-1:2], ends[-1]]
        return Ahead(tuple(ends), behind_bytes, now)

    def lag(self, position: str, passed: Passed, now: float) -> Lag | None:
        """How far `position` is behind; None while nobody knows.

        In seconds: since when the upstream has been known to hold something that lies behind `position`. So an idle
        upstream has no lag, however old its last change is.
        """
        if not self.ends or now - self.asked_at > STALE_S:
            return None
        since = next((at for at, end in self.ends if not passed(position, end)), now)
        return Lag(0 if passed(position, self.ends[-1][1]) else self.behind_bytes, now - since)


def estimated_rows(p: Progress) -> int | None:
    """How many rows the upstream table has, about; None while nobody knows.

    That is what the upstream believes, until scans have read more than that (its statistics are old, or it has none):
    then what is left is taken to be like what was read. Once everything is read it is what was read.
    """
    if p.planned and p.scanned == p.total:
        return p.rows
    if p.rows_estimate > p.rows:
        return p.rows_estimate
    # the span beyond the largest key is planned first and was seen empty
    read, all = p.scanned - 1, p.total - 1
    return round(p.rows * all / read) if p.planned and p.rows and read > 0 else None


def seconds_left(p: Progress, rate: float) -> float | None:
    """How long scanning goes on at this rate, about; None while nobody can say."""
    if p.planned and p.scanned == p.total:
        return None
    rows = estimated_rows(p)
    return None if rows is None or rate <= 0 else (rows - p.rows) / rate


def about(seconds: float) -> str:
    """An estimated duration, said to be one: `≈ 40 s`, `≈ 3 min`, `≈ 2 h 10 min`, `≈ 3 days`."""
    if seconds < 90:
        return f"≈ {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"≈ {round(seconds / 60)} min"
    if seconds < 36 * 3600:
        hours, minutes = divmod(round(seconds / 600) * 10, 60)
        return f"≈ {hours} h {minutes} min" if minutes else f"≈ {hours} h"
    return f"≈ {round(seconds / 86400)} days"


def percent(share: float) -> str:
    """A share of a whole, never rounded up to 100 before it is all."""
    return "100 %" if share >= 1 else f"{min(int(share * 100), 99)} %"
