"""Spans scanned under live writers, plus what counts of the log, equal the upstream at exact cuts. No Spark.

The log is read by the server's own SQL functions and taken apart here, so nothing of the capture or the decoders is
shared with what is being tested; a cut is a slot's exported snapshot and its consistent point.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg

from headwater.backfill.read_span import scan_span
from headwater.model import CoveredSpan, Layout, ScanResult, Span
from headwater.source.postgres.client.session import lsn_to_int
from support.backfill import Bench, bench
from support.history import Key, read
from support.naive import KEYS, Writers, changes_of, keep_history
from support.upstreams import new_seed


@dataclass(frozen=True)
class Cut:
    """All commits below `lsn`, and the rows that they left."""

    lsn: int
    rows: dict[Key, int]


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
            result = scan_span(table.job(span, **({"scan_s": 0.0, "batch_bytes": 200} if hasty else {})))
            with lock:
                if result.stopped_at is not None:
                    waiting.insert(0, Span(result.stopped_at, span.hi))
                    span = Span(span.lo, result.stopped_at)
                done.append((span, result))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not waiting
    return done


def test_covered_spans_and_what_counts_are_the_upstream_at_every_cut(database: Any, tmp_path: Path) -> None:
    seed = new_seed()
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute(f"INSERT INTO t SELECT i, i FROM generate_series(0, {KEYS - 1}, 2) i")
    keep_history(database)
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
