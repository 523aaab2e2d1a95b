"""PostgreSQL, as the suites run over it."""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import psycopg
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.model import Column
from headwater.source.postgres.client.session import quote_identifier
from support import backfill, capture, hanging, key_shapes, type_cases, values, writer
from support.commit_log import PostgresCommits
from support.random_values import POSTGRES, POSTGRES_EXACT
from support.scanned import Bench
from support.upstreams.base import Can, Upstream, end_prepared
from support.wait import wait_for
from support.writing import Dialect


class Postgres(Upstream):
    name = "postgres"
    type = "postgres-cdc"
    connection = "pg"
    shared = "pg"
    fixture = "database"
    marker = "postgres"
    can = Can(
        judge_hidden=True,
        tell_moments=True,
        keep_prepared=True,
        tell_exactly=True,
        keep_log=True,
        count_rows=True,
        cut_between_transactions=True,
        partition_files=True,
    )
    errors = (psycopg.Error,)
    rewrite = (
        "SET lock_timeout = '20s'",
        "ALTER TABLE parts ADD COLUMN extra int DEFAULT (random() * 100)::int",
        "ALTER TABLE parts DROP COLUMN extra",
    )
    shout = ("ALTER TABLE {0} ALTER COLUMN v TYPE text USING v || '!'",)
    retype = "ALTER TABLE {0} ALTER COLUMN v TYPE bytea USING v::bytea"
    widen = "ALTER TABLE {0} ALTER COLUMN id TYPE bigint"

    soon: ClassVar[dict[str, str]] = {"wal_sender_timeout": "3s"}
    log_grants = ('ALTER ROLE "plain user" REPLICATION;',)
    strangers = ({"system_identifier": "1"}, {"timeline": "7"})
    endings = ("SELECT pg_cancel_backend({0})", "SELECT pg_terminate_backend({0})")
    formed = "id int PRIMARY KEY, v int, w text"
    reforms = (
        ("ALTER TABLE t ALTER v TYPE bigint", "data.schema_changed"),
        ("ALTER TABLE t RENAME v TO x", "data.schema_changed"),
        ("ALTER TABLE t DROP COLUMN v, ADD COLUMN v int DEFAULT 7", "data.schema_changed"),
        ("ALTER TABLE t RENAME id TO i", "data.schema_changed"),
        ("DROP TABLE t", "data.rewritten"),
        (f"DROP TABLE t; CREATE TABLE t ({formed})", "data.rewritten"),
    )
    lossy_key = ("numeric(10,2)", "'NaN'", "1")
    replaced = ("TRUNCATE t", "ALTER TABLE t ALTER v TYPE bigint", "VACUUM FULL t")
    lengthen = "ALTER TABLE t ALTER COLUMN v TYPE varchar(10)"
    partitions = (
        "CREATE TABLE t (id int PRIMARY KEY, v int) PARTITION BY HASH (id)",
        *(f"CREATE TABLE t{i} PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER {i})" for i in range(3)),
    )

    types = type_cases.CASES
    random_values = POSTGRES
    exact_types = POSTGRES_EXACT
    type_setup = (type_cases.SETUP,)
    large_column = "text STORAGE EXTERNAL"
    large = "repeat(md5(random()::text), 100)"
    key_shapes = key_shapes.SHAPES
    costly_shapes = ("int_sparse", "text", "enum", "two_columns_first_repeats", "four_columns_in_another_order")

    @classmethod
    @contextlib.contextmanager
    def serve_shapes(cls, request: pytest.FixtureRequest) -> Iterator[Self]:
        with key_shapes.server() as server:
            yield cls(_own(server))

    def shaped(self, home: Path, shape: key_shapes.Shape) -> Bench:
        schema = key_shapes.fill(self.database, shape)
        return self.bench(home, shape.table, schema=schema)

    def add_shaped(self, table: Bench, shape: key_shapes.Shape, numbers: Iterable[int]) -> None:
        listed = ", ".join(f"({i})" for i in numbers)
        rows = f"SELECT i, {shape.values} FROM (VALUES {listed}) x(i)"
        self.execute(f"INSERT INTO {self.named(table)} {rows} ON CONFLICT DO NOTHING")

    @staticmethod
    def quote(name: str) -> str:
        return quote_identifier(name)

    @classmethod
    @contextlib.contextmanager
    def serve_hanging(cls, request: pytest.FixtureRequest) -> Iterator[Self]:
        with hanging.server_with_silent_standby() as server:
            yield cls(_own(server))

    def another(self, name: str) -> Self:
        self.server.execute(f"CREATE DATABASE {name}")
        return type(self)(_database(self.server, name))

    def drop(self) -> None:
        drop_database(self.server, self.database.name)

    def replaced_servers(self, identity: dict[str, str], position: str) -> list[tuple[dict[str, str], str]]:
        return [*(({**identity, **other}, position) for other in self.strangers), (identity, "FFFFFF/0")]

    @contextlib.contextmanager
    def hanging_commit(self, *statements: str) -> Iterator[Callable[[], None]]:
        with hanging.hanging_commit(self.server, *statements, database=self.database.name) as commit:
            yield commit.release

    @classmethod
    @contextlib.contextmanager
    def serve(cls, settings: Mapping[str, str] | None = None) -> Iterator[Self]:
        with EmbeddedPostgres(18, {"synchronous_commit": "off", **(settings or {})}, database="own") as server:
            yield cls(_own(server))

    @property
    def schema(self) -> str:
        return "public"

    @property
    def options(self) -> dict[str, str]:
        name = self.database.name
        place = {"hostname": self.server.host, "port": str(self.server.port), "username": self.server.user}
        return {**place, "database.name": name, "slot.name": f"hw_{name}", "publication.name": f"hw_{name}"}

    @contextlib.contextmanager
    def login(self, name: str) -> Iterator[None]:
        self.execute(f"CREATE ROLE {self.account(name)} LOGIN PASSWORD '{name}'")
        try:
            yield
        finally:
            self.execute(f"DROP OWNED BY {self.account(name)}; DROP ROLE {self.account(name)}")

    @staticmethod
    def account(user: str) -> str:
        return f'"{user}"'

    def grant_select(self, table: str, user: str) -> None:
        self.execute(f"GRANT SELECT ON {table} TO {self.account(user)}")

    def bench(self, home: Path, table: str, **options: Any) -> Bench:
        return backfill.bench(self.database, home, table, **options)

    def columns(self, table: str, declared: Mapping[str, str] | None = None) -> tuple[Column, ...]:
        return values.columns_of(self.database, table, dict(declared or {}))

    def prepare_capture(self) -> capture.Upstream:
        made = capture.Upstream.prepare(self.database.dsn)
        capture.Writers.prepare(made)
        return made

    def capture_writers(self, seed: int, threads: int = 2, *, crashes: bool = False) -> capture.Writers:
        return capture.Writers(self.database.dsn, seed, threads)

    def pause(self, seconds: float) -> None:
        self.execute(f"SELECT pg_sleep({seconds})")

    def clock(self, ahead_s: float = 0) -> str:
        found = self.execute(f"SELECT clock_timestamp() + interval '{ahead_s} s'")[0][0]
        return str(found.isoformat())

    def commit_log(self) -> PostgresCommits:
        return PostgresCommits(self.database)

    def log(self, table: str) -> values.Log:
        return values.Log(self.database, table)

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

    @staticmethod
    def is_deadlock(error: Exception) -> bool:
        return isinstance(error, psycopg.errors.DeadlockDetected)

    def store(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        casts = ", ".join(f"%s::{t}" for t in self.random_values)
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            for i, row in enumerate(rows):
                cursor.execute(f"INSERT INTO {table} VALUES (%s, {casts})", (i, *row))

    def printed(self, table: str, column: Column) -> list[str | None]:
        name = quote_identifier(column.name)
        with self.database.connect() as connection:
            for setting in ("TimeZone = 'UTC'", "IntervalStyle = 'iso_8601'", "extra_float_digits = 3"):
                connection.execute(f"SET {setting}")
            text = f"CASE WHEN {name} IS DISTINCT FROM NULL THEN pg_catalog.concat({name}) END"
            return [v for (v,) in connection.execute(f"SELECT {text} FROM {table} ORDER BY id").fetchall()]

    def lenient(self, statement: str) -> None:
        self.execute(statement)

    def commit(self, *statements: str) -> int:
        with self.database.connect() as connection:
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute(statement)
            (txn,) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            connection.execute("COMMIT")
        return int(txn)

    @contextlib.contextmanager
    def locked(self, table: str) -> Iterator[None]:
        with self.session() as run:
            run("BEGIN")
            run(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield
            run("ROLLBACK")

    def scanning(self) -> list[int]:
        ours = "application_name = 'headwater scan' AND datname = current_database()"
        return [pid for (pid,) in self.execute(f"SELECT pid FROM pg_stat_activity WHERE {ours}")]

    def waits(self, statement: str) -> bool:
        text = statement.replace("'", "''")
        return bool(self.execute(f"SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = '{text}'"))

    def rows_read(self, table: str) -> int:
        self.execute("SELECT pg_stat_force_next_flush()")
        # not `idx_tup_fetch`: once autovacuum has been there, an index-only scan fetches nothing from the table
        by_index = f"SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = '{table}'::regclass"
        read = f"SELECT seq_tup_read + ({by_index}) FROM pg_stat_user_tables WHERE relid = '{table}'::regclass"
        return int(self.execute(read)[0][0])

    def analyse(self, table: str) -> None:
        self.execute(f"ANALYZE {table}")

    def numbers(self, rows: int) -> str:
        return f"generate_series(1, {rows}) i"

    def truncate(self, *tables: str) -> None:
        with self.session() as run:
            run("BEGIN")
            run("SET LOCAL deadlock_timeout = '1h'")  # if it meets a writer, the writer gives way
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


class Postgres16(Postgres):
    """An older one."""

    name = "postgres16"
    shared = "pg16"
    fixture = "database16"


def drop_database(server: EmbeddedPostgres, name: str) -> None:
    """Drops a database with its slots, whoever reads them."""

    def let_go() -> bool:
        left = server.execute(f"SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = '{name}'")
        for slot, pid in left:
            try:
                if pid is None:
                    server.execute(f"SELECT pg_drop_replication_slot('{slot}')")
                else:
                    server.execute(f"SELECT pg_terminate_backend({pid})")
            except (psycopg.errors.UndefinedObject, psycopg.errors.ObjectInUse):
                continue  # it is gone, or somebody came in between
        return not left

    wait_for(let_go, f"the slots of {name} are gone", 60)
    server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _own(server: EmbeddedPostgres) -> Any:
    """The first database of a server."""
    return _database(server, server.database)


def _database(server: EmbeddedPostgres, name: str) -> Any:
    """A database, in the shape of the fixture of that name."""
    return SimpleNamespace(
        server=server,
        name=name,
        dsn=server.dsn(name),
        connect=functools.partial(server.connect, name),
        execute=functools.partial(server.execute, database=name),
    )
