"""The protocol of a lake's storage: files by name, durable when it says so. An object store can keep all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, NamedTuple

import pyarrow as pa


class Stat(NamedTuple):
    """What is known of a file without reading it."""

    size: int
    modified_at: float  # seconds since 1970


class Storage(ABC):
    """Files of a lake by their names: relative, with `/`. A storage travels to tasks, so it pickles.

    A folder is a prefix of names: nothing makes one, and one without files is none.
    """

    @abstractmethod
    def create(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file that is durable when the block ends; when the block fails there is none.

        A file that exists is an error (FileExistsError) and stays as it is: it may be published and read by now.
        """

    @abstractmethod
    def write(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file that need not survive the end of the machine: what can be made again."""

    @abstractmethod
    def open(self, path: str) -> pa.NativeFile:
        """The file for reading, whole or in ranges (`read_at`, `seek`); FileNotFoundError if there is none."""

    @abstractmethod
    def stat(self, path: str) -> Stat | None:
        """Size and time of a file; None if there is none."""

    @abstractmethod
    def list(self, folder: str) -> Iterator[str]:
        """The names of all files below a folder, in order, a page at a time."""

    @abstractmethod
    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders in a folder, without what stands before them."""

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, in any order; a missing one is fine."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Removes every file below a folder."""

    @abstractmethod
    def sync(self, paths: Iterable[str]) -> None:
        """Makes files that Spark or delta-rs wrote durable; all must exist."""

    @abstractmethod
    def sync_folder(self, folder: str) -> None:
        """Makes what was added to a folder and removed from it durable."""

    @abstractmethod
    def life(self) -> str:
        """Names the time within which nothing is lost that was written and not synced; '' if that is not known.

        For a local disk, the time since the machine started. Two equal names mean that everything is still there.
        """

    @abstractmethod
    def address(self, path: str) -> str:
        """The absolute address of a file or a folder, for Spark and delta-rs."""

    @property
    def options(self) -> dict[str, str]:
        """What delta-rs must be told to reach an address."""
        return {}

    @property
    def spark_settings(self) -> dict[str, str]:
        """What Spark must be told to reach an address."""
        return {}

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def size(self, path: str) -> int:
        """The bytes of a file that exists."""
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
