"""Which folders an owner is writing to, as known to its own process."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class UnderWay:
    """Folders with files that are about to be recorded in meta. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: Counter[str] = Counter()

    @contextmanager
    def writing(self, folder: str) -> Iterator[None]:
        """Files written to the folder inside the block are recorded, or useless, when the block ends."""
        with self._lock:
            self._writers[folder] += 1
        try:
            yield
        finally:
            with self._lock:
                self._writers[folder] -= 1

    def __contains__(self, folder: str) -> bool:
        with self._lock:
            return self._writers[folder] > 0
