"""What scans and cuts of every upstream promise under load: they agree with the log, commit by commit."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE
from support import upstreams
from support.commit_log import REMOVE, CommitLog, after
from support.scanned import Bench
from support.upstreams import Upstream
from support.wait import wait_for

WRITERS = 5
TRIES = 12
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v int)"


@contextmanager
def writers(upstream: Upstream, log: CommitLog, seed: int) -> Iterator[None]:
    """Sessions that commit and roll back small transactions, as fast as they can, until the block ends."""
    stop, errors = threading.Event(), []

    def transaction(run: Callable[[str], object], number: int, pick: random.Random) -> None:
        run("BEGIN")
        for _ in range(pick.randint(1, 4)):
            # keys of its own: a row's history has one writer, the order among writers is the log's
            key = pick.randint(0, 200) * WRITERS + number
            run(log.put.format(key, pick.randint(0, 1 << 30)))
            if pick.random() < 0.3:
                run(REMOVE.format(pick.randint(0, 200) * WRITERS + number))
        run("ROLLBACK" if pick.random() < 0.1 else "COMMIT")

    def write(number: int) -> None:
        pick = random.Random(seed * WRITERS + number)
        try:
            with upstream.session() as run:
                run(log.session(number))
                while not stop.is_set():
                    try:
                        transaction(run, number, pick)
                    except upstream.errors as e:  # MySQL locks gaps between keys, too
                        if not upstream.is_deadlock(e):
                            raise
                        run("ROLLBACK")
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not errors


def at_cut(upstream: Upstream, table: Bench) -> tuple[int, dict[int, int]]:
    """The number of a cut's position, and the table's rows there."""
    with table.reach.cut(lambda _: None) as cut, cut.scan(table.table) as scan:
        assert scan is not None
        rows = {r["id"]: r["v"] for batch in scan.batches(WHOLE) for r in table.lake(batch)}
        return upstream.seam().number(cut.position), rows


def test_scans_and_cuts_agree_with_the_log_while_others_commit(upstream: Upstream, tmp_path: Path) -> None:
    seed = upstreams.new_seed()
    upstream.execute(TABLE)
    table, seam = upstream.bench(tmp_path, "t"), upstream.seam()
    scans, cuts = [], []
    log = upstream.commit_log()
    with writers(upstream, log, seed):
        wait_for(lambda: upstream.execute("SELECT count(*) FROM t")[0][0] > 20, "writers write", 30)
        for _ in range(TRIES):
            result = scan_span(table.job(WHOLE))
            scans.append((result, {r["id"]: r["v"] for r in table.rows(result)}))
            cuts.append(at_cut(upstream, table))
    commits = log.commits()
    assert len(commits) > TRIES and len({number for number, _ in cuts}) > 1
    for number, rows in cuts:
        assert after({}, [c for c in commits if c.end <= number]) == rows
    txns = np.array([c.txn for c in commits], np.int64)
    for result, rows in scans:
        seen = seam.sees(result.saw, txns)
        unseen = [c for c, was_seen in zip(commits, seen, strict=True) if not was_seen]
        if upstream.can.tell_exactly:
            assert after({}, [c for c, was_seen in zip(commits, seen, strict=True) if was_seen]) == rows
        high = seam.number(result.high)
        for upto in (high, commits[-1].end):  # from `high` on the scan may be shown
            there = [c for c in commits if c.end <= upto]
            assert after(rows, [c for c in unseen if c.end <= upto]) == after({}, there)


def test_a_cut_reads_the_table_again_and_again_at_one_moment(upstream: Upstream, tmp_path: Path) -> None:
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY, b text)")
    upstream.fill("t", 2000, "i, repeat('x', 2000)")
    table = upstream.bench(tmp_path, "t")
    with table.reach.cut(lambda _: None) as cut:
        upstream.execute("DELETE FROM t WHERE id > 10")
        for _ in range(2):
            with cut.scan(table.table) as scan:
                assert scan is not None
                next(scan.batches(WHOLE))
                scan.stop()
            with cut.scan(table.table) as scan:
                assert scan is not None and sum(b.num_rows for b in scan.batches(WHOLE)) == 2000


@upstreams.each(lambda kind: kind.replaced, "statement")
def test_a_table_that_was_rewritten_after_the_cut_cannot_be_read_there(
    upstream: Upstream, statement: str, tmp_path: Path
) -> None:
    """Hazard 32: the snapshot would read nothing, without an error."""
    for name in ("t", "other"):
        upstream.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)")
        upstream.fill(name, 5, "i, i")
    tables = [upstream.bench(tmp_path, name) for name in ("t", "other")]
    readable = []
    with tables[0].reach.cut(lambda _: None) as cut:
        upstream.execute(statement)
        for table in tables:
            with cut.scan(table.table) as scan:
                readable.append(scan is not None and sum(b.num_rows for b in scan.batches(WHOLE)) == 5)
    assert readable == [False, True]


@upstreams.over(where=lambda can: can.partition_files)
def test_a_partition_that_was_dropped_after_the_cut_is_noticed(upstream: Upstream, tmp_path: Path) -> None:
    for statement in upstream.partitions:
        upstream.execute(statement)
    table = upstream.bench(tmp_path, "t")
    with table.reach.cut(lambda _: None) as cut:
        with cut.scan(table.table) as scan:
            assert scan is not None
        upstream.execute("DROP TABLE t1")
        with cut.scan(table.table) as scan:
            assert scan is None


@upstreams.over(where=lambda can: can.cut_between_transactions)
def test_a_cut_waits_for_running_transactions_and_says_for_whom(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE t (id int)")
    seen: list[str] = []
    with upstream.database.connect(application_name="slow writer") as writer:
        writer.execute("BEGIN; INSERT INTO t VALUES (1)")

        def on_wait(who: str) -> None:
            seen.append(who)
            writer.execute("COMMIT")

        with upstream.seam().reach.cut(on_wait) as cut:
            assert cut.position
    assert any("slow writer" in s for s in seen)
