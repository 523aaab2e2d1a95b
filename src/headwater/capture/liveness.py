"""A capture's sign of life: sent for as long as its main thread extends its deadline in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headwater.settings.table import DEFAULTS

STEP_S = 60.0  # one step of the flow: what was received is handed over, an upstream that accepts nothing is noticed
OPEN_S = 600.0  # opening a log: this takes many queries to an upstream, and after a failover a search of its log


class Liveness:
    """Reports `alive` every few seconds, in its own thread, until the main thread's deadline has passed.

    So a stopped process is silent immediately, and one whose main thread hangs is silent soon after; a main thread
    that waits for a disk, an upstream or a slot keeps extending it, and is heard.
    """

    def __init__(
        self,
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
        silence_s: float = DEFAULTS.capture_silence_s,
    ) -> None:
        self._say = say
        self._clock = clock
        self._every_s = silence_s / 10  # one lost report is not silence
        self._until = clock() + OPEN_S
        self._done = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="liveness", daemon=True).start()

    def extend_deadline(self, within_s: float = STEP_S) -> None:
        """Called by the main thread: it will call again within this time."""
        self._until = self._clock() + within_s

    def stop(self) -> None:
        self._done.set()

    def report_alive(self) -> bool:
        """Reports that the capture is alive; False if the deadline has passed."""
        alive = self._clock() <= self._until
        if alive:
            self._say("alive")
        return alive

    def _run(self) -> None:
        self.report_alive()
        while not self._done.wait(self._every_s):
            self.report_alive()
