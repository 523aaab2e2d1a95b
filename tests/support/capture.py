"""Runs captures against a real server and compares changelogs with an independent reader of the same log."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headwater.changelog import reader
from headwater.engine.home import Home
from headwater.meta import connections, segments
from headwater.model import ConnectionInfo, ConnectionState
from headwater.source.postgres.session import lsn_to_int
from support.wait import wait_for

PUBLICATION = "headwater_test"
BULK = "INSERT INTO item SELECT g, g, 'bulk' FROM generate_series(%s::int, %s::int) g ON CONFLICT DO NOTHING"


@dataclass
class Upstream:
    """A database with a publication, our slot, and a second slot that nobody reads until the end: the oracle."""

    dsn: str
    slot: str
    oracle_slot: str

    @classmethod
    def prepare(cls, dsn: str, tables: str = "ALL TABLES") -> Self:
        name = conninfo_to_dict(dsn)["dbname"]
        self = cls(dsn, f"hw_{name}", f"oracle_{name}")
        self.execute(f"CREATE PUBLICATION {PUBLICATION} FOR {tables}")
        for slot in (self.slot, self.oracle_slot):
            self.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
        return self

    def connect(self) -> Any:
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connect() as c:
            cursor = c.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def position(self) -> str:
        """The end of the upstream's log, once all of it is flushed."""
        return str(self.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0])

    def oracle(self) -> list[tuple[int, list[bytes]]]:
        """(32-bit xid, row messages) of every transaction since the start, in commit order, as the server tells it."""
        rows = self.execute(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{self.oracle_slot}', NULL, NULL, "
            f"'proto_version', '1', 'publication_names', '{PUBLICATION}')"
        )
        return transactions_of(bytes(r[0]) for r in rows)


def transactions_of(messages: Any) -> list[tuple[int, list[bytes]]]:
    found: list[tuple[int, list[bytes]]] = []
    for m in messages:
        if m[:1] == b"B":
            found.append((int.from_bytes(m[17:21], "big"), []))
        elif m[:1] in b"IUDT":
            copies = int.from_bytes(m[1:5], "big") if m[:1] == b"T" else 1
            found[-1][1].extend([m] * copies)
    return [t for t in found if t[1]]


@dataclass
class Captured:
    """A home with one connection, and the capture process on it."""

    home: Home
    id: int
    upstream: Upstream
    process: subprocess.Popen[str] | None = None
    lines: list[str] = field(default_factory=list)

    @classmethod
    def define(cls, path: Path, upstream: Upstream, **options: str) -> Self:
        home = Home.open(path)
        at = conninfo_to_dict(upstream.dsn)
        slot = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{upstream.slot}'"
        position = options.pop("position", None) or upstream.execute(slot)[0][0]
        ((txn,),) = upstream.execute("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        with home.meta.write() as c:
            id = connections.add(
                c,
                name="pg",
                type="postgres-cdc",
                options={
                    "hostname": str(at["host"]),
                    "port": str(at["port"]),
                    "username": str(at["user"]),
                    "database.name": str(at["dbname"]),
                    "slot.name": upstream.slot,
                    "publication.name": PUBLICATION,
                    "heartbeat.interval": "1",
                    **options,
                },
                secret=str(at["password"]),
                identity={},
                position=position,
                txn=txn,
                server_life="",
            )
        return cls(home, id, upstream)

    def start(self, crash: str | None = None, until: str = "") -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if k != "HEADWATER_CRASH"}
        if crash:
            environment["HEADWATER_CRASH"] = crash
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headwater.engine.capture", "--home", str(self.home.path)),
                *("--connection", str(self.id), "--force", *(("--until", until) if until else ())),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.home.path / "capture.log").open("a"),
            text=True,
            env=environment,
        )
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()
        return self.process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.strip())

    def close(self) -> int:
        """A clean end, as the server would do it."""
        if self.process is None:
            return 0
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(30)

    def log(self) -> str:
        return (self.home.path / "capture.log").read_text()

    def confirmed(self) -> str:
        """What the upstream believes to be durable here."""
        slot = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.upstream.slot}'"
        return str(self.upstream.execute(slot)[0][0])

    def info(self) -> ConnectionInfo:
        with self.home.meta.read() as c:
            return connections.get(c, self.id)

    def wait_reading(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Waits until a flow has begun for the `times`th time."""
        wait_for(lambda: self.log().count("reading pg after") >= times, self.log()[-2000:], timeout_s)

    def wait_caught_up(self, timeout_s: float = 60.0) -> None:
        """Waits until everything that is now in the upstream's log is published."""
        self.upstream.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        # where it is inserted, not where it is written: with synchronous_commit = off the last commits are not yet
        goal = lsn_to_int(str(self.upstream.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0]))

        def there() -> bool:
            assert self.process is None or self.process.poll() is None, self.log()[-3000:]
            return lsn_to_int(self.info().position) >= goal

        wait_for(there, self.log()[-2000:], timeout_s)

    def wait_state(self, state: ConnectionState, code: str, timeout_s: float = 30.0) -> dict[str, str]:
        def there() -> dict[str, str] | None:
            info = self.info()
            return info.error if info.state is state and info.error and info.error["code"] == code else None

        error: dict[str, str] = wait_for(there, self.log()[-2000:], timeout_s)
        return error

    def transactions(self) -> list[tuple[int, list[bytes]]]:
        """(32-bit xid, row messages) of every published transaction, in index order; checks the changelog's shape."""
        with self.home.meta.read() as c:
            info = connections.get(c, self.id)
            held = segments.in_range(c, self.id, 0, info.committed_index)
            known = {s.id: s for s in segments.schemas(c, self.id)}
        expected = 1
        rows: dict[int, tuple[int, bytes]] = {}
        for s in held:
            assert s.first_index == expected, "segments follow each other without a gap"
            expected = s.last_index + 1
            for p in s.parts:
                table = reader.read_table(self.home.storage, [(s.path, p)], 0, info.committed_index)
                assert table.num_rows == p.changes
                assert known[p.schema_id].upstream_id == p.upstream_id
                assert known[p.schema_id].from_index <= p.first_index
                columns = (table[n].to_pylist() for n in ("index", "txn", "payload"))
                rows.update({i: (t, m) for i, t, m in zip(*columns, strict=True)})
        assert sorted(rows) == list(range(1, info.committed_index + 1)), "each index once"
        done = reader.read_transactions(self.home.storage, [s.path for s in held]).to_pylist()
        found = []
        at = 1
        for t in done:
            assert t["first_index"] == at and t["last_index"] - at + 1 == t["changes"]
            inside = [rows[i] for i in range(at, t["last_index"] + 1)]
            assert {txn for txn, _ in inside} == {t["txn"]}
            found.append((t["txn"] & 0xFFFFFFFF, [m for _, m in inside]))
            at = t["last_index"] + 1
        assert at == info.committed_index + 1
        return found


