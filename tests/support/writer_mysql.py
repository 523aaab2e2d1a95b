"""The random writer on MySQL and MariaDB: the same tables and transactions, and what only they have.

Some MySQL sessions compress their transactions, some log only the changed part of a JSON value; some transactions are
prepared (XA) before they are committed.
"""

from __future__ import annotations

import json
import os
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pymysql

from support.writing import ACCOUNTS, KEYS, LEDGERS, Gone, Make, Refused, Shape, Taken, key, maybe, number

LARGE_BYTES = 6000
MIDDLE = 2**63  # of unsigned 64-bit keys: signed ones would turn negative here

DUPLICATE = 1062
MET = {1205, 1213, 1412, 1020}  # lock timeout, deadlock, table changed under a read view, row changed under it
AWAY = {0, 1053, 1077, 1152, 1927, 2003, 2006, 2013, 4031}  # shutting down, killed, unreachable, connection lost


def numbers(first: int, last: int) -> str:
    """A table of the integers `i` from first to last, like generate_series elsewhere.

    MariaDB has tables of them, and no JSON_TABLE before 10.6; each of the two servers skips the other's comment.
    """
    zeros = f"CONCAT('[', REPEAT('0,', {last - first}), '0]')"
    mysql = f"/*!80000 JSON_TABLE({zeros}, '$[*]' COLUMNS (i FOR ORDINALITY)) j */"
    mariadb = f"/*M! (SELECT seq AS i FROM seq_1_to_{last - first + 1}) j */"
    return f"(SELECT j.i + {first - 1} AS i FROM {mysql} {mariadb}) s"


def schema(bytewise: str, uuid_type: str) -> list[str]:
    """The writer's tables; `bytewise` is a collation that orders by bytes and pads nothing."""
    ledgers = [
        statement
        for table in LEDGERS
        for statement in (
            f"CREATE TABLE {table} (id int PRIMARY KEY, amount int NOT NULL)",
            f"INSERT INTO {table} SELECT i, 500 FROM {numbers(1, ACCOUNTS)}",
        )
    ]
    return [
        "CREATE TABLE ints (id int PRIMARY KEY, n bigint, price decimal(12,2), note varchar(100), big longtext, "
        "at timestamp(6) NULL, far datetime(6), u bigint unsigned, flag tinyint(1))",
        f"CREATE TABLE pairs (a int, b varchar(40) COLLATE {bytewise}, n double, big mediumtext, "
        "kind enum('one', 'zwei', '三'), PRIMARY KEY (b, a))",
        f"CREATE TABLE names (name varchar(60) COLLATE {bytewise} PRIMARY KEY, n int, big longblob)",
        f"CREATE TABLE uuids (id {uuid_type} PRIMARY KEY, n int, day date, doc json)",
        "CREATE TABLE parts (id int PRIMARY KEY, n int, big text) PARTITION BY RANGE (id) (PARTITION low VALUES LESS "
        "THAN (100), PARTITION mid VALUES LESS THAN (250), PARTITION high VALUES LESS THAN MAXVALUE)",
        "CREATE TABLE padded (code char(12) COLLATE utf8mb4_general_ci PRIMARY KEY, n int, big text)",
        "CREATE TABLE whole (id bigint unsigned PRIMARY KEY, n int, big text)",
        *ledgers,
    ]


