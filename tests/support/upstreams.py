"""The kinds of databases that the suites run over: what each can do, and how it is made to do it.

    with MariaDB.serve() as upstream:            # a server of its own, which may be crashed
        upstream.create_schema(rows=300, seed=7)
        with upstream.writer(seed=7):
            lake = Lake(path, upstream.definitions(upstream.tables))

A suite asks for what a kind declares (`can`), never for its name.
"""

from __future__ import annotations

import contextlib
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import psycopg
import pymysql
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from support import lake, writer, writer_mysql
from support.mysql import EmbeddedMySQL, MyDatabase
from support.wait import wait_for
from support.writing import SESSIONS, Dialect, RandomWriter, Shape

NO_XID = 1397


@dataclass(frozen=True)
class Can:
    """What a kind of database can do, as far as a suite must know."""

    forget_commits: bool = False  # a crash undoes commits that others have seen already
    keep_log: bool = False  # keeps its log until we have read it
    keep_prepared: bool = False  # after a crash, log and tables agree on what was prepared


class Upstream:
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
    held: ClassVar[tuple[str, ...]] = (
        "UPDATE ints SET n = 7 WHERE id < 5",
        "INSERT INTO whole VALUES (1000000, 1, 'long')",
    )

    def __init__(self, database: Any) -> None:
        self.database = database
        self.server = database.server

    @classmethod
    def serve(cls, settings: Mapping[str, str] | None = None) -> contextlib.AbstractContextManager[Self]:
        """A database on a server of its own."""
        raise NotImplementedError

    @property
    def dialect(self) -> Dialect:
        raise NotImplementedError

    def definitions(self, tables: Sequence[str]) -> str:
        """A connection and its tables, as a user writes them."""
        return lake.definitions(self.database, tables, connection=self.connection, type=self.type)

    def create_schema(self, *, rows: int, seed: int) -> None:
        """The random writer's tables, with up to `rows` rows each."""
        raise NotImplementedError

    def writer(self, seed: int, rate: float, *, sessions: int = SESSIONS, crashes: bool = False) -> RandomWriter:
        """The random writer on all tables; `crashes` says that the server will be killed."""
        two_phase = self.can.keep_prepared or not crashes
        return RandomWriter(self.dialect, seed, self.tables, rate, sessions=sessions, two_phase=two_phase)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.database.execute(statement)
        return found

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[str], object]]:
        """Runs statements one after the other in one session."""
        raise NotImplementedError

    def fill(self, table: str, rows: int, values: str) -> None:
        """Inserts rows; `values` are expressions over `i`, which counts from 1."""
        self.execute(f"INSERT INTO {table} SELECT {values} FROM {self.numbers(rows)}")

    def numbers(self, rows: int) -> str:
        """A table of the numbers `i` from 1 on."""
        raise NotImplementedError

    def truncate(self, *tables: str) -> None:
        raise NotImplementedError

    def hold(self, wait: Callable[[], object], *, commit: bool, prepare: bool) -> None:
        """A transaction that stays open, or prepared, while somebody waits."""
        raise NotImplementedError

    def crash(self) -> None:
        self.server.crash()

    def start(self) -> None:
        self.server.start()


class Postgres(Upstream):
    name = "postgres"
    type = "postgres-cdc"
    connection = "pg"
    shared = "pg"
    fixture = "database"
    can = Can(forget_commits=True, keep_log=True, keep_prepared=True)
    errors = (psycopg.Error,)
    rewrite = (
        "SET lock_timeout = '20s'",
        "ALTER TABLE parts ADD COLUMN extra int DEFAULT (random() * 100)::int",
        "ALTER TABLE parts DROP COLUMN extra",
    )

    @classmethod
    @contextlib.contextmanager
    def serve(cls, settings: Mapping[str, str] | None = None) -> Iterator[Self]:
        with EmbeddedPostgres(18, {"synchronous_commit": "off", **(settings or {})}, database="own") as server:
            yield cls(
                SimpleNamespace(
                    server=server, name="own", dsn=server.dsn(), connect=server.connect, execute=server.execute
                )
            )

    @property
    def dialect(self) -> Dialect:
        return writer.PostgresDialect(self.database.dsn)

    def create_schema(self, *, rows: int, seed: int) -> None:
        with self.database.connect() as connection:
            writer.create_schema(connection, rows=rows, seed=seed)

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[str], object]]:
        with self.database.connect() as connection:
            yield connection.execute

    def numbers(self, rows: int) -> str:
        return f"generate_series(1, {rows}) i"

    def truncate(self, *tables: str) -> None:
        self.execute(f"TRUNCATE {', '.join(tables)}")

    def hold(self, wait: Callable[[], object], *, commit: bool, prepare: bool) -> None:
        with self.session() as run:
            run("BEGIN")
            for statement in self.held:
                run(statement)
            wait()
            run("COMMIT" if commit else "ROLLBACK")
            run("DELETE FROM whole WHERE id = 1000000")


