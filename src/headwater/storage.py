"""The only user of paths: files of a home, always named relative to it, durable when it says so."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.fs as pafs

from headwater.errors import MachineError

META = "meta.db"  # SQLite makes its files beside it with the same mode
LOCK = "lock"
FOLDERS = ("changelog", "aside", "warehouse", "logs", "tmp")
FILES = (META, f"{META}-wal", f"{META}-shm", f"{META}-journal", LOCK, "server.sock", "history")
PRIVATE_FOLDER, PRIVATE_FILE, OTHERS = 0o700, 0o600, 0o077


class Storage:
    """Files below a home. Relative paths use `/`; a task can be given a Storage (it pickles as its root)."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    def __reduce__(self) -> tuple[object, ...]:
        return (Storage, (str(self.root),))

    @property
    def fs(self) -> pafs.FileSystem:
        return pafs.LocalFileSystem()

    def url(self, path: str) -> str:
        """The absolute address of a file, for Spark and delta-rs."""
        return str(self.root / path)

    @contextmanager
    def create(self, path: str) -> Iterator[IO[bytes]]:
        """A new file that is durable (data and directory) when the block ends; removed when the block fails."""
        target = self.root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
            self._sync_directory(target.parent)
        except OSError as e:
            target.unlink(missing_ok=True)
            if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise MachineError(
                    "home.disk_full",
                    f"no space left while writing {path}",
                    f"Free space on the disk of {self.root}; work continues by itself.",
                ) from e
            raise
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def map(self, path: str) -> pa.MemoryMappedFile:
        """The file's bytes, mapped."""
        return pa.memory_map(str(self.root / path))

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def size(self, path: str) -> int:
        return (self.root / path).stat().st_size

    def modified_at(self, path: str) -> float:
        return (self.root / path).stat().st_mtime

    def remove(self, path: str) -> None:
        """Removes a file or a folder; a missing one is fine."""
        target = self.root / path
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def list(self, path: str) -> list[str]:
        """All files below a folder, relative to the home."""
        base = self.root / path
        if not base.exists():
            return []
        return sorted(str(p.relative_to(self.root)) for p in base.rglob("*") if p.is_file())

    @staticmethod
    def _sync_directory(directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def usable_home(root: Path) -> bool:
    """Creates what is missing of the home; says clearly when it cannot be used. True: it could be read by others.

    Whatever lies below a folder of mode 0700 can be read by its owner alone, whoever wrote it and under whatever umask:
    this process, Spark or delta-rs. A directory that holds more than a home keeps its mode; only what is ours changes.
    """
    try:
        root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        for name in FOLDERS:
            (root / name).mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        private_file(root / LOCK)
        names = {entry.name for entry in root.iterdir()}
        ours = [root / name for name in (*FOLDERS, *FILES) if name in names]
        if names <= {*FOLDERS, *FILES}:
            ours.append(root)
        opened = [path for path in ours if _made_private(path)]
        return bool(opened)
    except OSError as e:
        raise MachineError(
            "home.unusable",
            f"cannot use {root} as home: {e.strerror}",
            "Choose a directory that this user can write, with --home DIR or HEADWATER_HOME.",
        ) from e


def private_file(path: Path) -> None:
    """Creates the file, for its owner alone, unless it exists; it must be writable."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))


def _made_private(path: Path) -> bool:
    """Takes the rights of others away from what this user owns; False if there were none."""
    try:
        found = path.stat()
    except FileNotFoundError:  # SQLite removes its own files beside meta when the last reader has gone
        return False
    if found.st_uid != os.geteuid() or not found.st_mode & OTHERS:
        return False
    path.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    return True
