"""A directory of this machine as a lake's storage; files are memory-mapped for reading."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from headwater.errors import disk_full, is_full
from headwater.storage.base import Stat, Storage


class LocalStorage(Storage):
    """Files in a directory. It pickles as the directory's path."""

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root).absolute()
        self._reachable: set[Path] = set()  # directories whose own entries, up to the home, are known to be durable

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStorage, (str(self._root),))

    def __repr__(self) -> str:
        return f"LocalStorage({str(self._root)!r})"

    def address(self, path: str) -> str:
        return str(self._root / path)

    @contextmanager
    def create(self, path: str) -> Iterator[IO[bytes]]:
        target = self._root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = target.open("xb")
        except OSError as e:
            if is_full(e):
                raise disk_full(path) from e
            raise
        try:
            with file as f:
                yield f
                f.flush()
                os.fsync(f.fileno())
            self._sync_directories([target.parent])
        except OSError as e:
            target.unlink(missing_ok=True)
            if is_full(e):
                raise disk_full(path) from e
            raise
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    @contextmanager
    def write(self, path: str) -> Iterator[IO[bytes]]:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with target.open("xb") as f:
                yield f
        except FileExistsError:
            raise
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def open(self, path: str) -> pa.NativeFile:
        """The file, memory-mapped: pages are read when they are used, and shared by all readers."""
        return pa.memory_map(str(self._root / path))

    def stat(self, path: str) -> Stat | None:
        try:
            found = (self._root / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Stat(found.st_size, found.st_mtime)

    def list(self, folder: str) -> Iterator[str]:
        base = self._root / folder
        found = sorted(p.relative_to(self._root).as_posix() for p in base.rglob("*") if p.is_file())
        yield from found

    def folders(self, folder: str) -> Sequence[str]:
        base = self._root / folder
        return sorted(p.name for p in base.iterdir() if p.is_dir()) if base.is_dir() else []

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            (self._root / path).unlink(missing_ok=True)

    def remove_folder(self, folder: str) -> None:
        target = self._root / folder
        self._reachable.difference_update([d for d in list(self._reachable) if d.is_relative_to(target)])
        shutil.rmtree(target, ignore_errors=True)

    def sync(self, paths: Iterable[str]) -> None:
        targets = [self._root / path for path in paths]
        for target in targets:
            fsync(target)
        self._sync_directories(target.parent for target in targets)

    def sync_folder(self, folder: str) -> None:
        self._sync_directories([self._root / folder])

    def life(self) -> str:
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def _sync_directories(self, directories: Iterable[Path]) -> None:
        """Makes the entries of directories durable, and their own entries in their parents, up to the home.

        Who created them does not matter: it may be another process, which died before it synced anything.
        """
        for directory in set(directories):
            fsync(directory)
            above = directory
            while above != self._root and above not in self._reachable:
                fsync(above.parent)
                self._reachable.add(above)
                above = above.parent


def fsync(path: Path) -> None:
    """Makes a file, or a directory's entries, durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
