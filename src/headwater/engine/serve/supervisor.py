"""Keeps one capture process per connection running, and listens for its publications."""

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
from headwater.capture.process import PAUSE, RESUME
from headwater.capture.until import Until
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.errors import JobError, Retry, restored

FIRST_WORD_S = 120.0  # enough for a process to start on a busy machine
RESTART = Backoff(0.5, 30.0)
REFUSED = "refused "  # followed by an error: the capture cannot start
KILLED_S = 10.0  # by then a killed process is gone, unless it is blocked in the kernel


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[str]
    started_at: float
    thread: threading.Thread | None = None
    heard_at: float | None = None
    paused: bool = False  # paused by us

    def silent(self, now: float, most_s: float) -> bool:
        """Whether it has been silent for so long that it must be stopped or hung."""
        if self.heard_at is None:
            return now - self.started_at > FIRST_WORD_S
        return now - self.heard_at > most_s


@dataclass(slots=True)
class _Supervised:
    child: _Child | None = None
    pause_s: float = 0.0
    restart_at: float = 0.0


@dataclass
class Supervisor:
    """Starts, restarts and stops captures. `on_publish` is called from a thread per capture when it publishes."""

    home: Home
    on_publish: Callable[[], None]
    until: Until | None = None
    reached: set[int] = field(default_factory=set)  # connections whose capture has reached `until`
    _supervised: dict[int, _Supervised] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _looked_at: float = 0.0
    _ended: bool = False

    def want(self, connection_ids: set[int]) -> None:
        """Captures exactly these connections from now on. Call repeatedly: it restarts captures that have died."""
        with self._lock:
            for id in connection_ids if not self._ended else ():
                self._supervised.setdefault(id, _Supervised())
            gone = [id for id in self._supervised if id not in connection_ids]
        for id in gone:
            self.stop(id)
        with self._lock:
            supervised = list(self._supervised.items())
        # if we were suspended for a while, we could not have heard from captures
        deaf = time.monotonic() - self._looked_at > self.home.settings.capture_silence_s / 2
        self._looked_at = time.monotonic()
        for id, one in supervised:
            if deaf and one.child is not None and one.child.heard_at is not None:
                one.child.heard_at = self._looked_at
            self._maintain(id, one)

    def pause(self, connection_ids: set[int]) -> None:
        """Pauses exactly these captures, between transactions, and resumes all others."""
        with self._lock:
            children = [(id, s.child) for id, s in self._supervised.items() if s.child is not None]
        for id, child in children:
            wanted = id in connection_ids
            if wanted != child.paused and _send(child, PAUSE if wanted else RESUME):
                child.paused = wanted

    def stop(self, connection_id: int) -> None:
        """Stops one capture and waits for it to exit."""
        with self._lock:
            one = self._supervised.pop(connection_id, None)
        if one is not None and one.child is not None:
            _end(one.child)

    def stop_all(self) -> None:
        """Stops every capture permanently: a concurrent `want` starts no more."""
        with self._lock:
            supervised, self._supervised, self._ended = list(self._supervised.values()), {}, True
        children = [s.child for s in supervised if s.child is not None]
        for child in children:
            _close_stdin(child)
        for child in children:
            _end(child)

    def pids(self) -> list[int]:
        with self._lock:
            return [s.child.process.pid for s in self._supervised.values() if s.child is not None]

    def _maintain(self, id: int, one: _Supervised) -> None:
        child = one.child
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
            one.child = None
            self.home.live.counters.add("headwater_capture_restarts_total", of=id)
            one.pause_s = RESTART.after(one.pause_s, now - child.started_at)
            one.restart_at = now + one.pause_s
        if now < one.restart_at:
            return
        with self._lock:
            if self._supervised.get(id) is not one:  # stopped meanwhile: nothing would stop what we start
                return
            one.child = self._start(id)

    def _replace(self, id: int, child: _Child) -> None:
        """Kills a silent capture. It may be stopped, and then it reacts to no other signal."""
        silence = f"the capture was silent for {self.home.settings.capture_silence_s:g} s and is being replaced"
        hint = f"Wait; if it happens again, see logs/capture-{id}.log in the home."
        error = JobError("job.failed", silence, hint, Retry.AUTO)
        self.home.live.failures.failed(Who("capture", connection=id), error)
        child.process.kill()
        with suppress(subprocess.TimeoutExpired):  # blocked on a disk: checked again next time
            child.process.wait(KILLED_S)

    def _start(self, id: int) -> _Child:
        logs = self.home.path / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"capture-{id}.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "headwater.capture.process"),
                    *("--home", str(self.home.path), "--connection", str(id), "--alone"),
                    *(("--until", self.until.text) if self.until else ()),
                    *self.home.settings.arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(os.environ),  # a copy: Spark may be setting variables concurrently
                start_new_session=True,  # signals to our process group are ours to handle
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
            self.home.live.failures.succeeded(who)
            if line.strip() == "reached":
                self.reached.add(id)
            if line.strip() != "alive":
                self.on_publish()
        child.process.stdout.close()
        self.on_publish()


def _send(child: _Child, word: str) -> bool:
    """Sends a word to a capture; False if it has exited."""
    try:
        assert child.process.stdin is not None
        child.process.stdin.write(f"{word}\n")
        child.process.stdin.flush()
    except (OSError, ValueError):
        return False
    return True


def _close_stdin(child: _Child) -> None:
    if child.process.stdin is not None and not child.process.stdin.closed:
        child.process.stdin.close()


def _end(child: _Child) -> None:
    """Stops a capture by closing its pipe; kills it if it hangs, which is safe by design.

    One that is only just starting has nothing to finish, and would notice the closed pipe only after seconds.
    """
    _close_stdin(child)
    if child.heard_at is None:
        child.process.kill()
    try:
        child.process.wait(10)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait(10)
    if child.thread is not None:
        child.thread.join(5)
