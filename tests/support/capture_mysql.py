"""Captures of MySQL and MariaDB: the upstream, writers, and an independent reader of the same log."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Any, Self

from headwater.source.mysql.binlog.position import Position, table_number
from headwater.source.mysql.server import log_status
from support.binlog import Reader
from support.captured import Definition, WriterThreads
from support.mysql import MyDatabase
from support.writer_mysql import MysqlSession, numbers, said
from support.writing import Gone, Refused, Taken

TABLES = ("item", "other")


@dataclass
class Upstream:
    """A database with the writers' tables; `began` is the log's position when it was prepared."""

    database: MyDatabase
    began: Position

    @classmethod
    def prepare(cls, database: MyDatabase) -> Self:
        database.execute("CREATE TABLE item (id int PRIMARY KEY, n int, t longtext)")
        database.execute("CREATE TABLE other (id int, k varchar(20), v decimal(20,4), PRIMARY KEY (id, k))")
        database.execute("CREATE TABLE mark (id int PRIMARY KEY, n int)")  # which nobody follows
        database.execute("INSERT INTO mark VALUES (1, 1)")
        return cls(database, log_end(database))

    def definition(self) -> Definition:
        name = self.database.name
        return Definition(
            type="mysql-cdc",
            options={**self.database.options, "server.id": str(random.randrange(2**31, 2**32))},
            secret=self.database.server.password,
            position=str(self.began),
            txn=self.began.number,
            tables=tuple((name, table, table_number(name, table)) for table in TABLES),
        )

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.database.execute(statement)

    def fill(self, first: int, last: int, bytes: int) -> None:
        """Rows of `item` in one transaction."""
        self.execute(f"INSERT INTO item SELECT i, i, REPEAT('y', {bytes}) FROM {numbers(first, last)}")

    def goal(self) -> int:
        self.execute("UPDATE mark SET n = n + 1")
        return log_end(self.database).number

    def number(self, position: str) -> int:
        return Position.parse(position).number

    def short_txn(self, txn: int) -> int:
        return txn

    def oracle(self) -> list[tuple[int, list[bytes]]]:
        """(place where it begins, row images) of every transaction since the start, from the server's own files."""
        reader = Reader(frozenset((self.database.name, table) for table in TABLES))
        for name, *_ in self.execute("SHOW BINARY LOGS"):
            if Position.of(name, 0).file >= self.began.file:
                reader.read(self.database.server.data / name)
        return [(place, rows) for place, rows in reader.done if place >= self.began.number]


def log_end(database: MyDatabase) -> Position:
    """Where the server's log ends now."""
    with database.endpoint.connect() as session:
        status = log_status(session)
    return Position.of(status.file, status.offset)


class Writers(WriterThreads):
    """Writers of `item` and `other`."""

    def __init__(
        self, database: MyDatabase, seed: int, threads: int = 2, *, moods: tuple[str, ...] = (), two_phase: bool = True
    ) -> None:
        super().__init__(seed, threads)
        self._database = database
        self._moods = moods
        self._two_phase = two_phase

    def _run(self, seed: int) -> None:
        r = random.Random(seed)
        while not self._stop.is_set():
            try:
                with said(), self._database.connect() as connection:
                    session = MysqlSession(connection, f"capture {seed} {r.randrange(1 << 30)}")
                    session.execute("SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 2")
                    for mood in self._moods:
                        if r.random() < 0.5:
                            session.execute(mood)
                    while not self._stop.is_set():
                        self._transaction(session, r)
            except Gone:
                self._stop.wait(0.1)  # the server is being crashed
            except BaseException as e:
                self.failures.append(e)
                return

    def _transaction(self, session: MysqlSession, r: random.Random) -> None:
        self._stop.wait(0.005)  # the machine's other half is for the reader
        undo = r.random() < 0.1
        two_phase = self._two_phase and r.random() < 0.1
        try:
            with session.prepared(undo=undo) if two_phase else session.transaction(undo=undo):
                for _ in range(r.choice((1, 1, 2, 5, 30))):
                    with session.transaction(undo=r.random() < 0.1) if r.random() < 0.2 else contextlib.nullcontext():
                        session.execute(*self._statement(r))
            self.commits += not undo
            if r.random() < 0.005:
                session.execute(r.choice(("TRUNCATE TABLE item", "TRUNCATE other")))
        except (Taken, Refused):
            return

    @staticmethod
    def _statement(r: random.Random) -> tuple[str, tuple[Any, ...]]:
        id, n = r.randrange(500), r.randrange(10**6)
        big = "x" * r.choice((1, 10, 3000))
        many = f"INSERT IGNORE INTO item SELECT i, i, 'bulk' FROM {numbers(2000 + n, 2200 + n)}"
        return r.choice(
            (
                ("INSERT INTO item VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE n = %s", (id, n, big, n)),
                ("REPLACE INTO item VALUES (%s, %s, %s)", (id, n, big)),
                ("UPDATE item SET n = %s WHERE id BETWEEN %s AND %s", (n, id, id + 5)),
                ("UPDATE item SET id = id + 1000 WHERE id = %s", (id,)),
                ("DELETE FROM item WHERE id = %s OR id = %s", (id, id + 1000)),
                ("INSERT IGNORE INTO other VALUES (%s, %s, %s)", (id % 50, big[:20], n)),
                ("UPDATE other SET v = NULLIF(%s, 0) / 7 WHERE id = %s", (n * (n % 5), id % 50)),
                ("DELETE FROM other WHERE id = %s", (id % 50,)),
                (many, ()),
                ("UPDATE mark SET n = n + 1", ()),
            )
        )
