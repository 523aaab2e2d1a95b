"""The contents of a run directory, which only its user can read."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from headwater.errors import MachineError
from headwater.storage.local import fsync

META = "meta.db"  # SQLite creates its other files with the same mode
LOCK = "lock"
SOCKET = "server.sock"
NAME = "server.id"
LAKE = "lake.id"  # of the lake, which is in the same directory
FOLDERS = ("changelog", "aside", "warehouse", "runs", "logs", "tmp")
FILES = (
    META,
    f"{META}-wal",
    f"{META}-shm",
    f"{META}-journal",
    LOCK,
    NAME,
    LAKE,
    SOCKET,
    "permit",  # written by earlier versions; not used
    "history",
    "headwater.toml",
)
USERS = ("history", "headwater.toml")  # written by the user, or for the user to keep
PRIVATE_FOLDER, PRIVATE_FILE, OTHERS = 0o700, 0o600, 0o077


def usable_home(root: Path, *, create: bool = True) -> bool:
    """Creates what is missing of the home, if it may; raises if it cannot be used. True: others could read it.

    Whatever is in a directory of mode 0700 is readable by its owner only, whoever wrote it and under whatever umask:
    this process, Spark or delta-rs. A directory that holds more than a home keeps its mode; only our own files change.
    """
    try:
        if create:
            _create(root)
        names = {entry.name for entry in root.iterdir()}
        # like every file of the lake, its id is written by the storage, and holds nothing to hide
        ours = [root / name for name in (*FOLDERS, *FILES) if name in names and name != LAKE]
        if names <= {*FOLDERS, *FILES}:
            ours.append(root)
        closed = not root.stat().st_mode & OTHERS  # then nobody reaches what is in it, such as a new settings file
        opened = [path for path in ours if _made_private(path)]
        return bool(opened) and not closed
    except OSError as e:
        raise MachineError(
            "home.unusable",
            f"cannot use {root} as home: {e.strerror}",
            "Choose a directory that this user can write to, with --home DIR or HEADWATER_HOME.",
        ) from e


def _create(root: Path) -> None:
    made = [d for d in (root, *root.parents) if not d.exists()]
    root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    for directory in made:
        fsync(directory.parent)
    for name in FOLDERS:
        (root / name).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    private_file(root / LOCK)


def missing_parts(root: Path) -> tuple[Path, ...]:
    """What opening the home would create, the innermost first: files and folders, the home itself, folders above it."""
    parts = [root / name for name in (*FILES, *FOLDERS) if name not in USERS]
    return tuple(path for path in (*parts, root, *root.parents) if not path.exists())


def remove_parts(root: Path, parts: Iterable[Path]) -> None:
    """Removes these parts of a home, with what has been written to them since; other directories only if empty."""
    for path in parts:
        if path.is_dir() and path.parent == root and path.name in FOLDERS:
            shutil.rmtree(path, ignore_errors=True)  # a process that is ending may still write its log there
        elif path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()
        else:
            path.unlink(missing_ok=True)


def private_file(path: Path) -> None:
    """Creates the file, accessible to its owner only, unless it exists; it must be writable."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))


def _made_private(path: Path) -> bool:
    """Removes other users' access to a file that this user owns; False if they had none."""
    try:
        found = path.stat()
    except FileNotFoundError:  # SQLite removes its own files next to meta when the last reader has gone
        return False
    if found.st_uid != os.geteuid() or not found.st_mode & OTHERS:
        return False
    path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    return True
