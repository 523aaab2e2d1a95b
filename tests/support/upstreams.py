"""The kinds of databases that the suites run over: what each can do, and how it is made to do it.

    with MariaDB.serve() as upstream:            # a server of its own, which may be crashed
        upstream.create_schema(rows=300, seed=7)
        with upstream.writer(seed=7, rate=40):
            lake = Lake(path, upstream.definitions(upstream.tables))

A suite asks for what a kind declares (`can`), never for its name.
"""

from __future__ import annotations

import contextlib
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import psycopg
import pymysql
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from headwater.errors import MachineError
from support import writer, writer_mysql
from support.mysql import EmbeddedMySQL, MyDatabase
from support.upstream import Can, Upstream
from support.wait import wait_for
from support.writing import Dialect, Shape

NO_XID = 1397


class Postgres(Upstream):
    name = "postgres"
    type = "postgres-cdc"
    connection = "pg"
    shared = "pg"
    fixture = "database"
    can = Can(keep_prepared=True)
    errors = (psycopg.Error,)
    rewrite = (
        "SET lock_timeout = '20s'",
        "ALTER TABLE parts ADD COLUMN extra int DEFAULT (random() * 100)::int",
        "ALTER TABLE parts DROP COLUMN extra",
    )
    shout = ("ALTER TABLE {0} ALTER COLUMN v TYPE text USING v || '!'",)
    retype = "ALTER TABLE {0} ALTER COLUMN v TYPE bytea USING v::bytea"
    widen = "ALTER TABLE {0} ALTER COLUMN id TYPE bigint"

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
    def schema(self) -> str:
        return "public"

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
        with self.session() as run:
            run("BEGIN")
            run("SET LOCAL deadlock_timeout = '1h'")  # where it meets a writer, the writer is the one that gives way
            run(f"TRUNCATE {', '.join(tables)}")
            run("COMMIT")

    def hold(self, wait: Callable[[], object], *, commit: bool, prepare: bool) -> None:
        name, end = f"held {uuid.uuid4().hex}", "COMMIT" if commit else "ROLLBACK"
        with self.session() as run:
            run("BEGIN")
            for statement in self.held:
                run(statement)
            if prepare:
                run(f"PREPARE TRANSACTION '{name}'")
            wait()
            if not prepare:
                run(end)
        if prepare:  # it outlives its session, and the server
            end_prepared(self, f"{end} PREPARED '{name}'", lambda e: isinstance(e, psycopg.errors.UndefinedObject))
        self.execute("DELETE FROM whole WHERE id = 1000000")


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
    shout = (  # as online schema changes do it
        "CREATE TABLE {0}_new LIKE {0}",
        "INSERT INTO {0}_new SELECT id, CONCAT(v, '!') FROM {0}",
        "RENAME TABLE {0} TO {0}_old, {0}_new TO {0}",
    )
    retype = "ALTER TABLE {0} MODIFY v blob"
    widen = "ALTER TABLE {0} MODIFY id bigint"
    server_class: ClassVar[type[EmbeddedServer]] = EmbeddedMySQL
    reset_log: ClassVar[str] = "RESET BINARY LOGS AND GTIDS"
    bytewise = "utf8mb4_0900_bin"
    uuid_type = "binary(16)"
    moods: ClassVar[tuple[str, ...]] = (
        "SET SESSION binlog_transaction_compression = ON",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )

    @classmethod
    @contextlib.contextmanager
    def serve(cls, settings: Mapping[str, str] | None = None) -> Iterator[Self]:
        with cls.server_class(dict(settings or {}), database="own") as server:
            yield cls(MyDatabase(server, "own"))

    @classmethod
    def is_here(cls) -> bool:
        try:
            cls.server_class.find()
        except MachineError:
            return False
        return True

    @staticmethod
    def uuid_value(value: uuid.UUID) -> Any:
        return value.bytes

    @property
    def schema(self) -> str:
        return str(self.database.name)

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
            end = "COMMIT" if commit else "ROLLBACK"
            end_prepared(self, f"XA {end} {name}", lambda e: e.args[0] == NO_XID)
        self.execute("DELETE FROM whole WHERE id = 1000000")


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


def end_prepared(upstream: Upstream, statement: str, over: Callable[[Exception], bool]) -> None:
    """Ends a prepared transaction as soon as the server answers: it keeps its locks until then."""

    def ended() -> bool:
        try:
            upstream.execute(statement)
        except upstream.errors as e:
            return over(e)  # an attempt before this one did it, and the answer was lost
        return True

    wait_for(ended, statement, 120)


EVERY: tuple[type[Upstream], ...] = (Postgres, MariaDB, Mysql)
FAMILY: tuple[type[Mysql], ...] = (MariaDB, Mysql)
ONE_OF = pytest.mark.parametrize("kinds", [(Postgres,), FAMILY], ids=["postgres", "mysql or mariadb"])


def fresh(request: pytest.FixtureRequest, kind: type[Upstream]) -> Upstream:
    """A fresh database on the shared server of a kind; skips, and says so at the end, where that cannot run."""
    return kind(request.getfixturevalue(kind.fixture))


def choose(kinds: tuple[type[Upstream], ...]) -> tuple[type[Upstream], int]:
    """One of some kinds, by a new seed: where all of them at every run would take too long.

    Of several, only those whose server is on this machine.
    """
    seed = new_seed()
    kind = random.Random(seed).choice([k for k in kinds if len(kinds) == 1 or k.is_here()])
    print(kind.name)
    return kind, seed


def expect(request: pytest.FixtureRequest, kind: type[Upstream]) -> None:
    """Skips, and says so at the end, where servers of a kind cannot run."""
    request.getfixturevalue(kind.shared)


def new_seed() -> int:
    """A seed for a test's choices, printed; HEADWATER_SOAK_SEED repeats a run's."""
    seed = int(os.environ.get("HEADWATER_SOAK_SEED") or random.randrange(1 << 30))
    print(f"seed {seed}")
    return seed
