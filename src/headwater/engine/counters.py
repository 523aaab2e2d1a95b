"""Counts and timings since this process started: the part of the metrics that is not in meta."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Of = int | str  # what a number is about: a relation's or a connection's id, an error code; "" for the whole server


@dataclass(frozen=True, slots=True)
class Timed:
    """How often something was done, and the total time in seconds."""

    count: int = 0
    seconds: float = 0.0


class Counters:
    """Counts and timings by metric and subject. Thread-safe; each call takes about a microsecond."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: defaultdict[str, defaultdict[Of, float]] = defaultdict(lambda: defaultdict(float))
        self._timed: defaultdict[str, dict[Of, Timed]] = defaultdict(dict)

    def add(self, name: str, amount: float = 1, of: Of = "") -> None:
        """Adds `amount` to a count."""
        with self._lock:
            self._counts[name][of] += amount

    def took(self, name: str, seconds: float, of: Of = "") -> None:
        """Records one run that took `seconds`."""
        with self._lock:
            before = self._timed[name].get(of, Timed())
            self._timed[name][of] = Timed(before.count + 1, before.seconds + seconds)

    @contextmanager
    def time(self, name: str, of: Of = "") -> Iterator[None]:
        """Times the block, even if it raises."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.took(name, time.monotonic() - began, of)

    def counted(self, name: str) -> dict[Of, float]:
        """The counts of one metric."""
        with self._lock:
            return dict(self._counts[name])

    def timed(self, name: str) -> dict[Of, Timed]:
        """The timings of one metric."""
        with self._lock:
            return dict(self._timed[name])