def _large(pick: random.Random) -> str:
    return os.urandom(LARGE_BYTES // 2).hex() if pick.random() < 0.7 else pick.choice(["", "short", "x" * 500])


def _word(pick: random.Random) -> str:
    return pick.choice(["a", "B", "ä", "中", "😀", "z'", 'q"', "\\", " "]) + str(key(pick))


def _moment(first: int, last: int) -> Make:
    return lambda p: f"{p.randint(first, last)}-0{p.randint(1, 9)}-11 10:11:12.{p.randint(0, 999999):06}"


def _document(pick: random.Random) -> str:
    return json.dumps({"k": _word(pick), "n": [key(pick), None, pick.random()], "large": "y" * pick.choice((1, 300))})


def shapes(uuid_value: Callable[[uuid.UUID], Any]) -> dict[str, Shape]:
    """How rows are made; `uuid_value` is how a uuid is passed."""
    return {
        "ints": Shape(
            ("id",),
            {
                "id": key,
                "n": maybe(lambda p: p.randint(-(2**63), 2**63 - 1)),
                "price": maybe(lambda p: f"{p.randint(-(10**9), 10**9) / 100:.2f}"),
                "note": maybe(_word),
                "big": maybe(_large),
                "at": maybe(_moment(1971, 2037)),
                "far": maybe(_moment(1000, 9999)),
                "u": maybe(lambda p: p.randint(0, 2**64 - 1)),
                "flag": maybe(lambda p: p.random() < 0.5),
            },
            "big",
        ),
        "pairs": Shape(
            ("b", "a"),
            {
                "a": lambda p: p.randint(0, 9),
                "b": lambda p: _word(p)[:2] + str(p.randint(0, 40)),
                "n": maybe(lambda p: p.choice([-0.0, 1e300, p.random()])),
                "big": maybe(_large),
                "kind": maybe(lambda p: p.choice(["one", "zwei", "三"])),
            },
            "big",
        ),
        "names": Shape(
            ("name",), {"name": _word, "n": maybe(number), "big": maybe(lambda p: os.urandom(LARGE_BYTES))}, "big"
        ),
        "uuids": Shape(
            ("id",),
            {
                "id": lambda p: uuid_value(uuid.UUID(int=key(p) * 0x1F3D5B79A8C6E4F2135768ACE9BDF024 % (1 << 128))),
                "n": maybe(number),
                "day": maybe(lambda p: f"{p.randint(1900, 2100)}-0{p.randint(1, 9)}-1{p.randint(0, 9)}"),
                "doc": maybe(_document),
            },
        ),
        "parts": Shape(("id",), {"id": key, "n": maybe(number), "big": maybe(_large)}, "big"),
        # equal to the database in any case: a key may change only its case
        "padded": Shape(
            ("code",),
            {"code": lambda p: f"{p.choice('cC')} {key(p)}", "n": maybe(number), "big": maybe(_large)},
            "big",
        ),
        "whole": Shape(
            ("id",), {"id": lambda p: MIDDLE - KEYS // 2 + key(p), "n": maybe(number), "big": maybe(_large)}, "big"
        ),
    }


class MysqlDialect:
    """How to write to MySQL and MariaDB. `moods` are statements that some sessions begin with."""

    two_phase = True

    def __init__(self, connect: Callable[..., Any], shapes: Mapping[str, Shape], moods: Sequence[str]) -> None:
        self.shapes = shapes
        self._connect = connect
        self._moods = moods

    @contextmanager
    def connect(self, pick: random.Random, name: str) -> Iterator[MysqlSession]:
        with said():
            connection = self._connect(charset="utf8mb4")
        try:
            session = MysqlSession(connection, f"{name} {pick.randrange(1 << 30)}")
            session.execute("SET time_zone = '+00:00', lock_wait_timeout = 1, innodb_lock_wait_timeout = 2")
            for mood in self._moods:
                if pick.random() < 0.3:
                    session.execute(mood)
            session.end_prepared(name, undo=pick.random() < 0.5)
            yield session
        finally:
            with suppress(pymysql.Error):
                connection.close()


SAID = {DUPLICATE: Taken, **dict.fromkeys(MET, Refused), **dict.fromkeys(AWAY, Gone)}


@contextmanager
def said() -> Iterator[None]:
    """Translates the server's errors into the writer's."""
    try:
        yield
    except pymysql.Error as e:
        code = e.args[0] if e.args and isinstance(e.args[0], int) else 0
        if code not in SAID:
            raise
        raise SAID[code] from e
    except OSError as e:
        raise Gone from e


class MysqlSession:
    """A PyMySQL connection as the writer uses it; `name` is that of its prepared transactions."""

    def __init__(self, connection: Any, name: str) -> None:
        self._connection = connection
        self._name = name
        self._depth = 0

    @contextmanager
    def transaction(self, *, undo: bool = False) -> Iterator[None]:
        place = f"s{self._depth}"
        self.execute(f"SAVEPOINT {place}" if self._depth else "START TRANSACTION")
        try:
            with self._deeper():
                yield
        except Taken:
            self.execute(f"ROLLBACK TO SAVEPOINT {place}" if self._depth else "ROLLBACK")
            raise
        except BaseException:
            if not self._depth:  # a deadlock has removed the savepoints
                self.execute("ROLLBACK")
            raise
        if self._depth:
            self.execute(f"ROLLBACK TO SAVEPOINT {place}" if undo else f"RELEASE SAVEPOINT {place}")
        else:
            self.execute("ROLLBACK" if undo else "COMMIT")

    @contextmanager
    def prepared(self, *, undo: bool) -> Iterator[None]:
        self.execute("XA START %s", [self._name])
        try:
            with self._deeper():
                yield
            self.execute("XA END %s", [self._name])
        except Gone:
            raise
        except BaseException:
            with suppress(pymysql.Error):  # a deadlock may have ended it already
                self.execute("XA END %s", [self._name])
            self.execute("XA ROLLBACK %s", [self._name])
            raise
        self.execute("XA PREPARE %s", [self._name])
        self.execute("XA ROLLBACK %s" if undo else "XA COMMIT %s", [self._name])

    def end_prepared(self, name: str, *, undo: bool) -> None:
        """Ends what a session of this name left prepared when the server died."""
        for *_, found in self.execute("XA RECOVER"):
            text = found.decode() if isinstance(found, bytes) else str(found)
            if text.startswith(f"{name} "):
                self.execute("XA ROLLBACK %s" if undo else "XA COMMIT %s", [text])

    def upsert(self, table: str, shape: Shape, row: Mapping[str, Any]) -> None:
        rest = [c for c in row if c not in shape.key]
        self.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))}) "
            f"ON DUPLICATE KEY UPDATE {', '.join(f'{c} = %s' for c in rest)}",
            [*row.values(), *(row[c] for c in rest)],
        )

    def update(self, table: str, shape: Shape, row: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        sets = ", ".join(f"{c} = %s" for c in values if c != "doc")
        if "doc" in values:  # in place, so that a session may log only the difference
            sets += (", " if sets else "") + "doc = JSON_SET(COALESCE(doc, '{}'), '$.k', %s, '$.more', %s)"
        given = [v for c, v in values.items() if c != "doc"]
        given += [values["doc"] and values["doc"][:40], values["doc"]] if "doc" in values else []
        self.execute(f"UPDATE {table} SET {sets} WHERE {_where(shape)}", [*given, *(row[k] for k in shape.key)])

    def delete(self, table: str, shape: Shape, row: Mapping[str, Any]) -> None:
        self.execute(f"DELETE FROM {table} WHERE {_where(shape)}", [row[k] for k in shape.key])

    def add_amount(self, table: str, id: int, amount: int) -> None:
        self.execute(f"UPDATE {table} SET amount = amount + %s WHERE id = %s", [amount, id])

    def truncate(self, table: str) -> None:
        """A statement that commits what came before it; the block continues with another transaction."""
        self.execute(f"TRUNCATE TABLE {table}")
        self.execute("START TRANSACTION")

    def insert_many(self, first: int, last: int) -> None:
        self.execute(
            f"INSERT INTO ints (id, n) SELECT i, i FROM {numbers(first, last)} ON DUPLICATE KEY UPDATE n = ints.n + 1"
        )

    def delete_many(self, first: int) -> None:
        self.execute("DELETE FROM ints WHERE id >= %s", [first])

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with said(), self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


def _where(shape: Shape) -> str:
    return " AND ".join(f"{k} = %s" for k in shape.key)
