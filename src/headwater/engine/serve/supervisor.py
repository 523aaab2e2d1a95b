"""Keeps one capture process per connection alive and hears what it publishes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from headwater.backoff import Backoff
from headwater.capture.until import Until
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.errors import JobError, Retry, restored

FIRST_WORD_S = 120.0  # a process that starts on a busy machine has spoken by then
RESTART = Backoff(0.5, 30.0)
REFUSED = "refused "  # and an error: how a capture says that it cannot begin
KILLED_S = 10.0  # by then a killed process is gone, unless the kernel itself waits


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[str]
    started_at: float
    thread: threading.Thread | None = None
    heard_at: float | None = None

    def silent(self, now: float, most_s: float) -> bool:
        """It has not been heard of for so long that it must have been stopped, or hangs."""
        if self.heard_at is None:
            return now - self.started_at > FIRST_WORD_S
        return now - self.heard_at > most_s


@dataclass(slots=True)
class _Slot:
    child: _Child | None = None
    pause_s: float = 0.0
    restart_at: float = 0.0


@dataclass
class Supervisor:
    """Starts, restarts and stops captures. `on_publish` is called from a thread per capture when it publishes."""

    home: Home
    on_publish: Callable[[], None]
    on_change: Callable[[], None] = lambda: None
    until: Until | None = None
    reached: set[int] = field(default_factory=set)  # connections whose capture has come to what `until` names
    _slots: dict[int, _Slot] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked_at: float = 0.0
    _ended: bool = False

    def want(self, connection_ids: set[int]) -> None:
        """Captures exactly these connections from now on; call again and again, it restarts what has ended."""
        with self._lock:
            for id in connection_ids if not self._ended else ():
                self._slots.setdefault(id, _Slot())
            gone = [id for id in self._slots if id not in connection_ids]
        for id in gone:
            self.stop(id)
        with self._lock:
            slots = list(self._slots.items())
        # who could not look for a while (a suspended machine) could not hear either
        deaf = time.monotonic() - self._looked_at > self.home.settings.capture_silence_s / 2
        self._looked_at = time.monotonic()
        for id, slot in slots:
            if deaf and slot.child is not None and slot.child.heard_at is not None:
                slot.child.heard_at = self._looked_at
            self._tend(id, slot)

    def stop(self, connection_id: int) -> None:
        """Ends one capture and waits for it."""
        with self._lock:
            slot = self._slots.pop(connection_id, None)
        if slot is not None and slot.child is not None:
            _end(slot.child)

    def stop_all(self) -> None:
        """Ends every capture for good: whoever just wants them starts none any more."""
        with self._lock:
            slots, self._slots, self._ended = list(self._slots.values()), {}, True
        children = [s.child for s in slots if s.child is not None]
        for child in children:
            _close_stdin(child)
        for child in children:
            _end(child)

    def pids(self) -> list[int]:
        with self._lock:
            return [s.child.process.pid for s in self._slots.values() if s.child is not None]

    def _tend(self, id: int, slot: _Slot) -> None:
        child = slot.child
        if (
            child is not None
            and child.process.poll() is None
            and child.silent(time.monotonic(), self.home.settings.capture_silence_s)
        ):
            self._replace(id, child)
        if child is not None and child.process.poll() is None:
            return
        now = time.monotonic()
        if child is not None:
            slot.child = None
            self.home.live.counters.add("headwater_capture_restarts_total", of=id)
            slot.pause_s = RESTART.after(slot.pause_s, now - child.started_at)
            slot.restart_at = now + slot.pause_s
        if now < slot.restart_at:
            return
        with self._lock:
            if self._slots.get(id) is not slot:  # stopped while we looked: nobody would end what we start
                return
            slot.child = self._start(id)
        self.on_change()

    def _replace(self, id: int, child: _Child) -> None:
        """Kills a capture that is not heard of: it may be stopped, and then no other signal reaches it."""
        silence = f"the capture was not heard of for {self.home.settings.capture_silence_s:g} s and is replaced"
        hint = f"Wait; if it comes back, see logs/capture-{id}.log in the home."
        error = JobError("job.failed", silence, hint, Retry.AUTO)
        self.home.live.failures.failed(Who("capture", connection=id), error)
        child.process.kill()
        with suppress(subprocess.TimeoutExpired):  # it waits for a disk that does not answer: looked at again next time
            child.process.wait(KILLED_S)

    def _start(self, id: int) -> _Child:
        logs = self.home.path / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"capture-{id}.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headwater.capture.process"),
                    *("--home", str(self.home.path), "--connection", str(id), "--force"),
                    *(("--until", self.until.text) if self.until else ()),
                    *self.home.settings.arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(os.environ),  # as it is now: Spark may be setting its own at this moment
                start_new_session=True,  # a signal to our process group is ours to answer
            )
        child = _Child(process, time.monotonic())
        child.thread = threading.Thread(target=self._listen, args=(id, child), name=f"capture-{id}", daemon=True)
        child.thread.start()
        return child

    def _listen(self, id: int, child: _Child) -> None:
        assert child.process.stdout is not None
        for line in child.process.stdout:
            child.heard_at = time.monotonic()
            who = Who("capture", connection=id)
            if line.startswith(REFUSED):
                self.home.live.failures.failed(who, restored(json.loads(line.removeprefix(REFUSED))))
                continue
            self.home.live.failures.worked(who)
            if line.strip() == "reached":
                self.reached.add(id)
            if line.strip() != "alive":
                self.on_publish()
        child.process.stdout.close()
        self.on_publish()


def _close_stdin(child: _Child) -> None:
    if child.process.stdin is not None and not child.process.stdin.closed:
        child.process.stdin.close()


def _end(child: _Child) -> None:
    """A capture ends when its pipe closes; one that hangs is killed, which it survives by design."""
    _close_stdin(child)
    try:
        child.process.wait(10)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait(10)
    if child.thread is not None:
        child.thread.join(5)