class Writers:
    """Threads that change `item` and `other` in random transactions until stopped. Prints its seed."""

    def __init__(self, dsn: str, seed: int, threads: int = 3) -> None:
        print(f"writers: seed {seed}")
        self._dsn = dsn
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed * 100 + i,)) for i in range(threads)]
        self.failures: list[BaseException] = []
        self.commits = 0

    @staticmethod
    def prepare(upstream: Upstream) -> None:
        upstream.execute("CREATE TABLE item (id int PRIMARY KEY, n int, t text)")
        upstream.execute("CREATE TABLE other (id int, k text, v numeric, PRIMARY KEY (id, k))")
        upstream.execute("ALTER TABLE other REPLICA IDENTITY FULL")
        upstream.execute("ALTER TABLE item ALTER t SET STORAGE EXTERNAL")

    def __enter__(self) -> Self:
        for t in self._threads:
            t.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        for t in self._threads:
            t.join(60)
        assert not self.failures, self.failures[0]

    def _run(self, seed: int) -> None:
        r = random.Random(seed)
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._dsn) as c:
                    while not self._stop.is_set():
                        self._transaction(c, r)
            except psycopg.OperationalError:
                self._stop.wait(0.1)  # the server is being crashed
            except BaseException as e:
                self.failures.append(e)
                return

    def _transaction(self, c: psycopg.Connection[Any], r: random.Random) -> None:
        self._stop.wait(0.005)  # the machine's other half is for the reader
        try:
            for _ in range(r.choice((1, 1, 2, 5, 30))):
                with c.transaction() if r.random() < 0.2 else contextlib.nullcontext():  # a savepoint
                    c.execute(*self._statement(r))
            if r.random() < 0.1:
                c.rollback()
            else:
                c.commit()
                self.commits += 1
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            c.rollback()

    @staticmethod
    def _statement(r: random.Random) -> tuple[str, tuple[Any, ...]]:
        id, n = r.randrange(500), r.randrange(10**6)
        big = "x" * r.choice((1, 10, 3000))
        return r.choice(
            (
                ("INSERT INTO item VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET n = excluded.n", (id, n, big)),
                ("UPDATE item SET n = %s WHERE id BETWEEN %s AND %s", (n, id, id + 5)),
                ("UPDATE item SET id = id + 1000 WHERE id = %s", (id,)),
                ("DELETE FROM item WHERE id = %s OR id = %s", (id, id + 1000)),
                ("INSERT INTO other VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", (id % 50, big[:20], n)),
                ("UPDATE other SET v = %s WHERE id = %s", (n, id % 50)),
                ("DELETE FROM other WHERE id = %s", (id % 50,)),
                (BULK, (2000 + n, 2200 + n)),
                ("TRUNCATE item, other" if r.random() < 0.02 else "SELECT 1", ()),
            )
        )


@contextlib.contextmanager
def captured(path: Path, upstream: Upstream, **options: str) -> Iterator[Captured]:
    """A defined connection whose process surely ends with the block."""
    it = Captured.define(path, upstream, **options)
    try:
        yield it
    finally:
        it.kill()
        it.home.meta.close()
