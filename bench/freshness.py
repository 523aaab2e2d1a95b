"""Freshness at 2,000 changes per second: from the return of COMMIT to the first SELECT that can see the row.

    .venv/bin/python bench/freshness.py [--seconds N] [--rate N] [--backfill ROWS]

With --backfill it is measured again, in the same run, while a table of this size is filled over and over.

A SELECT sees what the newest epoch holds when it starts, so the moment at which an epoch with the row is published is
the start of the first SELECT that sees it. The epochs are polled every 5 ms; a real SELECT checks the last row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import headwater
from headwater.changelog.reader import read_table
from headwater.demo.embedded import EmbeddedPostgres
from headwater.meta import epochs, relations, segments

DDL = """CREATE TABLE load (id int PRIMARY KEY, n int, note text); INSERT INTO load SELECT i, 0, 'note ' || i FROM
generate_series(1, 100000) i; CREATE TABLE probe (id int PRIMARY KEY)"""
PER_TRANSACTION = 20
END = 1 << 62


def load(pg: EmbeddedPostgres, rate: int, stop: threading.Event, made: list[int]) -> None:
    """Updates rows at a rate, in small transactions."""
    with pg.connect() as c:
        began, at = time.monotonic(), 0
        while not stop.is_set():
            low = at * PER_TRANSACTION % 99_000
            c.execute("UPDATE load SET n = n + 1 WHERE id BETWEEN %s AND %s", (low + 1, low + PER_TRANSACTION))
            at += 1
            made[0] = at * PER_TRANSACTION
            stop.wait(max(0.0, began + made[0] / rate - time.monotonic()))


def watch(hw: Any, stop: threading.Event, seen: list[tuple[float, int]]) -> None:
    """Records when each epoch appeared."""
    last = -1
    while not stop.is_set():
        with hw._home.meta.read() as c:
            newest = epochs.newest(c)
        now = time.monotonic()
        index = newest.entries[0].index if newest and newest.entries else 0
        if index > last:
            seen.append((now, index))
            last = index
        stop.wait(0.005)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--backfill", type=int, default=1_000_000)
    given = parser.parse_args()
    home = tempfile.TemporaryDirectory(prefix="headwater-bench-")
    with home, EmbeddedPostgres(18, database="bench") as pg, headwater.open(Path(home.name)) as hw, hw.running():
        pg.execute(DDL)
        hw.sql(
            f"CREATE CONNECTION pg WITH (type='postgres-cdc', hostname='{pg.host}', port='{pg.port}', "
            f"username='{pg.user}', password='{pg.password}', database.name='bench'); "
            "CREATE TABLE load FROM CONNECTION pg; CREATE TABLE probe FROM CONNECTION pg;"
        )
        while not all(t.state == "live" for t in hw.status().tables):
            time.sleep(0.1)
        quiet = measure(pg, hw, given.seconds, given.rate)
        report = {"idle": quiet}
        if given.backfill:
            pg.execute(
                f"CREATE TABLE history AS SELECT i AS id, md5(i::text) AS t FROM generate_series(1, {given.backfill}) i"
            )
            pg.execute("ALTER TABLE history ADD PRIMARY KEY (id)")
            catch_up(pg, hw)  # what the upstream has just written there is not the backfill's fault
            done = threading.Event()
            filling = threading.Thread(target=fill_again, args=(hw, done))
            filling.start()
            report["backfill"] = measure(pg, hw, given.seconds, given.rate)
            done.set()
            filling.join()
            report["ratio"] = {k: report["backfill"][k] / quiet[k] for k in ("p50_s", "p99_s")}
    print(json.dumps(report))


def catch_up(pg: EmbeddedPostgres, hw: Any) -> None:
    """Waits until the changelog has caught up with the upstream."""
    ((goal,),) = pg.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    while True:
        pg.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
        at = hw.status().connections[0].position
        ((reached,),) = pg.execute(f"SELECT '{at}'::pg_lsn - '0/0'::pg_lsn")
        if reached >= goal:
            return
        time.sleep(0.2)


def fill_again(hw: Any, done: threading.Event) -> None:
    """Fills the table over and over."""
    while not done.is_set():
        hw.sql("CREATE TABLE history FROM CONNECTION pg;")
        while not done.is_set() and not all(t.state == "live" for t in hw.status().tables):
            time.sleep(0.05)
        hw.sql("DROP TABLE history;")


def measure(pg: EmbeddedPostgres, hw: Any, seconds: float, rate: int) -> dict[str, float]:
    """Freshness under load."""
    stop, seen, made = threading.Event(), list[tuple[float, int]](), [0]
    threads = [
        threading.Thread(target=load, args=(pg, rate, stop, made)),
        threading.Thread(target=watch, args=(hw, stop, seen)),
    ]
    for t in threads:
        t.start()
    commits = []
    began = time.monotonic()
    with pg.connect() as c:
        ((first,),) = c.execute("SELECT count(*)::int FROM probe").fetchall()
        while time.monotonic() - began < seconds:
            c.execute("INSERT INTO probe VALUES (%s)", (first + len(commits),))
            commits.append(time.monotonic())
            stop.wait(0.1)
    last = first + len(commits) - 1
    while hw.sql(f"SELECT count(*) FROM probe WHERE id = {last}")[0].rows.column(0)[0].as_py() == 0:
        pass
    stop.set()
    for t in threads:
        t.join()
    changes = made[0] / (time.monotonic() - began)
    lags = _lags(hw, commits, seen)
    p50, p99 = statistics.median(lags), sorted(lags)[int(len(lags) * 0.99)]
    print(f"freshness at {changes:,.0f} changes/s: p50 {p50:.3f} s, p99 {p99:.3f} s over {len(lags)} rows", flush=True)
    return {"p50_s": p50, "p99_s": p99, "changes_per_s": changes, "rows": len(lags)}


def _lags(hw: Any, commits: list[float], seen: list[tuple[float, int]]) -> list[float]:
    """For each probe the time from its COMMIT to the first epoch that holds its index."""
    meta, storage = hw._home.meta, hw._home.storage
    with meta.read() as c:
        probe = relations.find(c, "probe")
        assert probe is not None
        pieces = segments.of_table(c, probe.origin.connection_id, probe.origin.upstream_id, 0, END)
    raw = read_table(storage, pieces, 0, END)
    indexes = raw["index"].to_pylist()[-len(commits) :]
    lags = []
    for at, index in zip(commits, indexes, strict=True):
        lags.append(next(t for t, i in seen if i >= index) - at)
    return lags


if __name__ == "__main__":
    sys.exit(main())
