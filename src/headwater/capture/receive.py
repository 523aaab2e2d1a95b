"""The capture's loop: from the flow to the writer, with acknowledgements to the upstream on the way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from headwater.capture.until import Until
from headwater.changelog.writer import WriterThread
from headwater.errors import HeadwaterError
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.base import Inbox, Log

LOOK_BYTES = 64 << 10  # below this size, searching again for the end of a transaction costs nothing
STILL_WAITING_S = 1.0  # while the disk is full the upstream hears from us this often

log = logging.getLogger("headwater.capture")


class Heartbeat:
    """Makes the upstream's log advance every `interval_s` seconds (0: never), in its own thread."""

    def __init__(self, flow: Log, interval_s: float) -> None:
        self._flow = flow
        self._interval_s = interval_s
        self._done = threading.Event()
        self._failure: HeadwaterError | None = None
        if interval_s > 0:
            threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def check(self) -> None:
        """Raises the upstream's error, if any."""
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._done.set()

    def _run(self) -> None:
        while not self._done.wait(self._interval_s):
            try:
                self._flow.beat()
            except HeadwaterError as e:
                log.warning("heartbeat: %s: %s", e.code, e.message)
                if e.ends_log:
                    self._failure = e
                    self._flow.wake()
                    return


class Receiver:
    """Moves messages from the flow to the writer: decides when to split, acknowledge and ask."""

    def __init__(
        self,
        flow: Log,
        thread: WriterThread,
        heartbeat: Heartbeat,
        stopping: threading.Event,
        until: Until | None = None,
        extend_deadline: Callable[[], None] = lambda: None,
        settings: Settings = DEFAULTS,
        paused: threading.Event | None = None,
    ) -> None:
        self.reached = False  # the end that `until` names
        self._until = until
        self._end = flow.framing.number(until.position) if until is not None and until.position else 0
        self._flow = flow
        self._thread = thread
        self._heartbeat = heartbeat
        self._stopping = stopping
        self._paused = paused or threading.Event()  # set while the changelog is too far ahead
        self._extend_deadline = extend_deadline  # called repeatedly: we are not hanging
        self._every_s = settings.flush_interval_s
        self._most_bytes = settings.flush_bytes
        self._inbox = Inbox()
        self._open = False  # the inbox begins inside a transaction
        self._acknowledged = ""
        self._asked_at = self._flushed_at = self._looked_at = 0.0

    def run(self) -> None:
        """Receives until stopped, or until the requested end is reached."""
        while not self._stopping.is_set() and not self.reached:
            self._extend_deadline()
            self._flow.receive(self._inbox, self._wake_at(), self._most_bytes)
            self._thread.check()
            self._heartbeat.check()
            now = time.monotonic()
            if self._due(now):
                self._looked_at = now
                if self._flush():
                    self._flushed_at = now
            ask = now - self._asked_at >= self._every_s
            if ask:
                self._find_moment()
            if ask or self._thread.position != self._acknowledged:
                self._acknowledge(ask=ask)
                self._asked_at = now if ask else self._asked_at

    def _wake_at(self) -> float:
        """When there is something to do even if nothing arrives."""
        at = self._asked_at + self._every_s
        if self._inbox.count and self._thread.idle:
            at = min(at, max(self._flushed_at, self._looked_at) + self._every_s)
        return at

    def _due(self, now: float) -> bool:
        """Whether to flush: a full inbox immediately, otherwise an interval after the last flush."""
        if self._inbox.size >= self._most_bytes:
            return True
        if not self._inbox.count or not self._thread.idle or now - self._flushed_at < self._every_s:
            return False
        return self._inbox.size < LOOK_BYTES or now - self._looked_at >= self._every_s

    def _flush(self) -> bool:
        """Hands over what can be split off; False if that is nothing yet."""
        self._stop_at_end()
        data, lengths = self._inbox.arrays()
        cut = self._flow.framing.boundary(data, lengths, self._open)
        del data, lengths
        messages, size = cut.whole, cut.whole_bytes
        if not messages:
            if self._inbox.size < self._most_bytes or not cut.piece:
                return False  # the end of the transaction has not arrived yet
            messages, size = cut.piece, cut.piece_bytes
        self._wait_for_writer()
        self._wait_while_paused()
        if self._stopping.is_set():
            return False
        if not cut.commits and cut.whole and cut.position <= self._flow.framing.number(self._thread.position):
            self._inbox = self._inbox.without(messages, size)  # keepalives without news
            return False
        self._open = not cut.whole
        self._inbox = self._thread.hand_over(self._inbox, messages, size)
        return True

    def _stop_at_end(self) -> None:
        """Drops what lies beyond the requested end; what lies before it is whole transactions."""
        if self._until is None:
            return
        data, lengths = self._inbox.arrays()
        kept = self._flow.framing.end(data, lengths, self._open, self._end, self._until.time_us or 0)
        del data, lengths
        if kept >= 0:
            self._inbox = self._inbox.first(kept)
            self.reached = True

    def _find_moment(self) -> None:
        """Once the moment has passed upstream, the log's position bounds everything that committed by then."""
        if self._until is None or self._until.time_us is None or self._end:
            return
        position, clock = self._flow.now()
        if clock > self._until.time_us:
            self._end = self._flow.framing.number(position)

    def _wait_for_writer(self) -> None:
        """Waits until the last batch is published; meanwhile the upstream must not take us for dead."""
        while not self._thread.wait_idle(STILL_WAITING_S) and not self._stopping.is_set():
            self._extend_deadline()
            self._acknowledge()
        self._thread.check()

    def _wait_while_paused(self) -> None:
        """Waits while the changelog is too far ahead; not inside a transaction, which cannot be folded yet."""
        while self._paused.is_set() and not self._open and not self._stopping.wait(STILL_WAITING_S):
            self._extend_deadline()
            self._acknowledge()
            self._thread.check()
            self._heartbeat.check()

    def _acknowledge(self, *, ask: bool = False) -> None:
        position = self._thread.position
        self._flow.acknowledge(position, ask=ask)
        self._acknowledged = position
