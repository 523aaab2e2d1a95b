"""The right of a Spark task to write next to a base: the server that sent it is still the home's server.

A worker outlives a killed server for moments, and a file that it finishes after the next server has cleaned up would
stay for ever. So a task shares a lock while it writes and shows its server's fence; the next server changes the fence
under the same lock, alone. A killed process loses its locks.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import FencedError, MachineError
from headwater.rundir import private_file

FILE = "permit"


@dataclass(frozen=True, slots=True)
class Permit:
    """What a task carries: the home and its server's fence."""

    root: str
    fence: int

    @contextmanager
    def used(self) -> Iterator[None]:
        """The task may write inside this block; a later server waits for its end. FencedError if there is one."""
        with (Path(self.root) / FILE).open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if file.read() != str(self.fence):
                raise FencedError("job.fenced", "the server that sent this task is gone")
            yield


def hand_over(root: Path, fence: int, timeout_s: float = 60.0) -> Permit:
    """The permit of a new server; tasks of earlier ones have ended when this returns, and begin no more."""
    deadline = time.monotonic() + timeout_s
    private_file(root / FILE)
    with (root / FILE).open("a+", encoding="utf-8") as file:
        while not _alone(file.fileno()):
            if time.monotonic() > deadline:
                pids = " ".join(str(p) for p in _holders(file.fileno()))
                raise MachineError(
                    "home.locked", "a task of an earlier server still writes to this home", f"End it: kill -9 {pids}"
                )
            time.sleep(0.05)
        file.truncate(0)
        file.write(str(fence))
    return Permit(str(root), fence)


def _alone(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holders(fd: int) -> list[int]:
    """Who holds the lock, as the kernel tells it."""
    inode = str(os.fstat(fd).st_ino)
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [int(f[4]) for f in held if len(f) > 5 and f[1] == "FLOCK" and f[5].rsplit(":", 1)[-1] == inode]
