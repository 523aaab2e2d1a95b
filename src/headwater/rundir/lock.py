"""One server per run directory on this machine, by a file lock and process ids.

Leases and fences in meta decide who may commit, on any machine. This module is only about this machine, and relies on
its kernel: a killed process loses its lock. It is needed in addition because

- the lock proves that an earlier server of this directory is gone, so a restart need not wait for its lease to expire;
- on a local disk Spark's log store and delta-rs can overwrite each other's commit, and the JVM of a killed server lives
  on for about two seconds. So the server records the JVM's pid, and the next one waits until that process is gone.

Nothing else in Headwater uses locks or process ids to decide who owns something.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import uuid
from pathlib import Path
from typing import IO

from headwater.errors import MachineError
from headwater.ownership.lease import Owner
from headwater.rundir.files import LOCK, NAME, PRIVATE_FOLDER, private_file
from headwater.storage.local import fsync

GONE_S = 60.0  # by then a JVM whose server was killed has ended


def owner(root: Path) -> Owner:
    """This process as an owner. The directory has a name of its own, because a host name can change between starts."""
    return Owner(_name(root / NAME), f"{socket.gethostname()}:{os.getpid()}")


def _name(path: Path) -> str:
    try:
        if name := path.read_text(encoding="ascii").strip():
            return name
        path.unlink()  # left empty by a power loss
    except FileNotFoundError:
        pass
    new = path.parent / "tmp" / f"{NAME}-{uuid.uuid4().hex}"
    new.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    private_file(new)
    try:
        new.write_text(uuid.uuid4().hex, encoding="ascii")
        fsync(new)
        os.link(new, path)  # if two processes race, both use the first one's
        fsync(path.parent)  # under another name, a start after a power loss would have to wait for the lease
    except FileExistsError:
        pass
    finally:
        new.unlink()
    return path.read_text(encoding="ascii")


class ServerLock:
    """The right to be this directory's server. The lock file lists processes that can still commit after a kill."""

    def __init__(self, root: Path) -> None:
        self._path = root / LOCK
        self._file: IO[str] | None = None

    def take(self) -> None:
        """Takes the lock and waits until no process of the last server can commit."""
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            file.seek(0)
            running = _pids(file.read())
            file.close()
            who = f" (process {running[0]})" if running else ""
            raise MachineError(
                "home.locked",
                f"another server runs on {self._path.parent}{who}",
                "Use `headwater sql` to talk to it, or stop it first.",
            ) from e
        file.seek(0)
        self._file = file
        left_over = [pid for pid in _pids(file.read()) if pid != os.getpid()]
        self.record(left_over)  # for the next one, in case this process dies while it waits
        _wait_until_gone(left_over)

    def record(self, started: list[int]) -> None:
        """Records the processes that can commit: this one and those it started."""
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        json.dump([os.getpid(), *started], self._file)
        self._file.flush()

    def release(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.close()
            self._file = None


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + GONE_S
    for pid in pids:
        while _is_ours(pid):
            if time.monotonic() > deadline:
                raise MachineError(
                    "home.locked",
                    f"process {pid} of an earlier server is still alive",
                    f"End it with: kill -9 {pid}",
                )
            time.sleep(0.05)


def _is_ours(pid: int) -> bool:
    """The process lives and looks like one of ours (a pid may have been used again)."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z" and (b"headwater" in command or b"org.apache.spark" in command)


def _pids(text: str) -> list[int]:
    try:
        return [int(p) for p in json.loads(text)]
    except (ValueError, TypeError):
        return []
