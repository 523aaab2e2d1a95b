"""A random writer: everything a live database does to its tables, from several sessions at once, from one seed.

    create_schema(connection)                    # the tables below, with some rows
    writer = Writer(dsn, seed=7).start()         # six sessions
    …
    writer.stop()                                # raises what went wrong

This is PostgreSQL's; `writer_mysql` has MySQL's and MariaDB's.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg_errors
from psycopg import sql

from support.writing import ACCOUNTS, LEDGERS, SESSIONS, Gone, RandomWriter, Refused, Shape, Taken, key, maybe, number

TOAST_BYTES = 6000  # beyond the 2 kB that stay in the row

SCHEMA = f"""
CREATE TABLE ints (
  id int PRIMARY KEY, n bigint, price numeric(12,2), note text, big text, at timestamptz, flag boolean);
ALTER TABLE ints ALTER big SET STORAGE EXTERNAL;
CREATE TABLE pairs (a int, b text COLLATE "C", n double precision, big text, tags text[], PRIMARY KEY (b, a));
ALTER TABLE pairs ALTER big SET STORAGE EXTERNAL;
CREATE TABLE names (name text COLLATE "C" PRIMARY KEY, n int, big bytea);
ALTER TABLE names ALTER big SET STORAGE EXTERNAL;
CREATE TABLE uuids (id uuid PRIMARY KEY, n int, day date, doc jsonb);
CREATE TABLE parts (id int PRIMARY KEY, n int, big text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (100);
CREATE TABLE parts_mid PARTITION OF parts FOR VALUES FROM (100) TO (250);
CREATE TABLE parts_high PARTITION OF parts DEFAULT;
CREATE TABLE padded (code char(12) PRIMARY KEY, n int, big text);
CREATE TABLE whole (id int PRIMARY KEY, n int, big text);
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
CREATE TABLE ledger_a (id int PRIMARY KEY, amount int NOT NULL);
CREATE TABLE ledger_b (id int PRIMARY KEY, amount int NOT NULL);
INSERT INTO ledger_a SELECT i, 500 FROM generate_series(1, {ACCOUNTS}) i;
INSERT INTO ledger_b SELECT i, 500 FROM generate_series(1, {ACCOUNTS}) i;
"""


def _large(pick: random.Random) -> str:
    """Text that does not compress, so that it is stored out of line."""
    return os.urandom(TOAST_BYTES // 2).hex() if pick.random() < 0.7 else pick.choice(["", "short", "x" * 500])


def _word(pick: random.Random) -> str:
    return pick.choice(["a", "B", "ä", "中", "😀", "z'", 'q"', "\\", " "]) + str(key(pick))


SHAPES: dict[str, Shape] = {
    "ints": Shape(
        ("id",),
        {
            "id": key,
            "n": maybe(lambda p: p.randint(-(2**63), 2**63 - 1)),
            "price": maybe(lambda p: f"{p.randint(-(10**9), 10**9) / 100:.2f}"),
            "note": maybe(_word),
            "big": maybe(_large),
            "at": maybe(lambda p: f"20{p.randint(10, 99)}-0{p.randint(1, 9)}-11 10:11:12.{p.randint(0, 999999):06}+00"),
            "flag": maybe(lambda p: p.random() < 0.5),
        },
        "big",
    ),
    "pairs": Shape(
        ("b", "a"),
        {
            "a": lambda p: p.randint(0, 9),
            "b": lambda p: _word(p)[:2] + str(p.randint(0, 40)),
            "n": maybe(lambda p: p.choice([float("nan"), float("inf"), -0.0, p.random()])),
            "big": maybe(_large),
            "tags": maybe(lambda p: [_word(p), None, ""][: p.randint(0, 3)]),
        },
        "big",
    ),
    "names": Shape(
        ("name",), {"name": _word, "n": maybe(number), "big": maybe(lambda p: os.urandom(TOAST_BYTES))}, "big"
    ),
    "uuids": Shape(
        ("id",),
        {
            "id": lambda p: uuid.UUID(int=key(p) * 0x1F3D5B79A8C6E4F2135768ACE9BDF024 % (1 << 128)),
            "n": maybe(number),
            "day": maybe(lambda p: f"{p.randint(1900, 2100)}-0{p.randint(1, 9)}-1{p.randint(0, 9)}"),
            "doc": maybe(lambda p: psycopg.types.json.Jsonb({"k": _word(p)})),
        },
    ),
    "parts": Shape(("id",), {"id": key, "n": maybe(number), "big": maybe(_large)}, "big"),
    "padded": Shape(("code",), {"code": lambda p: f"c {key(p)}", "n": maybe(number), "big": maybe(_large)}, "big"),
    "whole": Shape(("id",), {"id": key, "n": maybe(number), "big": maybe(_large)}, "big"),
}
TABLES = (*SHAPES, *LEDGERS)


def create_schema(connection: Any, *, rows: int = 300, seed: int = 0) -> None:
    """Creates all tables in the search path, with up to `rows` rows each."""
    with connection.transaction():
        connection.execute(SCHEMA)
        pick = random.Random(seed)
        for table, shape in SHAPES.items():
            for _ in range(rows):
                row = shape.row(pick)
                connection.execute(_insert(table, row, sql.SQL("ON CONFLICT DO NOTHING")), list(row.values()))


class PostgresDialect:
    """How to write to PostgreSQL."""

    shapes: Mapping[str, Shape] = SHAPES
    two_phase = True

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    @contextmanager
    def connect(self, pick: random.Random, name: str) -> Iterator[PostgresSession]:
        with _said(), psycopg.connect(self._dsn, autocommit=True, application_name=f"random {name}") as connection:
            if pick.random() < 0.3:
                connection.execute("SET synchronous_commit = off")
            session = PostgresSession(connection, f"random {name}")
            session.end_prepared(undo=pick.random() < 0.5)
            yield session


@contextmanager
def _said() -> Iterator[None]:
    """Translates PostgreSQL's errors into the writer's."""
    try:
        yield
    except pg_errors.UniqueViolation as e:
        raise Taken from e
    except (pg_errors.DeadlockDetected, pg_errors.LockNotAvailable) as e:
        raise Refused from e
    except psycopg.OperationalError as e:  # AdminShutdown is also one
        raise Gone from e


class PostgresSession:
    """A psycopg connection as the writer uses it."""

    def __init__(self, connection: psycopg.Connection[Any], name: str) -> None:
        self._connection = connection
        self._name = name

    @contextmanager
    def transaction(self, *, undo: bool = False) -> Iterator[None]:
        with _said(), self._connection.transaction(force_rollback=undo):
            yield

    @contextmanager
    def prepared(self, *, undo: bool) -> Iterator[None]:
        name = f"{self._name} {uuid.uuid4().hex}"
        with _said():
            self._connection.execute("BEGIN")
            try:
                yield
            except BaseException:
                if not self._connection.closed:
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute(f"PREPARE TRANSACTION '{name}'")
            self._end(name, undo)

    def end_prepared(self, *, undo: bool) -> None:
        """Ends what an earlier session of this name prepared: it outlives the session, and a crash of the server."""
        left = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)"
        for (name,) in self._connection.execute(left, [f"{self._name} "]).fetchall():
            self._end(name, undo)

    def _end(self, name: str, undo: bool) -> None:
        self._connection.execute(f"{'ROLLBACK' if undo else 'COMMIT'} PREPARED '{name}'")  # type: ignore[arg-type]

    def upsert(self, table: str, shape: Shape, row: Mapping[str, Any]) -> None:
        rest = [c for c in row if c not in shape.key]
        conflict = sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(
            sql.SQL(", ").join(map(sql.Identifier, shape.key)),
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in rest),
        )
        self._execute(_insert(table, row, conflict), list(row.values()))

    def update(self, table: str, shape: Shape, row: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        sets = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in values)
        statement = sql.SQL("UPDATE {} SET {} WHERE {}").format(sql.Identifier(table), sets, _where(shape))
        self._execute(statement, [*values.values(), *(row[k] for k in shape.key)])

    def delete(self, table: str, shape: Shape, row: Mapping[str, Any]) -> None:
        statement = sql.SQL("DELETE FROM {} WHERE {}").format(sql.Identifier(table), _where(shape))
        self._execute(statement, [row[k] for k in shape.key])

    def add_amount(self, table: str, id: int, amount: int) -> None:
        statement = sql.SQL("UPDATE {} SET amount = amount + %s WHERE id = %s").format(sql.Identifier(table))
        self._execute(statement, [amount, id])

    def truncate(self, table: str) -> None:
        self._execute("SET LOCAL lock_timeout = '500ms'")
        self._execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(table)))

    def insert_many(self, first: int, last: int) -> None:
        self._execute(
            "INSERT INTO ints (id, n) SELECT i, i FROM generate_series(%s::int, %s::int) i "
            "ON CONFLICT (id) DO UPDATE SET n = ints.n + 1",
            [first, last],
        )

    def delete_many(self, first: int) -> None:
        self._execute("DELETE FROM ints WHERE id >= %s", [first])

    def _execute(self, statement: Any, values: Sequence[Any] = ()) -> None:
        with _said():
            self._connection.execute(statement, values)


class Writer(RandomWriter):
    """The random writer on PostgreSQL."""

    def __init__(
        self,
        dsn: str,
        seed: int,
        tables: Sequence[str] = TABLES,
        rate: float = 0.0,
        *,
        sessions: int = SESSIONS,
        truncates: bool = True,
    ) -> None:
        super().__init__(PostgresDialect(dsn), seed, tables, rate, sessions=sessions, truncates=truncates)


def _insert(table: str, row: Mapping[str, Any], conflict: Any) -> Any:
    return sql.SQL("INSERT INTO {} ({}) VALUES ({}) {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(sql.Placeholder() * len(row)),
        conflict,
    )


def _where(shape: Shape) -> Any:
    return sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(k)) for k in shape.key)
