"""The protocol of a lake's storage: files by name, durable when it says so. An object store can implement all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, NamedTuple

import pyarrow as pa


class Stat(NamedTuple):
    """What is known about a file without reading it."""

    size: int
    modified_at: float  # seconds since 1970


class Storage(ABC):
    """Files of a lake by name: relative, with `/`. A storage travels to tasks, so it can be pickled.

    A folder is a prefix of names: it is never created, and without files it does not exist.
    """

    @abstractmethod
    def create(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file that is durable when the block ends; if the block fails, there is none.

        An existing file is an error (FileExistsError) and stays unchanged: it may already be published and read.
        """

    @abstractmethod
    def write(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file that need not survive a machine crash, because it can be recreated."""

    @abstractmethod
    def open(self, path: str) -> pa.NativeFile:
        """The file for reading, whole or in ranges (`read_at`, `seek`); FileNotFoundError if it does not exist."""

    @abstractmethod
    def stat(self, path: str) -> Stat | None:
        """Size and time of a file; None if it does not exist."""

    @abstractmethod
    def list(self, folder: str) -> Iterator[str]:
        """The names of all files in a folder and below, in order, a page at a time."""

    @abstractmethod
    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders in a folder, without its own prefix."""

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, in any order; a missing one is fine."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Removes every file in a folder and below."""

    @abstractmethod
    def sync(self, paths: Iterable[str]) -> None:
        """Makes files that Spark or delta-rs wrote durable; all must exist."""

    @abstractmethod
    def sync_folder(self, folder: str) -> None:
        """Makes additions to a folder and removals from it durable."""

    @abstractmethod
    def life(self) -> str:
        """A name for the period in which nothing written is lost even if it was not synced; '' if unknown.

        For a local disk, the time since the machine booted. Two equal names mean that everything still exists.
        """

    @abstractmethod
    def address(self, path: str) -> str:
        """The absolute address of a file or a folder, for Spark and delta-rs."""

    @property
    def options(self) -> dict[str, str]:
        """The options delta-rs needs to reach an address."""
        return {}

    @property
    def spark_settings(self) -> dict[str, str]:
        """The settings Spark needs to reach an address."""
        return {}

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def size(self, path: str) -> int:
        """The size of an existing file in bytes."""
        found = self.stat(path)
        if found is None:
            raise FileNotFoundError(path)
        return found.size

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or of a range of it."""
        with self.open(path) as file:
            if length is None:
                file.seek(start)
                return bytes(file.read())
            return bytes(file.read_at(length, start))
