"""Scale: ten thousand spans through a real server, and a span of millions of wide rows in one go. Minutes: `make soak`.

HEADWATER_SCALE_ROWS, HEADWATER_SCALE_SPANS, HEADWATER_SCALE_WIDE_ROWS and HEADWATER_SCALE_CHANGES make runs smaller.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from headwater.backfill.read_span import ScanJob, scan_span
from headwater.demo.embedded import EmbeddedPostgres
from headwater.meta import relations, spans
from headwater.meta.store import Meta
from headwater.model import Bound, Span
from support.backfill import bench
from support.lake import ROWS_PER_SPAN, Lake, assert_equal, definitions
from support.wait import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.soak, pytest.mark.timeout(7200)]

ROWS = int(os.environ.get("HEADWATER_SCALE_ROWS", "10000000"))
SPANS = int(os.environ.get("HEADWATER_SCALE_SPANS", "10000"))
WIDE_ROWS = int(os.environ.get("HEADWATER_SCALE_WIDE_ROWS", "5000000"))
CHANGES = int(os.environ.get("HEADWATER_SCALE_CHANGES", "20000000"))
MB = 1 << 20
BACKLOG_SERVER_MB = 1000  # whatever the size of a transaction or a backlog
JVM_MB = 3 << 10  # its heap is 2 GB by default; code, threads and buffers come on top
SERVER_MB = 1200  # the server's own process, without the JVM
WORKER_MB = 700
META_MB = 200  # while thousands of spans wait to be settled
SETTLED_META_SPANS = 4
# A span, whatever its size: a row group, a batch of the driver, and what Python, Arrow and the kernels need.
SCAN_MB = 700
SCAN_GROWTH_MB = 150


@dataclass
class Gauge:
    """The largest memory of each kind of process of a server, and of meta, seen so far."""

    lake: Lake
    peak_mb: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        assert self.lake.process is not None
        for process in self._processes():
            try:
                command, rss = " ".join(process.cmdline()), process.memory_info().rss
            except psutil.Error:
                continue  # it ended meanwhile
            self._note(_kind(command), rss)
        self._note("meta", self.meta_bytes())

    def meta_bytes(self) -> int:
        return sum(f.stat().st_size for f in self.lake.home.glob("meta.db*"))

    def _processes(self) -> list[psutil.Process]:
        assert self.lake.process is not None
        try:
            server = psutil.Process(self.lake.process.pid)
            return [server, *server.children(recursive=True)]
        except psutil.Error:
            return []

    def _note(self, kind: str, size: int) -> None:
        self.peak_mb[kind] = max(self.peak_mb.get(kind, 0), size // MB)


def _kind(command: str) -> str:
    names = {"java": "jvm", "headwater.capture.process": "capture", "headwater.engine.spark.workers": "worker"}
    return next((kind for name, kind in names.items() if name in command), "server")


@contextmanager
def repeated(work: Callable[[], object], every_s: float) -> Iterator[None]:
    """Does something again and again, beside the block; what it raises fails the block."""
    done, failures = threading.Event(), []

    def run() -> None:
        try:
            while not done.wait(every_s):
                work()
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)
    assert not failures, failures


@pytest.fixture
def upstream() -> Iterator[Any]:
    """A server of its own, which need not survive anything."""
    with EmbeddedPostgres(18, {"fsync": "off", "max_wal_size": "20GB", "shared_buffers": "512MB"}) as server:
        yield SimpleNamespace(server=server, name="postgres", execute=server.execute, connect=server.connect)


@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "changing"])
def test_many_rows_in_many_spans(busy: bool, upstream: Any, tmp_path: Path) -> None:
    rows = ROWS // 10 if busy else ROWS
    parts = SPANS // 10 if busy else SPANS
    upstream.execute("CREATE TABLE big (id bigint PRIMARY KEY, n int, t text)")
    upstream.execute(f"INSERT INTO big SELECT i * 3, i % 1000, md5(i::text) FROM generate_series(1, {rows}) i")
    upstream.execute("ANALYZE big")
    text = definitions(upstream, ["big"]).replace(
        f"rows_per_span = {ROWS_PER_SPAN}", f"rows_per_span = {rows // parts}"
    )
    lake = Lake(tmp_path / "home", text)
    gauge, began = Gauge(lake), time.monotonic()
    lake.start(HEADWATER_TAIL_CHANGES="50000", HEADWATER_SLICE_CHANGES="500000")
    try:
        lake.remote()
        started = time.monotonic()
        with upstream.connect() as writer, repeated(gauge.look, 0.5), repeated(changes(writer, rows, busy), 0.05):
            lake.wait_live(timeout_s=5400)
            live = time.monotonic()
            (status,) = lake.status().tables
            assert status.scanned_rows >= rows * 0.9
        assert_equal(lake.verify("big"))
        verified = time.monotonic()
        left = settled_spans(lake.home)
        print(
            f"\n{rows} rows in {parts} spans: start {started - began:.0f} s, live after {live - started:.0f} s more "
            f"({rows / (live - started):.0f} rows/s), verified in {verified - live:.0f} s; "
            f"peak MB {gauge.peak_mb}, meta {gauge.meta_bytes() // MB} MB and {left} spans at the end"
        )
        assert gauge.peak_mb["server"] < SERVER_MB and gauge.peak_mb["worker"] < WORKER_MB
        assert gauge.peak_mb["meta"] < META_MB
    finally:
        lake.stop()


class Marked:
    """A table that is changed by numbered transactions, each of which writes its number into another table."""

    def __init__(self, upstream: Any, rows: int) -> None:
        self.upstream = upstream
        self.rows = rows
        upstream.execute("CREATE TABLE big (id bigint PRIMARY KEY, n int, t text)")
        upstream.execute("CREATE TABLE mark (id int PRIMARY KEY, k int)")
        upstream.execute("INSERT INTO mark VALUES (1, 0)")
        upstream.execute(f"INSERT INTO big SELECT i, 1, md5(i::text) FROM generate_series(1, {rows}) i")
        self.truth = {0: self.sums()}

    def sums(self) -> tuple[int, int, int]:
        ((count, total, ids),) = self.upstream.execute("SELECT count(*), sum(n), sum(id) FROM big")
        return int(count), int(total), int(ids)

    def change(self, k: int, changes: int) -> None:
        """One transaction: nine tenths inserts, the rest updates and deletes all over the table."""
        first = 1_000_000_000 + k * changes
        with self.upstream.connect() as c, c.transaction():
            c.execute(
                f"INSERT INTO big SELECT {first} + i, 2, md5(i::text) FROM generate_series(1, {changes * 9 // 10}) i"
            )
            c.execute(f"UPDATE big SET n = n + 1 WHERE id <= {min(self.rows, changes) // 10}")
            c.execute(f"DELETE FROM big WHERE id BETWEEN {first + 1} AND {first + changes // 100}")
            c.execute(f"UPDATE mark SET k = {k}")
        self.truth[k] = self.sums()

    def check(self, lake: Lake, seen: set[int]) -> None:
        """What a query shows is the upstream after one of the transactions, whole."""
        query = "SELECT (SELECT max(k) FROM mark) k, count(*) c, sum(n) n, sum(id) ids FROM big"
        (row,) = lake.remote().ask(query)[0].rows.to_pylist()
        assert (row["c"], row["n"], row["ids"]) == self.truth[row["k"]], row
        seen.add(row["k"])


@pytest.mark.parametrize("transactions", [1, 100], ids=["one transaction", "backlog"])
def test_millions_of_changes_take_bounded_memory_and_every_query_sees_whole_transactions(
    transactions: int, upstream: Any, tmp_path: Path
) -> None:
    table, seen = Marked(upstream, max(1000, CHANGES // 20)), set[int]()
    lake = Lake(tmp_path / "home", definitions(upstream, ["big", "mark"]).replace(f"= {ROWS_PER_SPAN}", "= 200000"))
    gauge = Gauge(lake)
    settings = {
        "HEADWATER_TAIL_CHANGES": "50000",
        "HEADWATER_SLICE_CHANGES": "500000",
        "HEADWATER_FOLD_CHANGES": str(CHANGES // 20),
    }
    lake.start(**settings)
    try:
        lake.wait_live(timeout_s=1800)
        if transactions > 1:
            lake.stop()  # a backlog comes while nobody follows
        began = time.monotonic()
        for k in range(1, transactions + 1):
            table.change(k, CHANGES // transactions)
        written = time.monotonic()
        if transactions > 1:
            lake.start(**settings)
        with repeated(gauge.look, 0.5), repeated(lambda: table.check(lake, seen), 0.5):
            wait_for(lambda: transactions in seen, "the last transaction is seen", 3600)
            caught_up = time.monotonic()
            wait_for(lambda: max(t.overlay for t in lake.status().tables) < CHANGES // 20, "it is folded", 3600)
        folded = time.monotonic()
        assert_equal(lake.verify())
        print(
            f"\n{CHANGES} changes in {transactions} transactions: written in {written - began:.0f} s, seen after "
            f"{caught_up - written:.0f} s more, folded {folded - caught_up:.0f} s later; states seen {len(seen)}; "
            f"peak MB {gauge.peak_mb}"
        )
        assert gauge.peak_mb["server"] < BACKLOG_SERVER_MB and gauge.peak_mb["jvm"] < JVM_MB
    finally:
        lake.stop()


def changes(writer: Any, rows: int, busy: bool) -> Callable[[], object]:
    """Some changes all over the table, or none."""
    where = f"WHERE id IN (SELECT 3 * (1 + (random() * {rows})::bigint) FROM generate_series(1, 5))"
    return (lambda: writer.execute(f"UPDATE big SET n = n + 1 {where}")) if busy else (lambda: None)


def settled_spans(home: Path) -> int:
    """How many spans meta is left with, once settled neighbours have been joined."""
    meta = Meta(f"sqlite:///{home / 'meta.db'}")

    def few() -> int:
        with meta.read() as c:
            (relation,) = relations.all(c)
            found = len(spans.all(c, relation.id))
        return found if found <= SETTLED_META_SPANS else 0

    try:
        return int(wait_for(few, "settled neighbours are joined", 300))
    finally:
        meta.close()


def _scan(job: ScanJob, answer: Connection) -> None:
    """In a process of its own, as a worker would: the rows read, and the most memory it ever had."""
    result = scan_span(job)
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    answer.send((result.rows, len(result.files), sum(f.bytes for f in result.files), peak))


def scan_alone(job: ScanJob) -> tuple[int, int, int, int]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_scan, args=(job, there))
    process.start()
    there.close()
    try:
        assert here.poll(3600), "the scan did not end"
        answer: tuple[int, int, int, int] = here.recv()
    finally:
        process.join(60)
    return answer


def test_memory_does_not_depend_on_the_size_of_a_span(upstream: Any, tmp_path: Path) -> None:
    """Millions of rows of 1 kB as one span, read without a stop."""
    upstream.execute("CREATE UNLOGGED TABLE wide (id int PRIMARY KEY, t text STORAGE PLAIN)")
    began = time.monotonic()
    upstream.execute(f"INSERT INTO wide SELECT i, repeat(md5(i::text), 31) FROM generate_series(1, {WIDE_ROWS}) i")
    filled = time.monotonic()
    table = bench(upstream, tmp_path, "wide")
    few = WIDE_ROWS // 25
    small = scan_alone(table.job(Span(None, Bound((str(few),))), scan_s=float("inf")))
    scanned = time.monotonic()
    large = scan_alone(table.job(Span(None, None), scan_s=float("inf")))
    took = time.monotonic() - scanned
    print(
        f"\n{WIDE_ROWS} rows of 1 kB: filled in {filled - began:.0f} s, scanned in {took:.0f} s "
        f"({WIDE_ROWS / took:.0f} rows/s) into {large[1]} files of {large[2] // MB} MB; "
        f"peak {large[3]} MB, and {small[3]} MB for {few} rows"
    )
    assert (small[0], large[0]) == (few, WIDE_ROWS)
    assert large[3] < SCAN_MB and large[3] - small[3] < SCAN_GROWTH_MB
