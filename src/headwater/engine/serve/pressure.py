"""Pauses a capture when its changelog runs too far ahead of the tables, so that it fills neither disk nor memory.

Only what folds can absorb counts (see `engine.commit.ahead`), and long before the limit is reached, folds take the
tables first that hold the changelog back (see `engine.commit.folds`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from headwater.engine.commit.ahead import ahead_bytes
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.engine.serve.supervisor import Supervisor
from headwater.errors import JobError, Retry
from headwater.meta import connections

MB = 1 << 20
EASED = 0.8  # of the limit: below it a paused capture resumes

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pressure:
    """Call `look` repeatedly from one thread."""

    home: Home
    supervisor: Supervisor
    ahead_bytes: dict[int, int] = field(default_factory=dict)  # connection → changes that no base holds
    paused: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Checks how far each changelog is ahead, and pauses or resumes its capture."""
        limit = self.home.settings.changelog_ahead_bytes
        with self.home.meta.read() as c:
            known = connections.all(c)
            self.ahead_bytes = ahead_bytes(c, self.home.live.failures)
        for connection in known:
            ahead, who = self.ahead_bytes.get(connection.id, 0), Who("pause", connection=connection.id)
            if limit and ahead > limit and connection.id not in self.paused:
                self.paused.add(connection.id)
                self.home.live.failures.failed(who, _too_far(ahead, limit))
            elif connection.id in self.paused and (not limit or ahead < EASED * limit):
                self.paused.discard(connection.id)
                self.home.live.failures.succeeded(who)
                log.info("capture resumes connection=%s ahead_bytes=%s", connection.name, ahead)
        self.paused &= {x.id for x in known}
        self.supervisor.pause(self.paused)


def _too_far(ahead: int, limit: int) -> JobError:
    return JobError(
        "changelog.ahead",
        f"the capture is paused: {ahead / MB:,.1f} MB of changes are not folded yet; the limit is {limit / MB:,.1f} MB",
        "Wait for the folds, give them more time (fold.budget), or raise changelog.ahead_bytes.",
        Retry.AUTO,
    )
