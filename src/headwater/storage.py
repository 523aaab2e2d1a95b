"""The only user of paths: files of a home, always named relative to it, durable when it says so."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.fs as pafs

from headwater.errors import MachineError

META = "meta.db"  # SQLite makes its files beside it with the same mode
LOCK = "lock"
FOLDERS = ("changelog", "aside", "warehouse", "logs", "tmp")
FILES = (
    META,
    f"{META}-wal",
    f"{META}-shm",
    f"{META}-journal",
    LOCK,
    "server.sock",
    "permit",
    "history",
    "headwater.toml",
)
PRIVATE_FOLDER, PRIVATE_FILE, OTHERS = 0o700, 0o600, 0o077


class Storage:
    """Files below a home. Relative paths use `/`; a task can be given a Storage (it pickles as its root)."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self._reachable: set[Path] = set()  # directories whose own entries, up to the home, are known to be durable

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
        """A new file that is durable (data and directories) when the block ends; removed when the block fails.

        A file that exists is an error and stays as it is: it may be published, mapped and read by now.
        """
        target = self.root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = target.open("xb")
        except OSError as e:
            if _is_full(e):
                raise self._disk_full(path) from e
            raise
        try:
            with file as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
            self._sync_directories([target.parent])
        except OSError as e:
            target.unlink(missing_ok=True)
            if _is_full(e):
                raise self._disk_full(path) from e
            raise
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def sync(self, paths: Iterable[str]) -> None:
        """Makes files that somebody else wrote durable, with the directories that lead to them; all must exist."""
        targets = [self.root / path for path in paths]
        for target in targets:
            _fsync(target)
        self._sync_directories(target.parent for target in targets)

    def sync_directory(self, path: str) -> None:
        """Makes what was added to a folder and removed from it durable."""
        self._sync_directories([self.root / path])

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
            self._reachable.difference_update([d for d in list(self._reachable) if d.is_relative_to(target)])
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def list(self, path: str) -> list[str]:
        """All files below a folder, relative to the home."""
        base = self.root / path
        if not base.exists():
            return []
        return sorted(str(p.relative_to(self.root)) for p in base.rglob("*") if p.is_file())

    def _sync_directories(self, directories: Iterable[Path]) -> None:
        """Makes the entries of directories durable, and their own entries in the ones above, up to the home.

        Who made them does not matter: another process may have, and may have died before it synced anything.
        """
        for directory in set(directories):
            _fsync(directory)
            above = directory
            while above != self.root and above not in self._reachable:
                _fsync(above.parent)
                self._reachable.add(above)
                above = above.parent

    def _disk_full(self, path: str) -> MachineError:
        return MachineError(
            "home.disk_full",
            f"no space left while writing {path}",
            f"Free space on the disk of {self.root}; work continues by itself.",
        )


def _is_full(e: OSError) -> bool:
    return e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def boot() -> str:
    """Names the time since the machine started: what was written within it and not synced is still there.

    Empty where the system does not say; then nothing may be concluded from two that are equal.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
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
        made = [d for d in (root, *root.parents) if not d.exists()]
        root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        for directory in made:
            _fsync(directory.parent)
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
