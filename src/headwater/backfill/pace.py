"""How many rows a table's scans may read now: a rate limit over all of them. Pure; time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

QUANTUM_S = 2.0  # one scan may read the limit's worth of this time, so that a new limit takes effect soon


@dataclass(slots=True)
class Pace:
    """Hands out rows so that, over any period, no more than the limit per second (and one quantum) are read."""

    free_at: float = 0.0

    def take(self, limit: int | None, now: float) -> int | None:
        """The most rows that a scan starting now may read: 0 = no limit, None = none yet."""
        if limit is None:
            return 0
        if limit == 0 or now < self.free_at:
            return None
        rows = max(1, int(limit * QUANTUM_S))
        self.free_at = now + rows / limit
        return rows

    def give_back(self, limit: int | None, rows: int) -> None:
        """Returns rows that were handed out but not read."""
        if limit:
            self.free_at -= rows / limit
