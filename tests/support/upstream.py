"""What the suites need of any kind of database: see `upstreams` for the kinds."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from support import lake, writer
from support.writing import SESSIONS, Dialect, RandomWriter


@dataclass(frozen=True)
class Can:
    """What a kind of database can do, as far as a suite must know."""

    keep_prepared: bool = False  # after a crash, log and tables agree on what was prepared


class Upstream(ABC):
    """A fresh database of some kind."""

    name: ClassVar[str]
    type: ClassVar[str]
    connection: ClassVar[str]  # its name in definitions
    shared: ClassVar[str]  # fixture of tests/conftest.py: the server that tests share
    fixture: ClassVar[str]  # fixture of tests/conftest.py: a fresh database on it
    can: ClassVar[Can]
    errors: ClassVar[tuple[type[Exception], ...]]  # what its driver raises
    tables: ClassVar[tuple[str, ...]] = writer.TABLES
    rewrite: ClassVar[tuple[str, ...]]  # statements after which `parts` must be resynced
    shout: ClassVar[tuple[str, ...]]  # statements that end each text `v` of a table {0} with `!`, and log no row
    retype: ClassVar[str]  # makes bytes of the text `v` of a table {0}
    widen: ClassVar[str]  # makes a bigint of the key `id` of a table {0}
    held: ClassVar[tuple[str, ...]] = (
        "UPDATE ints SET n = 7 WHERE id < 5",
        "INSERT INTO whole VALUES (1000000, 1, 'long')",
    )

    def __init__(self, database: Any) -> None:
        self.database = database
        self.server = database.server

    @classmethod
    @abstractmethod
    def serve(cls, settings: Mapping[str, str] | None = None) -> contextlib.AbstractContextManager[Self]:
        """A database on a server of its own."""

    @classmethod
    def is_here(cls) -> bool:
        """Whether this machine has such a server."""
        return True

    @property
    @abstractmethod
    def dialect(self) -> Dialect: ...

    @property
    @abstractmethod
    def schema(self) -> str:
        """The schema of its tables."""

    def definitions(self, tables: Sequence[str]) -> str:
        """A connection and its tables, as a user writes them."""
        return lake.definitions(self.database, tables, connection=self.connection, type=self.type)

    @abstractmethod
    def create_schema(self, *, rows: int, seed: int) -> None:
        """The random writer's tables, with up to `rows` rows each."""

    def writer(self, seed: int, rate: float, *, sessions: int = SESSIONS, crashes: bool = False) -> RandomWriter:
        """The random writer on all tables; `crashes` says that the server will be killed."""
        two_phase = self.can.keep_prepared or not crashes
        return RandomWriter(self.dialect, seed, self.tables, rate, sessions=sessions, two_phase=two_phase)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.database.execute(statement)
        return found

    @abstractmethod
    def session(self) -> contextlib.AbstractContextManager[Callable[[str], object]]:
        """Runs statements one after the other in one session."""

    def fill(self, table: str, rows: int, values: str) -> None:
        """Inserts rows; `values` are expressions over `i`, which counts from 1."""
        self.execute(f"INSERT INTO {table} SELECT {values} FROM {self.numbers(rows)}")

    @abstractmethod
    def numbers(self, rows: int) -> str:
        """A table of the numbers `i` from 1 on."""

    @abstractmethod
    def truncate(self, *tables: str) -> None: ...

    @abstractmethod
    def hold(self, wait: Callable[[], object], *, commit: bool, prepare: bool) -> None:
        """A transaction that stays open, or prepared, while somebody waits."""

    def crash(self) -> None:
        self.server.crash()

    def start(self) -> None:
        self.server.start()