class Mysql(Upstream):
    """MySQL; MariaDB differs in what it declares."""

    name = "mysql"
    type = "mysql-cdc"
    connection = "my"
    shared = "mysql"
    fixture = "mysql_database"
    can = Can(keep_prepared=True)
    errors = (pymysql.Error, OSError)
    rewrite = ("SET lock_wait_timeout = 20", "ALTER TABLE parts TRUNCATE PARTITION mid")
    server_class: ClassVar[type[EmbeddedServer]] = EmbeddedMySQL
    reset_log: ClassVar[str] = "RESET BINARY LOGS AND GTIDS"
    bytewise = "utf8mb4_0900_bin"
    uuid_type = "binary(16)"
    moods: ClassVar[tuple[str, ...]] = (
        "SET SESSION binlog_transaction_compression = ON",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )

    @classmethod
    @contextlib.contextmanager
    def serve(cls, settings: Mapping[str, str] | None = None) -> Iterator[Self]:
        with cls.server_class(dict(settings or {}), database="own") as server:
            yield cls(MyDatabase(server, "own"))

    @staticmethod
    def uuid_value(value: uuid.UUID) -> Any:
        return value.bytes

    @property
    def shapes(self) -> dict[str, Shape]:
        return writer_mysql.shapes(self.uuid_value)

    @property
    def dialect(self) -> Dialect:
        return writer_mysql.MysqlDialect(self.database.connect, self.shapes, self.moods)

    def create_schema(self, *, rows: int, seed: int) -> None:
        for statement in writer_mysql.schema(self.bytewise, self.uuid_type):
            self.execute(statement)
        pick = random.Random(seed)
        with self.dialect.connect(pick, "first") as session, session.transaction():
            for table, shape in self.shapes.items():
                for _ in range(rows):
                    session.upsert(table, shape, shape.row(pick))

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[[str], object]]:
        with self.database.connect() as connection, connection.cursor() as cursor:
            yield cursor.execute

    def numbers(self, rows: int) -> str:
        return writer_mysql.numbers(1, rows)

    def truncate(self, *tables: str) -> None:
        for table in tables:
            self.execute(f"TRUNCATE TABLE {table}")

    def hold(self, wait: Callable[[], object], *, commit: bool, prepare: bool) -> None:
        name = f"'held {uuid.uuid4().hex}'"
        prepare = prepare and self.can.keep_prepared
        with self.session() as run:
            run(f"XA START {name}" if prepare else "START TRANSACTION")
            for statement in self.held:
                run(statement)
            if prepare:
                run(f"XA END {name}")
                run(f"XA PREPARE {name}")
            wait()
            if not prepare:
                run("COMMIT" if commit else "ROLLBACK")
        if prepare:  # it outlives its session, and the server
            self._end_prepared(name, commit)
        self.execute("DELETE FROM whole WHERE id = 1000000")

    def _end_prepared(self, name: str, commit: bool) -> None:
        """Ends a prepared transaction as soon as the server answers: it keeps its locks until then."""

        def ended() -> bool:
            try:
                self.execute(f"XA {'COMMIT' if commit else 'ROLLBACK'} {name}")
            except self.errors as e:
                return e.args[0] == NO_XID  # an attempt before this one did it, and the answer was lost
            return True

        wait_for(ended, f"{name} is ended", 120)


class MariaDB(Mysql):
    name = "mariadb"
    shared = "mariadb"
    fixture = "mariadb_database"
    can = Can()
    server_class = EmbeddedMariaDB
    reset_log: ClassVar[str] = "RESET MASTER"
    bytewise = "utf8mb4_nopad_bin"
    uuid_type = "uuid"
    moods: ClassVar[tuple[str, ...]] = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",)

    @staticmethod
    def uuid_value(value: uuid.UUID) -> Any:
        return str(uuid.UUID(int=value.int, version=4))  # others are refused


EVERY: tuple[type[Upstream], ...] = (Postgres, MariaDB, Mysql)
FAMILY: tuple[type[Mysql], ...] = (MariaDB, Mysql)


def fresh(request: pytest.FixtureRequest, kind: type[Upstream]) -> Upstream:
    """A fresh database on the shared server of a kind; skips, and says so at the end, where that cannot run."""
    return kind(request.getfixturevalue(kind.fixture))


def expect(request: pytest.FixtureRequest, kind: type[Upstream]) -> None:
    """Skips, and says so at the end, where servers of a kind cannot run."""
    request.getfixturevalue(kind.shared)


def new_seed() -> int:
    """A seed for a test's choices, printed; HEADWATER_SOAK_SEED repeats a run's."""
    seed = int(os.environ.get("HEADWATER_SOAK_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}")
    return seed
