"""What the suites need of any kind of database."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa
import pytest

from headwater.decode.changes import DecodedChanges
from headwater.model import Column, SchemaVersion
from headwater.source.kinds import kind
from headwater.source.upstream import Upstream as Seam
from support import lake, writer
from support.captured import WriterThreads
from support.commit_log import CommitLog
from support.scanned import Bench
from support.wait import wait_for
from support.writing import SESSIONS, Dialect, RandomWriter


@dataclass(frozen=True)
class Can:
    """What a kind of database can do, as far as a suite must know."""

    keep_prepared: bool = False  # after a crash, log and tables agree on what was prepared
    tell_exactly: bool = False  # which transactions a scan saw; else it may have seen more than it says
    keep_log: bool = False  # the server keeps its log until we acknowledge it
    judge_hidden: bool = False  # a scan goes on while a commit is in the log that nobody sees; else it waits for it
    cut_between_transactions: bool = False  # so a cut waits for those that run
    partition_files: bool = False  # partitions are tables of their own
    tell_moments: bool = False  # of commits, to the microsecond
    count_rows: bool = False  # a table that was analysed is as large as the server says


# Shapes of keys that every kind has: what tests pick by name.
KEY_SHAPES = {"int_dense", "int_sparse", "text", "two_columns_first_repeats", "two_columns_first_constant"}


class TableLog(Protocol):
    """The log of one table; every reading goes on where the last one ended."""

    schemas: dict[int, SchemaVersion]
    commits: dict[int, int]  # of the transactions read so far, a place in the log that is of their commit

    def read(self) -> pa.Table:
        """The raw changes, as segments hold them."""

    def changes(self, columns: tuple[Column, ...], key: tuple[str, ...] = ("id",)) -> DecodedChanges:
        """The decoded ones."""

    def close(self) -> None: ...


class Upstream(ABC):
    """A fresh database of some kind."""

    name: ClassVar[str]
    type: ClassVar[str]
    connection: ClassVar[str]  # its name in definitions
    shared: ClassVar[str]  # fixture of tests/conftest.py: the server that tests share
    fixture: ClassVar[str]  # fixture of tests/conftest.py: a fresh database on it
    marker: ClassVar[str]  # of tests that need such a server
    can: ClassVar[Can]
    errors: ClassVar[tuple[type[Exception], ...]]  # what its driver raises
    tables: ClassVar[tuple[str, ...]] = writer.TABLES
    rewrite: ClassVar[tuple[str, ...]]  # statements after which `parts` must be resynced
    shout: ClassVar[tuple[str, ...]]  # statements that append `!` to each text `v` of a table {0}, and log no row
    retype: ClassVar[str]  # turns the text `v` of a table {0} into bytes
    widen: ClassVar[str]  # turns the key `id` of a table {0} into a bigint
    log_grants: ClassVar[tuple[str, ...]]  # what a user needs to read the log of the database {0}, as it is told
    soon: ClassVar[dict[str, str]] = {}  # settings of a server that gives up on silent readers soon
    strangers: ClassVar[tuple[dict[str, str], ...]]  # what is known of another server
    endings: ClassVar[tuple[str, ...]]  # end the session {0}, or the statement that it runs
    formed: ClassVar[str]  # columns of a table `t`, whose first row is (1, 2, 'x')
    reforms: ClassVar[tuple[tuple[str, str], ...]]  # statements that make another table of it, and what a scan says
    lossy_key: ClassVar[tuple[str, str, str]]  # a type, a value of it that the lake cannot keep, and one that it can
    replaced: ClassVar[tuple[str, ...]]  # statements after which a table `t (id, v int)` cannot be read as it was
    lengthen: ClassVar[str]  # makes a text of ten characters of the column `v` of `t`
    partitions: ClassVar[tuple[str, ...]]  # makes `t (id int PRIMARY KEY, v int)` in three partitions
    types: ClassVar[Mapping[str, tuple[str, Sequence[tuple[str, Any]]]]]  # lake type, literals and what the lake holds
    random_values: ClassVar[Mapping[str, Any]]  # strategies by type
    exact_types: ClassVar[tuple[str, ...]] = ()  # those of them whose values the lake holds as they are given
    type_setup: ClassVar[tuple[str, ...]] = ()  # what makes the types that a user makes
    type_session: ClassVar[tuple[str, ...]] = ()  # what a session runs before it stores such values
    table_tail: ClassVar[str] = ""  # of CREATE TABLE
    large_column: ClassVar[str]  # a text; where the log may leave out what did not change, it does
    large: ClassVar[str]  # a large text, another one each time
    key_shapes: ClassVar[Mapping[str, Any]]  # what keys there are; see `KEY_SHAPES` for those that every kind has
    costly_shapes: ClassVar[tuple[str, ...]]  # those of whose spans too much could be read
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
        """A database on its own server."""

    @classmethod
    @abstractmethod
    def serve_hanging(cls, request: pytest.FixtureRequest) -> contextlib.AbstractContextManager[Self]:
        """A server of its own on which a commit can be made to hang."""

    @abstractmethod
    def another(self, name: str) -> Self:
        """A fresh database of that name on the same server."""

    @abstractmethod
    def drop(self) -> None:
        """Drops the database, and whatever holds it."""

    @abstractmethod
    def replaced_servers(self, identity: dict[str, str], position: str) -> list[tuple[dict[str, str], str]]:
        """What a capture of another server, or of this one later on, would know of it and have read."""

    @abstractmethod
    def hanging_commit(self, *statements: str) -> contextlib.AbstractContextManager[Callable[[], None]]:
        """A transaction whose commit is in the log and visible to nobody, on such a server; in the block it hangs.

        What the block gets lets it go on.
        """

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

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """What CREATE CONNECTION would say."""

    def seam(
        self, changed: Mapping[str, str] | None = None, *, password: str | None = None, identity: Any = None
    ) -> Seam:
        """The database as the engine sees it, with some options `changed`."""
        secret = self.server.password if password is None else password
        return kind(self.type)({**self.options, **(changed or {})}, secret, identity)

    @abstractmethod
    def login(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A user who may do nothing yet, and whose password is the name."""

    @staticmethod
    @abstractmethod
    def account(user: str) -> str:
        """A login as statements name it."""

    @abstractmethod
    def grant_select(self, table: str, user: str) -> None:
        """Lets a user read a table."""

    def seam_of(self, user: str) -> Seam:
        """The database as it is seen through a `login`."""
        return self.seam({"username": user}, password=user)

    @abstractmethod
    def bench(self, home: Path, table: str, **options: Any) -> Bench:
        """A table as a backfill reads it; `lake` are declared types by column."""

    @classmethod
    @abstractmethod
    def serve_shapes(cls, request: pytest.FixtureRequest) -> contextlib.AbstractContextManager[Self]:
        """A database for tables of every shape of key."""

    @abstractmethod
    def shaped(self, home: Path, shape: Any) -> Bench:
        """A new table of some shape of key, filled; its column `v` numbers the rows."""

    @abstractmethod
    def add_shaped(self, table: Bench, shape: Any, numbers: Iterable[int]) -> None:
        """Adds those rows of such a table that are not there."""

    def in_key_order(self, table: Bench) -> list[int]:
        """The numbers of such a table's rows, in the database's own order of the key."""
        key = ", ".join(self.quote(k) for k in table.key)
        return [v for (v,) in self.execute(f"SELECT v FROM {self.named(table)} ORDER BY {key}")]

    def named(self, table: Bench) -> str:
        return f"{self.quote(table.table.schema)}.{self.quote(table.table.name)}"

    @staticmethod
    @abstractmethod
    def quote(name: str) -> str:
        """An identifier as it stands in a statement."""

    @abstractmethod
    def columns(self, table: str, declared: Mapping[str, str] | None = None) -> tuple[Column, ...]:
        """A table's columns as a relation has them: default lake types unless declared otherwise."""

    @abstractmethod
    def prepare_capture(self) -> Any:
        """A `CaptureUpstream` of this database, with the tables `item (id, n, t)` and `other` of its writers."""

    @abstractmethod
    def capture_writers(self, seed: int, threads: int = 2, *, crashes: bool = False) -> WriterThreads:
        """Random writers of these tables; `crashes` says that the server will be killed."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Lets the server's clock move on."""

    @abstractmethod
    def clock(self, ahead_s: float = 0) -> str:
        """The server's time, as a user writes it."""

    @abstractmethod
    def commit_log(self) -> CommitLog:
        """All that is committed from now on to its table `t (id int PRIMARY KEY, v int)`, which is empty."""

    @abstractmethod
    def log(self, table: str) -> TableLog:
        """The log of one table from now on."""

    def definitions(self, tables: Sequence[str]) -> str:
        """A connection and its tables, as a user writes them."""
        return lake.definitions(self.database, tables, connection=self.connection, type=self.type)

    @abstractmethod
    def create_schema(self, *, rows: int, seed: int) -> None:
        """The random writer's tables, with up to `rows` rows each."""

    def writer(self, seed: int, rate: float, *, sessions: int = SESSIONS, crashes: bool = False) -> RandomWriter:
        """The random writer on all tables; `crashes` means that the server will be killed."""
        two_phase = self.can.keep_prepared or not crashes
        return RandomWriter(self.dialect, seed, self.tables, rate, sessions=sessions, two_phase=two_phase)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.database.execute(statement)
        return found

    @abstractmethod
    def session(self) -> contextlib.AbstractContextManager[Callable[[str], object]]:
        """Runs statements one after the other in one session."""

    @staticmethod
    @abstractmethod
    def is_deadlock(error: Exception) -> bool:
        """Whether the server undid a transaction because it and another waited for each other."""

    def run(self, *statements: str) -> None:
        """Statements of one session that stores any value that its columns can have."""
        with self.session() as run:
            for statement in (*self.type_session, *statements):
                run(statement)

    @abstractmethod
    def store(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Inserts rows of `random_values`; their keys count from 0."""

    @abstractmethod
    def printed(self, table: str, column: Column) -> list[str | None]:
        """A column of a table in the order of its `id`, as the server prints it; bytes in hexadecimal."""

    @abstractmethod
    def lenient(self, statement: str) -> None:
        """Runs a statement that stores any value that its column can have."""

    @abstractmethod
    def commit(self, *statements: str) -> int:
        """Runs statements in one transaction, beside which nothing else is written; its number in the changelog."""

    @abstractmethod
    def locked(self, table: str) -> contextlib.AbstractContextManager[None]:
        """Nobody else can read the table."""

    @abstractmethod
    def scanning(self) -> list[int]:
        """The sessions of this database that scan a table."""

    @abstractmethod
    def waits(self, statement: str) -> bool:
        """Whether a session that runs this very statement waits for a lock."""

    @abstractmethod
    def rows_read(self, table: str) -> int:
        """How many rows of the table the server has read by its indexes; it may tell late, and only then more."""

    @abstractmethod
    def analyse(self, table: str) -> None:
        """Has the server count the table."""

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
        """A transaction that stays open, or prepared, during the wait."""

    def crash(self) -> None:
        self.server.crash()

    def start(self) -> None:
        self.server.start()


def end_prepared(upstream: Upstream, statement: str, over: Callable[[Exception], bool]) -> None:
    """Ends a prepared transaction as soon as the server answers: it keeps its locks until then."""

    def ended() -> bool:
        try:
            upstream.execute(statement)
        except upstream.errors as e:
            return over(e)  # an earlier attempt did it, and its response was lost
        return True

    wait_for(ended, statement, 120)
