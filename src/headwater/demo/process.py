"""A database server as its own process, in a temporary directory; it can be crashed and restarted."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from headwater.demo.machine import account
from headwater.errors import MachineError

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
PASSWORD = secrets.token_hex(12)  # one per process: any user of the machine can reach a loopback port


class ServerProcess(ABC):
    """The lifecycle of a server. Use as a context manager, or call `stop()`; `start()` after a `crash()` recovers."""

    name: ClassVar[str]
    host = "127.0.0.1"
    ends: ClassVar[signal.Signals]  # a clean shutdown
    crashes: ClassVar[signal.Signals]  # like a power cut
    leaves: ClassVar[signal.Signals]  # the fastest end, which leaves nothing behind but files

    def __init__(self, accounts: tuple[str, ...]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=f"headwater-{self.name.lower()}-"))
        self.data = self.root / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._account = account(*accounts)

    @abstractmethod
    def command(self) -> list[str]:
        """The command that runs the server."""

    @abstractmethod
    def answer(self) -> None:
        """Raises while the server does not accept connections."""

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        log = (self.root / "log").open("ab")
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self.as_account(),
        )
        log.close()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise self.failed("did not start", (self.root / "log").read_bytes())
            try:
                self.answer()
                return
            except Exception:
                time.sleep(0.05)

    def stop(self) -> None:
        """Stops the server and removes its files."""
        self.end(self.leaves)
        shutil.rmtree(self.root, ignore_errors=True)

    def end(self, sig: signal.Signals) -> None:
        """Sends a signal and waits for the process to end; kills it if it does not."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sig)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    # Hooks for tests: the demo itself starts its servers once and stops them at the end.

    def crash(self) -> None:
        """Ends it like a power cut: unflushed data is lost."""
        self.end(self.crashes)

    def restart(self) -> None:
        """A clean shutdown and a start."""
        self.end(self.ends)
        self.start()

    def as_account(self) -> dict[str, Any]:
        """Arguments that make root start a server as an unprivileged account: servers refuse to run as root."""
        if not self._account:
            return {"cwd": self.root}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "cwd": self.root}

    def failed(self, what: str, log: bytes) -> MachineError:
        """The error for a server that does not run, with the end of its output."""
        tail = log.decode(errors="replace")[-2000:]
        return MachineError("demo.server", f"the embedded {self.name} {what}:\n{tail}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()
