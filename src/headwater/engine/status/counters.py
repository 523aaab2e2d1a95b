"""What this process has counted and timed since it started: the part of the metrics that meta does not hold."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Of = int | str  # whom a number is about: a relation's or a connection's id, a code; "" for the whole server


@dataclass(frozen=True, slots=True)
class Timed:
    """How often something was done, and the seconds that took in all."""

    count: int = 0
    seconds: float = 0.0


class Counters:
    """Counts and times by name and by whom they are about. Safe in any thread; each call takes about a microsecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, defaultdict[Of, float]] = defaultdict(lambda: defaultdict(float))
        self._timed: defaultdict[str, dict[Of, Timed]] = defaultdict(dict)

    def add(self, name: str, amount: float = 1, of: Of = "") -> None:
        """Counts `amount` more."""
        with self._lock:
            self._counts[name][of] += amount

    def took(self, name: str, seconds: float, of: Of = "") -> None:
        """One more time that took `seconds`."""
        with self._lock:
            before = self._timed[name].get(of, Timed())
            self._timed[name][of] = Timed(before.count + 1, before.seconds + seconds)

    @contextmanager
    def time(self, name: str, of: Of = "") -> Iterator[None]:
        """Times the block, however it ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.took(name, time.monotonic() - began, of)

    def counted(self, name: str) -> dict[Of, float]:
        """The counts of one name."""
        with self._lock:
            return dict(self._counts[name])

    def timed(self, name: str) -> dict[Of, Timed]:
        """The times of one name."""
        with self._lock:
            return dict(self._timed[name])
