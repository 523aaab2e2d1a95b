"""A home: the directory with meta, changelog and warehouse, and the lock that lets one server in."""

from __future__ import annotations

import difflib
import fcntl
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from headwater import config
from headwater.engine.live import Live
from headwater.engine.serve.wire import SOCKET
from headwater.errors import MachineError
from headwater.meta.store import Meta
from headwater.rundir import LOCK, META, private_file, usable_home
from headwater.settings.load import load
from headwater.settings.table import DEFAULTS, Settings
from headwater.storage import LocalStorage, Storage

HOMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Home:
    """An open home. `notices` are what its user should know of how it was opened."""

    path: Path
    storage: Storage
    meta: Meta
    notices: tuple[str, ...] = ()
    settings: Settings = DEFAULTS
    live: Live = field(default_factory=Live, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path, settings: Settings | None = None) -> Home:
        """Opens the home and creates what is missing; without `settings` they are those of its file."""
        settings = load(path) if settings is None else settings
        notices = [] if is_home(path) else [f"created the home {path}"]
        if usable_home(path):
            notices.append(f"{path} was open to other users; from now on only its owner can read it")
        if not settings.meta_url:
            private_file(path / META)
        return cls(path, LocalStorage(path), Meta(config.meta_url(path, settings.meta_url)), tuple(notices), settings)

    @property
    def socket(self) -> Path:
        """Where a running server answers."""
        return self.path / SOCKET

    @property
    def lock(self) -> Path:
        return self.path / LOCK


def is_home(path: Path) -> bool:
    """Somebody has made a home of this directory."""
    return any((path / name).exists() for name in (META, LOCK, SOCKET))


def missing_home(path: Path) -> MachineError:
    """The error for a directory that is no home, with those that could be meant."""
    near = ", or ".join(f"--home {found}" for found in _homes_near(path))
    option = "" if path == config.home_from(None) else f" --home {path}"
    make = f"`headwater run FILE.sql{option}` makes one."
    return MachineError("home.missing", f"there is no home in {path}", f"Did you mean {near}? {make}" if near else make)


def _homes_near(path: Path) -> list[Path]:
    """Homes that somebody who wrote this path may have meant: the default one, those inside and beside it."""
    beside = [p for folder in (path, path.parent) if folder.is_dir() for p in folder.iterdir() if p != path]
    default = config.home_from(None)
    found = [p for p in dict.fromkeys((default, *sorted(beside))) if p != path and is_home(p)]
    wanted = path.name.lower()
    return sorted(found, key=lambda p: -difflib.SequenceMatcher(None, wanted, p.name.lower()).ratio())[:HOMES_SHOWN]


class HomeLock:
    """The right to be this home's server. The lock file names the processes that may still write after a kill."""

    def __init__(self, home: Home) -> None:
        self._path = home.lock
        self._file: IO[str] | None = None

    def take(self) -> list[int]:
        """Takes the lock; returns the pids that the last owner had started and that may still live."""
        file = self._path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            file.seek(0)
            owner = _pids(file.read())
            file.close()
            who = f" (process {owner[0]})" if owner else ""
            raise MachineError(
                "home.locked",
                f"another server runs on {self._path.parent}{who}",
                "Use `headwater sql` to talk to it, or stop it first.",
            ) from e
        file.seek(0)
        left_over = _pids(file.read())
        self._file = file
        left_over = [pid for pid in left_over if pid != os.getpid()]
        self.record(left_over)  # so that they are known to the next one, too, if this process dies while it waits
        return left_over

    def record(self, children: list[int]) -> None:
        """Writes down who may write to this home: this process and those it started."""
        assert self._file is not None
        self._file.seek(0)
        self._file.truncate()
        json.dump([os.getpid(), *children], self._file)
        self._file.flush()

    def release(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            self._file.close()
            self._file = None


def wait_until_gone(pids: list[int], timeout_s: float = 60.0) -> None:
    """A killed driver's JVM lives on for about two seconds and could still commit: wait for it."""
    deadline = time.monotonic() + timeout_s
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
