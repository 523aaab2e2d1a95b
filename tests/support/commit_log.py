"""The commits of a small table as the server itself tells them: what scans and cuts under load are compared with.

The table is `t (id int PRIMARY KEY, v int)`, empty when the log begins; statements are `PUT` and `REMOVE`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pymysql

from headwater.source.mysql.binlog.position import Position
from support.mysql import MyDatabase

REMOVE = "DELETE FROM t WHERE id = {0}"
Rows = dict[int, int]


@dataclass(frozen=True)
class Commit:
    """A transaction: its number in a changelog, where its commit ends, and each row as it left it (None: gone)."""

    txn: int
    end: int
    changes: tuple[tuple[int, int | None], ...]


class CommitLog(Protocol):
    """All that is committed to the table from now on."""

    put: str  # inserts the row ({0}, {1}), or replaces the one that is there

    def session(self, writer: int) -> str:
        """What a writer's session runs first."""

    def commits(self) -> list[Commit]: ...


def after(rows: Rows, commits: Iterable[Commit]) -> Rows:
    """The rows once these commits have changed them."""
    found = dict(rows)
    for commit in commits:
        for key, value in commit.changes:
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
    return found


class PostgresCommits:
    """By a slot of its own."""

    put = "INSERT INTO t VALUES ({0}, {1}) ON CONFLICT (id) DO UPDATE SET v = excluded.v"

    def __init__(self, database: Any) -> None:
        self._database = database
        self._slot = f"commits_{database.name}"
        database.execute("CREATE PUBLICATION commits FOR TABLE t")
        database.execute(f"SELECT pg_create_logical_replication_slot('{self._slot}', 'pgoutput')")

    def session(self, writer: int) -> str:
        """Half of the writers do not wait until their commits are written: the log's end is beyond what is flushed."""
        return f"SET synchronous_commit = {'off' if writer % 2 else 'on'}"

    def commits(self) -> list[Commit]:
        found: list[Commit] = []
        txn, changes = 0, []
        messages = self._database.execute(
            f"SELECT data FROM pg_logical_slot_get_binary_changes('{self._slot}', NULL, NULL, 'proto_version', '1', "
            "'publication_names', 'commits')"
        )
        for (data,) in messages:
            kind = data[:1]
            if kind == b"B":
                txn, changes = struct.unpack(">I", data[17:21])[0], []
            elif kind in (b"I", b"U"):
                key, value = _integers(data)
                changes.append((key, value))
            elif kind == b"D":
                changes.append((_integers(data)[0], None))
            elif kind == b"C":
                found.append(Commit(txn, struct.unpack(">BQQ", data[1:18])[2], tuple(changes)))
        return found


def _integers(data: bytes) -> list[int]:
    """The integers of a row message's only tuple (the key never changes here)."""
    place, values = 8, []
    for _ in range(struct.unpack(">H", data[6:8])[0]):
        if data[place : place + 1] == b"n":
            place += 1
            continue
        (length,) = struct.unpack(">I", data[place + 1 : place + 5])
        values.append(int(data[place + 5 : place + 5 + length]))
        place += 5 + length
    return values


class MysqlCommits:
    """By the listing of a binlog, which repeats the statements."""

    put = "REPLACE INTO t VALUES ({0}, {1})"

    def __init__(self, database: MyDatabase, since: Position) -> None:
        self._database, self._since = database, since

    def session(self, writer: int) -> str:
        mariadb = self._database.server.name == "mariadb"
        return f"SET SESSION {'binlog_annotate_row_events' if mariadb else 'binlog_rows_query_log_events'} = ON"

    def commits(self) -> list[Commit]:
        found: list[Commit] = []
        begins, changes = 0, []
        place = self._since
        with self._database.connect(cursorclass=pymysql.cursors.SSCursor) as session, session.cursor() as cursor:
            cursor.execute(f"SHOW BINLOG EVENTS IN '{place.name}' FROM {place.offset}")
            for _, at, kind, _, end, info in cursor:
                if kind.lower().startswith("gtid"):
                    begins, changes = Position.of(place.name, at).number, []
                elif put := re.search(r"REPLACE INTO t VALUES \((\d+), (\d+)\)", info or ""):
                    changes.append((int(put[1]), int(put[2])))
                elif gone := re.search(r"DELETE FROM t WHERE id = (\d+)", info or ""):
                    changes.append((int(gone[1]), None))
                elif kind == "Xid":
                    found.append(Commit(begins, Position.of(place.name, end).number, tuple(changes)))
        return found
