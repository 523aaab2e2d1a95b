"""Spans scanned under live writers, plus what counts of the log, equal the upstream at exact cuts. No Spark.

The log is read by the server's own SQL functions and taken apart here, so nothing of the capture or the decoders is
shared with what is being tested; a cut is a slot's exported snapshot and its consistent point.
"""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwater.backfill.scan import scan_span
from headwater.backfill.span import cut as cut_span
from headwater.model import CoveredSpan, Layout, Op, ScanResult, Span
from headwater.source.postgres.session import lsn_to_int
from support.backfill import Bench, bench
from support.history import Change, Key, read

KEYS = 400


@dataclass(frozen=True)
class Cut:
    """All commits below `lsn`, and the rows that they left."""

    lsn: int
    rows: dict[Key, int]


class Writers:
    """Sessions that change `t` until stopped; commits stay in the log but invisible for some milliseconds."""

    def __init__(self, database: Any, seed: int, sessions: int = 4) -> None:
        self._database = database
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
        try:
            with self._database.connect() as c:
                c.execute("SET commit_delay = 3000; SET commit_siblings = 0")
                while not self._stop.is_set():
                    self._transaction(c, r)
        except BaseException as e:
            self.failures.append(e)

    def _transaction(self, c: Any, r: random.Random) -> None:
        try:
            c.execute("BEGIN")
            for _ in range(r.choice((1, 1, 2, 5, 20))):
                key, other, value = r.randrange(KEYS), r.randrange(KEYS), r.randrange(10**6)
                c.execute(
                    r.choice(
                        (
                            f"INSERT INTO t VALUES ({key}, {value}) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                            f"UPDATE t SET v = {value} WHERE id = {key}",
                            f"DELETE FROM t WHERE id = {key}",
                            f"UPDATE t SET id = {other}, v = {value} WHERE id = {key}",
                            "TRUNCATE t" if r.random() < 0.02 else "SAVEPOINT s",
                        )
                    )
                )
            c.execute("ROLLBACK" if r.random() < 0.15 else "COMMIT")
        except (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
            c.execute("ROLLBACK")


def take_cut(database: Any, name: str) -> Cut:
    """The table under the snapshot of a new slot, and the place in the log that it stands for.

    A TRUNCATE between snapshot and read leaves nothing to read (hazard 32): then another cut is taken.
    """
    tries = (_try_cut(database, f"{name}_{i}") for i in range(50))
    return next(cut for cut in tries if cut is not None)


def _try_cut(database: Any, name: str) -> Cut | None:
    with psycopg.connect(database.dsn, autocommit=True, replication="database") as walsender:  # type: ignore[call-arg]
        statement = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')"
        _, point, snapshot, _ = walsender.execute(statement).fetchone()
        with database.connect() as c:
            c.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            c.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            c.execute("LOCK TABLE t IN ACCESS SHARE MODE")
            files = "SELECT relfilenode = pg_relation_filenode(oid) FROM pg_class WHERE oid = 't'::regclass"
            if not c.execute(files).fetchone()[0]:
                return None
            rows = {(id,): v for id, v in c.execute("SELECT id, v FROM t").fetchall()}
    return Cut(lsn_to_int(point), rows)


def changes_of(database: Any) -> list[tuple[int, Change]]:
    """(commit position, change) of the whole log in commit order, renames taken apart."""
    messages = database.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes('live', NULL, NULL, "
        "'proto_version', '1', 'publication_names', 'live')"
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


def scan_everything(table: Bench, parts: list[Span], r: random.Random) -> list[tuple[Span, ScanResult]]:
    """Scans the spans in any order, two at a time, some stopping after every batch."""
    waiting, done = [*parts], []
    r.shuffle(waiting)
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                span = waiting.pop()
                hasty = r.random() < 0.5
            result = scan_span(table.job(span, **({"slice_s": 0.0, "batch_bytes": 200} if hasty else {})))
            with lock:
                if result.stopped_at is not None:
                    span, rest = cut_span(span, result.stopped_at)
                    waiting.insert(0, rest)
                done.append((span, result))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not waiting
    return done


@pytest.mark.parametrize("seed", [random.randrange(10**6)])
def test_covered_spans_and_what_counts_are_the_upstream_at_every_cut(seed: int, database: Any, tmp_path: Path) -> None:
    print(f"seed {seed}")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute(f"INSERT INTO t SELECT i, i FROM generate_series(0, {KEYS - 1}, 2) i")
    database.execute("CREATE PUBLICATION live FOR TABLE t")
    database.execute("SELECT pg_create_logical_replication_slot('live', 'pgoutput')")
    table = bench(database, tmp_path, "t")
    writers = Writers(database, seed)
    cuts = []
    try:
        plan = table.plan(span_rows=20, span_bytes=1)
        *parts, beyond = table.spans(plan)
        scans: list[tuple[Span, ScanResult]] = [(beyond, plan.beyond_result)]
        r = random.Random(seed)
        half = len(parts) // 2
        for number, some in enumerate((parts[:half], parts[half:])):
            scans += scan_everything(table, some, r)
            cuts.append(take_cut(database, f"cut_{number}"))
    finally:
        writers.stop()
    cuts.append(take_cut(database, "cut_end"))
    log = changes_of(database)
    base = {(row["id"],): row["v"] for _, result in scans for row in table.rows(result)}
    key = tuple(c for c in table.columns if c.name == "id")
    for cut in cuts:
        covered = [(s, x) for s, x in scans if lsn_to_int(x.high) <= cut.lsn]
        layout = Layout(1, 0, tuple(CoveredSpan(s, 0, 0, (x.saw,)) for s, x in covered), len(covered) == len(scans))
        seen_at_cut = [change for commit, change in log if commit < cut.lsn]
        everything = replace(layout, spans=tuple(replace(s, saw=(), log_index=1 << 60) for s in layout.spans))
        expected = read(everything, key, cut.rows, [])  # the cut's rows, restricted to the covered spans
        assert read(layout, key, base, seen_at_cut) == expected, f"seed {seed}"
    assert len(log) > 100 and layout.complete
