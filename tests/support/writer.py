"""A random writer: everything a live database does to its tables, from several sessions at once, from one seed.

    create_schema(connection)                    # the tables below, with some rows
    writer = Writer(dsn, seed=7).start()         # six sessions
    …
    writer.stop()                                # raises what went wrong

Sessions pick keys from a common range, so they meet: they wait for each other and some are rolled back by a deadlock.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors as pg_errors
from psycopg import sql

SESSIONS = 6
KEYS = 400  # per table; small, so that histories of one key grow long
BIG = 3000  # rows of a big transaction
TOAST_BYTES = 6000  # beyond the 2 kB that stay in the row
ACCOUNTS = 50
TOTAL = ACCOUNTS * 1000  # of ledger_a and ledger_b together, in every committed state

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


@dataclass(frozen=True)
class Shape:
    """How the writer makes rows of a table: its key columns, and per column a maker of values."""

    key: tuple[str, ...]
    make: dict[str, Callable[[random.Random], Any]]
    toast: str | None = None  # the column with large values


def _key(pick: random.Random) -> int:
    return pick.randint(0, KEYS - 1)


def _large(pick: random.Random) -> str:
    """Text that does not compress, so that it leaves the row."""
    return os.urandom(TOAST_BYTES // 2).hex() if pick.random() < 0.7 else pick.choice(["", "short", "x" * 500])


def _word(pick: random.Random) -> str:
    return pick.choice(["a", "B", "ä", "中", "😀", "z'", 'q"', "\\", " "]) + str(_key(pick))


def _maybe(make: Callable[[random.Random], Any]) -> Callable[[random.Random], Any]:
    return lambda pick: None if pick.random() < 0.1 else make(pick)


def _number(pick: random.Random) -> int:
    return pick.randint(-(2**31), 2**31 - 1)


SHAPES: dict[str, Shape] = {
    "ints": Shape(
        ("id",),
        {
            "id": _key,
            "n": _maybe(lambda p: p.randint(-(2**63), 2**63 - 1)),
            "price": _maybe(lambda p: f"{p.randint(-(10**9), 10**9) / 100:.2f}"),
            "note": _maybe(_word),
            "big": _maybe(_large),
            "at": _maybe(
                lambda p: f"20{p.randint(10, 99)}-0{p.randint(1, 9)}-11 10:11:12.{p.randint(0, 999999):06}+00"
            ),
            "flag": _maybe(lambda p: p.random() < 0.5),
        },
        "big",
    ),
    "pairs": Shape(
        ("b", "a"),
        {
            "a": lambda p: p.randint(0, 9),
            "b": lambda p: _word(p)[:2] + str(p.randint(0, 40)),
            "n": _maybe(lambda p: p.choice([float("nan"), float("inf"), -0.0, p.random()])),
            "big": _maybe(_large),
            "tags": _maybe(lambda p: [_word(p), None, ""][: p.randint(0, 3)]),
        },
        "big",
    ),
    "names": Shape(
        ("name",), {"name": _word, "n": _maybe(_number), "big": _maybe(lambda p: os.urandom(TOAST_BYTES))}, "big"
    ),
    "uuids": Shape(
        ("id",),
        {
            "id": lambda p: uuid.UUID(int=_key(p) * 0x1F3D5B79A8C6E4F2135768ACE9BDF024 % (1 << 128)),
            "n": _maybe(_number),
            "day": _maybe(lambda p: f"{p.randint(1900, 2100)}-0{p.randint(1, 9)}-1{p.randint(0, 9)}"),
            "doc": _maybe(lambda p: psycopg.types.json.Jsonb({"k": _word(p)})),
        },
    ),
    "parts": Shape(("id",), {"id": _key, "n": _maybe(_number), "big": _maybe(_large)}, "big"),
    "padded": Shape(("code",), {"code": lambda p: f"c {_key(p)}", "n": _maybe(_number), "big": _maybe(_large)}, "big"),
    "whole": Shape(("id",), {"id": _key, "n": _maybe(_number), "big": _maybe(_large)}, "big"),
}
LEDGERS = ("ledger_a", "ledger_b")
TABLES = (*SHAPES, *LEDGERS)


def create_schema(connection: Any, *, rows: int = 300, seed: int = 0) -> None:
    """Creates all tables in the search path, with up to `rows` rows each."""
    with connection.transaction():
        connection.execute(SCHEMA)
        pick = random.Random(seed)
        for table, shape in SHAPES.items():
            for _ in range(rows):
                connection.execute(*_insert(table, shape, pick))


class Writer:
    """Writes until stopped. `rate` is transactions per second over all sessions (0: as fast as it goes)."""

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
        print(f"writer seed {seed}")
        self.seed = seed
        self.errors: list[BaseException] = []
        self.done: Counter[str] = Counter()
        self._dsn = dsn
        self._shapes = [t for t in tables if t in SHAPES]
        self._ledgers = all(t in tables for t in LEDGERS)
        self._truncates = truncates
        self._pause_s = sessions / rate if rate else 0.0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._session, args=(random.Random(seed * 1000 + i),), name=f"writer {i}")
            for i in range(sessions)
        ]

    def start(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Ends all sessions; raises the first error that no database should give."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> Writer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _session(self, pick: random.Random) -> None:
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, application_name="random writer") as session:
                    if pick.random() < 0.3:
                        session.execute("SET synchronous_commit = off")
                    while not self._stop.is_set():
                        self._transaction(session, pick)
            except (psycopg.OperationalError, pg_errors.AdminShutdown):
                time.sleep(0.05)  # the server was stopped or killed: that is part of some tests
            except BaseException as e:
                self.errors.append(e)
                return

    def _transaction(self, session: Any, pick: random.Random) -> None:
        kinds = [self._mixed] * 16 + [self._rolled_back] * 2 + [self._nested] * 3 + [self._toast] * 3
        kinds += [self._again] * 2 + [self._big] * (pick.random() < 0.2)
        kinds += [self._transfer] * 6 if self._ledgers else []
        kinds += [self._truncate] * (self._truncates and pick.random() < 0.05)
        kind = pick.choice(kinds if self._shapes else [self._transfer])
        try:
            kind(session, pick)
            self.done[kind.__name__] += 1
        except (pg_errors.UniqueViolation, pg_errors.DeadlockDetected, pg_errors.LockNotAvailable):
            self.done["refused"] += 1  # sessions met on a key: what a live database does all day
        if self._pause_s:
            self._stop.wait(pick.expovariate(1 / self._pause_s))

    # kinds of transactions

    def _mixed(self, session: Any, pick: random.Random) -> None:
        with session.transaction():
            for _ in range(pick.randint(1, 8)):
                self._change(session, pick, pick.choice(self._shapes))

    def _rolled_back(self, session: Any, pick: random.Random) -> None:
        with session.transaction(force_rollback=True):
            for _ in range(pick.randint(1, 5)):
                self._change(session, pick, pick.choice(self._shapes))

    def _nested(self, session: Any, pick: random.Random) -> None:
        """Savepoints that are kept, and some that are not."""
        with session.transaction():
            for _ in range(pick.randint(1, 4)):
                with session.transaction(force_rollback=pick.random() < 0.4):
                    self._change(session, pick, pick.choice(self._shapes))
                    with session.transaction(force_rollback=pick.random() < 0.3):
                        self._change(session, pick, pick.choice(self._shapes))

    def _toast(self, session: Any, pick: random.Random) -> None:
        """A large value that stays where it is while the rest of its row, its key too, changes."""
        table = pick.choice([t for t in self._shapes if SHAPES[t].toast] or self._shapes)
        shape = SHAPES[table]
        with session.transaction():
            row = _row(shape, pick)
            _upsert(session, table, shape, row)
            for _ in range(pick.randint(1, 3)):
                _update(session, table, shape, row, {"n": shape.make["n"](pick)})
            if pick.random() < 0.5:
                _move(session, table, shape, row, pick)

    def _again(self, session: Any, pick: random.Random) -> None:
        """Delete and insert of one key in one transaction, and the other way round."""
        table = pick.choice(self._shapes)
        shape = SHAPES[table]
        with session.transaction():
            row = _row(shape, pick)
            _delete(session, table, shape, row)
            _upsert(session, table, shape, row)
            if pick.random() < 0.5:
                _delete(session, table, shape, row)
                if pick.random() < 0.5:
                    _upsert(session, table, shape, {**row, "n": None})

    def _big(self, session: Any, pick: random.Random) -> None:
        first = KEYS + pick.randint(0, BIG)
        with session.transaction():
            session.execute(
                "INSERT INTO ints (id, n) SELECT i, i FROM generate_series(%s::int, %s::int) i "
                "ON CONFLICT (id) DO UPDATE SET n = ints.n + 1"
                if "ints" in self._shapes
                else "SELECT %s, %s",
                (first, first + BIG),
            )
        if "ints" in self._shapes and pick.random() < 0.7:
            session.execute("DELETE FROM ints WHERE id >= %s", (KEYS,))

    def _transfer(self, session: Any, pick: random.Random) -> None:
        amount = pick.randint(1, 100)
        source, target = pick.sample(LEDGERS, 2) if pick.random() < 0.7 else (LEDGERS[0], LEDGERS[0])
        with session.transaction(force_rollback=pick.random() < 0.05):
            for table, change in ((source, -amount), (target, amount)):
                session.execute(
                    sql.SQL("UPDATE {} SET amount = amount + %s WHERE id = %s").format(sql.Identifier(table)),
                    (change, pick.randint(1, ACCOUNTS)),
                )

    def _truncate(self, session: Any, pick: random.Random) -> None:
        table = pick.choice(self._shapes)
        with session.transaction(force_rollback=pick.random() < 0.2):
            session.execute("SET LOCAL lock_timeout = '500ms'")
            self._change(session, pick, table)
            session.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(table)))
            for _ in range(pick.randint(0, 5)):
                self._change(session, pick, table)

    def _change(self, session: Any, pick: random.Random, table: str) -> None:
        shape = SHAPES[table]
        row = _row(shape, pick)
        what = pick.random()
        if what < 0.4:
            _upsert(session, table, shape, row)
        elif what < 0.65:
            rest = [c for c in shape.make if c not in shape.key]
            chosen = pick.sample(rest, pick.randint(1, len(rest)))
            _update(session, table, shape, row, {c: row[c] for c in chosen})
        elif what < 0.8:
            _move(session, table, shape, row, pick)
        else:
            _delete(session, table, shape, row)


def _row(shape: Shape, pick: random.Random) -> dict[str, Any]:
    return {column: make(pick) for column, make in shape.make.items()}


def _insert(table: str, shape: Shape, pick: random.Random) -> tuple[Any, list[Any]]:
    row = _row(shape, pick)
    return _insert_of(table, row, sql.SQL("ON CONFLICT DO NOTHING")), list(row.values())


def _insert_of(table: str, row: dict[str, Any], conflict: Any) -> Any:
    return sql.SQL("INSERT INTO {} ({}) VALUES ({}) {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(sql.Placeholder() * len(row)),
        conflict,
    )


def _upsert(session: Any, table: str, shape: Shape, row: dict[str, Any]) -> None:
    rest = [c for c in row if c not in shape.key]
    conflict = sql.SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(
        sql.SQL(", ").join(map(sql.Identifier, shape.key)),
        sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(c)) for c in rest),
    )
    session.execute(_insert_of(table, row, conflict), list(row.values()))


def _update(session: Any, table: str, shape: Shape, row: dict[str, Any], values: dict[str, Any]) -> None:
    statement = sql.SQL("UPDATE {} SET {} WHERE {}").format(sql.Identifier(table), _sets(values), _where(shape))
    session.execute(statement, [*values.values(), *(row[k] for k in shape.key)])


def _move(session: Any, table: str, shape: Shape, row: dict[str, Any], pick: random.Random) -> None:
    """A key change; its target is mostly free, because a key range twice as large is used."""
    target = {k: shape.make[k](pick) for k in shape.key}
    with session.transaction():  # a savepoint: a taken key must not undo what came before
        try:
            with session.transaction():
                _update(session, table, shape, row, target)
        except pg_errors.UniqueViolation:
            _delete(session, table, shape, target)
            _update(session, table, shape, row, target)


def _delete(session: Any, table: str, shape: Shape, row: dict[str, Any]) -> None:
    statement = sql.SQL("DELETE FROM {} WHERE {}").format(sql.Identifier(table), _where(shape))
    session.execute(statement, [row[k] for k in shape.key])


def _sets(values: dict[str, Any]) -> Any:
    return sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(c)) for c in values)


def _where(shape: Shape) -> Any:
    return sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(k)) for k in shape.key)
