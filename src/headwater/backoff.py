"""Pauses between tries: each is twice the one before, up to a last one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before another try. Whoever waits remembers its last pause; nothing is remembered here."""

    first_s: float
    last_s: float

    def after(self, pause_s: float = 0.0, lasted_s: float = 0.0) -> float:
        """The pause after one of `pause_s`, or the first one if there was none (0).

        What was tried and went well for longer than any pause (`lasted_s`) begins anew.
        """
        before_s = 0.0 if lasted_s > self.last_s else pause_s
        return min(max(2 * before_s, self.first_s), self.last_s)
