"""The comparable cut: an exported snapshot holds exactly the commits that end at or before its consistent point."""

from __future__ import annotations

import random
import struct
import threading
from typing import Any

import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.source.postgres import publication, slot
from headwater.source.postgres.cut import files_unchanged, upstream_cut
from headwater.source.postgres.read_spans import import_statement
from headwater.source.postgres.session import Endpoint, lsn_to_int

WRITERS = 6
TRIES = 15


def endpoint_of(database: Any) -> Endpoint:
    server: EmbeddedPostgres = database.server
    return Endpoint(server.host, server.port, server.user, database.name, server.password)


class Log:
    """The log as the server itself decodes it: commit end → the changes of that transaction, kept in order."""

    def __init__(self, database: Any) -> None:
        self.commits: list[tuple[int, list[tuple[int, int | None]]]] = []
        self._database = database

    def drain(self) -> None:
        with self._database.connect() as session:
            changes: list[tuple[int, int | None]] = []
            for (data,) in session.execute(
                "SELECT data FROM pg_logical_slot_get_binary_changes('oracle', NULL, NULL, 'proto_version', '1', "
                "'publication_names', 'ours')"
            ):
                kind = data[:1]
                if kind in (b"I", b"U"):
                    values = _values(data)
                    changes.append((values[0], values[1]))
                elif kind == b"D":
                    changes.append((_values(data)[0], None))
                elif kind == b"C":
                    _, _, end = struct.unpack(">BQQ", data[1:18])
                    self.commits.append((end, changes))
                    changes = []

    def rows_at(self, position: int) -> dict[int, int]:
        rows: dict[int, int] = {}
        for end, changes in self.commits:
            for key, value in changes:
                if end <= position:
                    if value is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = value
        return rows


def _values(data: bytes) -> list[int]:
    """The integers of a message's only tuple (the key never changes here)."""
    place, values = 8, []
    for _ in range(struct.unpack(">H", data[6:8])[0]):
        if data[place : place + 1] == b"n":
            place += 1
            continue
        (length,) = struct.unpack(">I", data[place + 1 : place + 5])
        values.append(int(data[place + 5 : place + 5 + length]))
        place += 5 + length
    return values


def _write(database: Any, seed: int, stop: threading.Event, errors: list[Exception]) -> None:
    pick = random.Random(seed)
    try:
        with database.connect() as session:
            session.execute("SET synchronous_commit = off" if seed % 2 else "SET synchronous_commit = on")
            while not stop.is_set():
                with session.transaction(force_rollback=pick.random() < 0.1):
                    for _ in range(pick.randint(1, 4)):
                        # keys of its own: a row's history has one writer, the order among writers is the log's
                        key = pick.randint(0, 200) * WRITERS + seed
                        session.execute(
                            "INSERT INTO t VALUES (%s, %s) ON CONFLICT (a) DO UPDATE SET b = excluded.b",
                            (key, pick.randint(0, 1 << 30)),
                        )
                        if pick.random() < 0.3:
                            session.execute("DELETE FROM t WHERE a = %s", (pick.randint(0, 200) * WRITERS + seed,))
    except Exception as e:
        errors.append(e)


def test_a_cut_holds_exactly_the_commits_that_end_by_its_position(database: Any) -> None:
    with database.connect() as session:
        session.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        publication.ensure(session, "ours")
        publication.add_table(session, "ours", "public", "t")
    endpoint = endpoint_of(database)
    slot.ensure_slot(endpoint, "oracle")
    stop, errors = threading.Event(), []  # type: tuple[threading.Event, list[Exception]]
    writers = [threading.Thread(target=_write, args=(database, seed, stop, errors)) for seed in range(WRITERS)]
    for writer in writers:
        writer.start()
    cuts = []
    try:
        for _ in range(TRIES):
            with upstream_cut(endpoint) as cut, database.connect() as reader:
                reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                reader.execute(import_statement(cut.snapshot))
                cuts.append((cut.position, dict(reader.execute("SELECT a, b FROM t").fetchall())))
                reader.execute("ROLLBACK")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not errors
    log = Log(database)
    log.drain()
    assert len(log.commits) > TRIES
    agreed = [log.rows_at(lsn_to_int(position)) == rows for position, rows in cuts]
    assert agreed == [True] * TRIES


@pytest.mark.parametrize(
    "statement", ["TRUNCATE t", "ALTER TABLE t ALTER b TYPE bigint", "VACUUM FULL t", "DROP TABLE p1"]
)
def test_a_file_that_was_replaced_after_the_cut_is_noticed(database: Any, statement: str) -> None:
    """Hazard 32: the snapshot would read nothing, without an error."""
    database.execute("CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1, 1)")
    database.execute("CREATE TABLE p (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE TABLE p1 PARTITION OF p DEFAULT")
    with database.connect() as reader, upstream_cut(endpoint_of(database)) as cut:
        oids = [reader.execute("SELECT %s::regclass::oid", (name,)).fetchone()[0] for name in ("t", "p")]

        def unchanged() -> list[bool]:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            reader.execute("LOCK TABLE t, p IN ACCESS SHARE MODE")
            reader.execute(import_statement(cut.snapshot))
            try:
                return [files_unchanged(lambda s: reader.execute(s).fetchall(), oid) for oid in oids]
            finally:
                reader.execute("ROLLBACK")

        assert unchanged() == [True, True]
        database.execute(statement)
        assert unchanged() == ([True, False] if "p1" in statement else [False, True])
        database.execute("INSERT INTO t VALUES (99, 9)")


def test_a_cut_waits_for_running_transactions_and_says_for_whom(database: Any) -> None:
    database.execute("CREATE TABLE t (a int)")
    writer = database.connect(application_name="slow writer")
    writer.execute("BEGIN; INSERT INTO t VALUES (1)")
    seen: list[str] = []

    def on_wait(waiting: Any) -> None:
        seen.extend(str(w) for w in waiting)
        writer.execute("COMMIT")

    with upstream_cut(endpoint_of(database), on_wait=on_wait) as cut:
        assert cut.position
    assert any("slow writer" in s for s in seen)
    writer.close()
