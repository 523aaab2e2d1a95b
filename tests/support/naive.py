"""Writers of one small table, and its history according to the server's own SQL functions.

It shares nothing with the capture or the decoders, which are being tested.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from typing import Any

import psycopg

from headwater.model import Op
from headwater.source.postgres.client.session import lsn_to_int
from support.history import Change, Key, apply

KEYS = 400
TRUNCATES = 0.02  # share of the statements that could be one


class Writers:
    """Sessions that change `t` until stopped; commits stay in the log but invisible for some milliseconds.

    Some transactions are prepared first, and end one or more transactions later.
    """

    def __init__(
        self,
        database: Any,
        seed: int,
        sessions: int = 4,
        *,
        keys: int = KEYS,
        pause_s: float = 0.0,
        truncates: float = TRUNCATES,
    ) -> None:
        self._database = database
        self._keys = keys
        self._pause_s = pause_s
        self.truncates = truncates
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(random.Random(seed + i),)) for i in range(sessions)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.failures, self.failures

    def _run(self, r: random.Random) -> None:
        prepared: list[str] = []
        try:
            with self._database.connect() as c:
                c.execute("SET commit_delay = 3000; SET commit_siblings = 0; SET lock_timeout = '300ms'")
                while not self._stop.wait(self._pause_s):
                    self._transaction(c, r, prepared)
                    if prepared and r.random() < 0.4:
                        self._end(c, r, prepared.pop())
                for name in prepared:
                    self._end(c, r, name)
        except BaseException as e:
            self.failures.append(e)

    def _transaction(self, c: Any, r: random.Random, prepared: list[str]) -> None:
        try:
            c.execute("BEGIN")
            prepares = not prepared and r.random() < 0.1
            for _ in range(r.choice((1, 1, 2, 5, 20))):
                c.execute(self._statement(r, truncates=not prepares))  # nobody could scan while that is prepared
            if prepares:
                name = f"writers {r.randrange(1 << 60)}"
                c.execute(f"PREPARE TRANSACTION '{name}'")
                prepared.append(name)
            else:
                c.execute("ROLLBACK" if r.random() < 0.15 else "COMMIT")
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected, psycopg.errors.LockNotAvailable):
            c.execute("ROLLBACK")

    def _statement(self, r: random.Random, *, truncates: bool) -> str:
        key, other, value = r.randrange(self._keys), r.randrange(self._keys), r.randrange(10**6)
        return r.choice(
            (
                f"INSERT INTO t VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                f"UPDATE t SET v = {value} WHERE id = {key}",
                f"DELETE FROM t WHERE id = {key}",
                f"UPDATE t SET id = {other}, v = {value} WHERE id = {key}",
                "TRUNCATE t" if truncates and r.random() < self.truncates else "SAVEPOINT s",
            )
        )

    @staticmethod
    def _end(c: Any, r: random.Random, name: str) -> None:
        c.execute(f"{'COMMIT' if r.random() < 0.7 else 'ROLLBACK'} PREPARED '{name}'")


def keep_history(database: Any) -> dict[Key, int]:
    """Makes the server keep the history of `t`; returns its current rows, which nobody may be changing yet."""
    database.execute("CREATE PUBLICATION naive FOR TABLE t")
    database.execute("SELECT pg_create_logical_replication_slot('naive', 'pgoutput')")
    return {(id,): v for id, v in database.execute("SELECT id, v FROM t")}


def state_at(first: dict[Key, int], history: list[tuple[int, Change]], position: str) -> dict[Key, int]:
    """The rows after every commit before a position."""
    state = dict(first)
    for commit, change in history:
        if commit < lsn_to_int(position):
            apply(state, change)
    return state


def changes_of(database: Any) -> list[tuple[int, Change]]:
    """(commit position, change) of the whole history in commit order, with renames split."""
    messages = database.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes('naive', NULL, NULL, "
        "'proto_version', '1', 'publication_names', 'naive')"
    )
    found: list[tuple[int, Change]] = []
    index = commit = txn = 0
    for (data,) in messages:
        kind = data[:1]
        if kind == b"B":
            commit, _, txn = struct.unpack(">qqI", data[1:21])
        elif kind in (b"I", b"U", b"D", b"T"):
            index += 1
            found += [(commit, change) for change in taken_apart(data, index, txn)]
    return found


def taken_apart(data: bytes, index: int, txn: int) -> Iterator[Change]:
    if data[:1] == b"T":
        yield Change(index, txn, Op.TRUNCATE, None, None)
        return
    place, old = 5, None
    if data[place : place + 1] in (b"K", b"O"):
        old, place = values_of(data, place + 1)
        yield Change(index, txn, Op.DELETE, (old[0],), None)
    if data[:1] != b"D":
        (key, value), _ = values_of(data, place + 1)
        yield Change(index, txn, Op.INSERT, (key,), value)


def values_of(data: bytes, place: int) -> tuple[list[Any], int]:
    (count,) = struct.unpack_from(">H", data, place)
    place, values = place + 2, []
    for _ in range(count):
        if data[place : place + 1] == b"t":
            (size,) = struct.unpack_from(">I", data, place + 1)
            values.append(int(data[place + 5 : place + 5 + size]))
            place += 5 + size
        else:
            values.append(None)
            place += 1
    return values, place
