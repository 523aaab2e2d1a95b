"""A home: the directory with meta, changelog and warehouse."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from pathlib import Path

from headwater import config
from headwater.engine.live import Live
from headwater.errors import MachineError
from headwater.meta.store import Meta
from headwater.rundir import LOCK, META, SOCKET, private_file, usable_home
from headwater.settings.load import load
from headwater.settings.table import DEFAULTS, Settings
from headwater.storage import LocalStorage, Storage

HOMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Home:
    """An open home. `notices` tell its user what was done to open it."""

    path: Path
    storage: Storage
    meta: Meta
    notices: tuple[str, ...] = ()
    settings: Settings = DEFAULTS
    live: Live = field(default_factory=Live, repr=False, compare=False)

    @classmethod
    def open(cls, path: Path, settings: Settings | None = None) -> Home:
        """Opens the home and creates what is missing; `settings` default to its settings file."""
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


def is_home(path: Path) -> bool:
    """Whether this directory is a home."""
    return any((path / name).exists() for name in (META, LOCK, SOCKET))


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
