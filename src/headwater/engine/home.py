"""A home: the directory with meta, changelog and warehouse."""

from __future__ import annotations

import difflib
import stat
from dataclasses import dataclass, field
from pathlib import Path

from headwater import config
from headwater.engine.live import Live
from headwater.errors import MachineError
from headwater.meta.store import Meta
from headwater.rundir import LAKE, LOCK, META, SOCKET, missing_parts, private_file, remove_parts, usable_home
from headwater.rundir.lock import ServerLock
from headwater.settings.load import load
from headwater.settings.table import DEFAULTS, Settings
from headwater.storage import LocalStorage, Storage

HOMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Home:
    """An open home. `notices` tell its user what was done to open it; `made` are paths that did not exist before."""

    path: Path
    storage: Storage
    meta: Meta
    notices: tuple[str, ...] = ()
    settings: Settings = DEFAULTS
    made: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    mode: int | None = field(default=None, repr=False, compare=False)  # of its directory, if that existed before
    live: Live = field(default_factory=Live, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path, settings: Settings | None = None, *, create: bool = True) -> Home:
        """Opens the home and creates what is missing; `settings` default to its settings file.

        Without `create`, as everything that only reads does, nothing is created: `home.missing` if there is no home.
        """
        settings = load(path) if settings is None else settings
        made = missing_parts(path) if create else ()
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        notices = [] if is_home(path) else [f"created the home {path}"]
        if not create:
            _check_complete(path, settings)
        if usable_home(path, create=create):
            notices.append(f"{path} was open to other users; from now on only its owner can read it")
        if not settings.meta_url and create:
            private_file(path / META)
        meta = Meta(config.meta_url(path, settings.meta_url), create=create)
        return cls(path, LocalStorage(path), meta, tuple(notices), settings, made, mode)

    @property
    def is_new(self) -> bool:
        """Whether its meta was created when it was opened here, in the home itself."""
        return self.path / META in self.made and not self.settings.meta_url

    def discard(self) -> None:
        """Closes a new home and removes everything that opening it has created, unless a server runs on it."""
        self.meta.close()
        lock = ServerLock(self.path)
        try:
            lock.take()
        except MachineError:  # somebody else has begun to use it
            return
        try:
            remove_parts(self.path, self.made)
            if self.mode is not None:
                self.path.chmod(self.mode)
        finally:
            lock.release()

    @property
    def socket(self) -> Path:
        """Where a running server answers."""
        return self.path / SOCKET


def is_home(path: Path) -> bool:
    """Whether this directory is a home; its meta may be elsewhere."""
    return any((path / name).exists() for name in (META, SOCKET)) or all(
        (path / name).exists() for name in (LOCK, "warehouse")
    )


def _check_complete(path: Path, settings: Settings) -> None:
    """Raises unless the directory is a home with its meta; SQLite would create an empty one."""
    if not is_home(path):
        raise missing_home(path)
    found = path / META
    if settings.meta_url or (found.exists() and found.stat().st_size):
        return
    if not (path / LAKE).exists():
        raise missing_home(path)
    raise MachineError(
        "home.missing",
        f"{path} has a lake, but its meta is not there ({META})",
        "Restore meta.db from a backup; if meta is in another database, name it (--config, --set meta.url=…).",
    )


def missing_home(path: Path) -> MachineError:
    """The error for a directory that is not a home, with suggestions."""
    near = ", or ".join(f"--home {found}" for found in _homes_near(path))
    option = "" if path == config.home_from(None) else f" --home {path}"
    make = f"`headwater run FILE.sql{option}` creates one."
    return MachineError("home.missing", f"there is no home in {path}", f"Did you mean {near}? {make}" if near else make)


def _homes_near(path: Path) -> list[Path]:
    """Homes that this path may have meant: the default one, and those inside and next to it, best match first."""
    beside = [p for folder in (path, path.parent) if folder.is_dir() for p in folder.iterdir() if p != path]
    default = config.home_from(None)
    found = [p for p in dict.fromkeys((default, *sorted(beside))) if p != path and is_home(p)]
    wanted = path.name.lower()
    return sorted(found, key=lambda p: -difflib.SequenceMatcher(None, wanted, p.name.lower()).ratio())[:HOMES_SHOWN]
