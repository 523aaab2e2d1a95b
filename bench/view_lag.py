"""From COMMIT to visible in a view, alone and through a chain of three; and the freshness of tables beside ten views.

    .venv/bin/python bench/view_lag.py [--rows N] [--commits N] [--seconds N] [--rate N]

A commit changes 100 of 3 M order lines at a random moment. A SELECT sees a view at its newest version, so the change is
visible when a version is published whose epoch holds it; versions are polled every 5 ms. Then, as `bench/freshness.py`
does, the freshness of a table at 2,000 changes per second, first without views, then with ten views over it that are
refreshed all the time.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time

from freshness import DDL, measure
from headwater.demo.embedded import EmbeddedPostgres
from headwater.meta import changes, epochs, views
from home import running, wait_live
from view_home import JOINED, Lab, lab

CHANGES = 100
CHAIN = (
    "SELECT order_id, line, supplier, price * (1 - discount) AS revenue FROM lines WHERE quantity > 0",
    "SELECT supplier, count(*) AS lines, sum(revenue) AS revenue FROM chain_0 GROUP BY supplier",
    "SELECT supplier % 64 AS region, count(*) AS n, sum(revenue) AS revenue FROM chain_1 GROUP BY supplier % 64",
)
BUSY = (
    "SELECT id, n * 2 AS double, upper(note) AS note FROM load WHERE n >= 0",
    "SELECT id % 100 AS k, count(*) AS rows, sum(n) AS total FROM load GROUP BY id % 100",
    "SELECT id % 1000 AS k, max(n) AS most, min(note) AS least FROM load GROUP BY id % 1000",
    "SELECT count(*) AS rows, sum(n) AS total FROM load",
    "SELECT a.id, a.n, b.note FROM load a JOIN load b ON a.id = b.id + 1",
)
TEN = 10


def lag(here: Lab, view: str, commits: int) -> list[float]:
    """Seconds from the return of a COMMIT with 100 changes to the first version of a view that holds it."""
    lines, own, meta = here.relation("lines"), here.relation(view), here.hw._home.meta
    found, source = [], random.Random(7)
    with here.pg.connect() as upstream:
        for i in range(-2, commits):  # two are not counted
            time.sleep(source.random())  # at any moment between two barriers
            with meta.read() as c:
                before = epochs.newest(c)
            assert before is not None
            first = 1 + (i + 2) * 1000
            made = upstream.execute(
                "UPDATE lines SET price = price + 1 WHERE line = 1 AND order_id BETWEEN %s AND %s",
                (first, first + CHANGES - 1),
            ).rowcount
            began, seen = time.monotonic(), 0
            while seen < made:
                time.sleep(0.005)
                with meta.read() as c:
                    epoch = epochs.get(c, views.last_version(c, own.id))
                    if epoch is not None and epoch.id > before.id:
                        seen = changes.count(c, lines, before.index_for(lines), epoch.index_for(lines))
            found += [time.monotonic() - began] if i >= 0 else []
    return found


def told(what: str, times: list[float], goal: float) -> dict[str, float]:
    p50, p90 = statistics.median(times), sorted(times)[int(len(times) * 0.9)]
    print(f"{what}: p50 {p50:.2f} s (<= {goal:g}), p90 {p90:.2f} s over {len(times)} commits", flush=True)
    return {"p50_s": p50, "p90_s": p90}


def lags(rows: int, commits: int) -> dict[str, dict[str, float]]:
    with lab(rows) as here:
        here.pg.execute("ALTER TABLE lines REPLICA IDENTITY FULL")
        here.hw.sql(f"CREATE MATERIALIZED VIEW alone AS {JOINED}")
        here.await_filled("alone")
        alone = told("commit to visible", lag(here, "alone", commits), 2.0)
        here.hw.sql("DROP MATERIALIZED VIEW alone")
        for i, query in enumerate(CHAIN):
            here.hw.sql(f"CREATE MATERIALIZED VIEW chain_{i} AS {query}")
        here.await_filled("chain_2")
        return {"alone": alone, "chain": told("through a chain of three", lag(here, "chain_2", commits), 4.0)}


def beside(seconds: float, rate: int) -> dict[str, dict[str, float]]:
    """The freshness of a table without views and beside ten of them."""
    with EmbeddedPostgres(18, database="bench") as pg, running(pg) as hw:
        pg.execute(DDL)
        hw.sql("CREATE TABLE load FROM CONNECTION pg; CREATE TABLE probe FROM CONNECTION pg;")
        wait_live(hw)
        idle = measure(pg, hw, seconds, rate)
        names = [f"busy_{i}" for i in range(TEN)]
        for i, name in enumerate(names):
            hw.sql(f"CREATE MATERIALIZED VIEW {name} AS {BUSY[i % len(BUSY)]}")
        Lab(pg, hw).await_filled(*names)
        busy = measure(pg, hw, seconds, rate)
        ratio = {k: busy[k] / idle[k] for k in ("p50_s", "p99_s")}
        print(f"beside ten views: p50 {ratio['p50_s']:.2f} x, p99 {ratio['p99_s']:.2f} x idle (<= 2)", flush=True)
        return {"idle": idle, "busy": busy, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=int, default=2000)
    given = parser.parse_args()
    print(json.dumps({**lags(given.rows, given.commits), **beside(given.seconds, given.rate)}))


if __name__ == "__main__":
    main()
