"""Pauses between retries: each is twice the one before, up to a maximum."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next retry. Stateless: the caller remembers its last pause."""

    first_s: float
    last_s: float

    def after(self, pause_s: float = 0.0, lasted_s: float = 0.0) -> float:
        """The pause after one of `pause_s`, or the first one if there was none (0).

        An attempt that worked for longer than any pause (`lasted_s`) starts over.
        """
        before_s = 0.0 if lasted_s > self.last_s else pause_s
        return min(max(2 * before_s, self.first_s), self.last_s)
