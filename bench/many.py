"""Many small tables: the time to fill them, and a query over all of them without a server, cold and warm.

    .venv/bin/python bench/many.py [--tables N] [--rows N]

Filled by a server from an embedded PostgreSQL 18: from the definitions until the last table is live, without Spark's
own start. Then, without a server, in a new process, `count(*)` over the UNION ALL of all tables: the first
time (without Spark's start) and the median of three more.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import headwater
from headwater.demo.embedded import EmbeddedPostgres
from home import connection, wait_live


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--read", metavar="HOME", help="only the query, on this home")
    arguments = parser.parse_args()
    if arguments.read:
        read(Path(arguments.read), arguments.tables, arguments.rows)
        return
    with TemporaryDirectory(prefix="headwater-bench-") as folder, EmbeddedPostgres(18) as pg:
        fill(pg, Path(folder), arguments.tables, arguments.rows)
        again = [*(sys.executable, __file__, "--read", folder), *("--tables", str(arguments.tables))]
        subprocess.run([*again, "--rows", str(arguments.rows)], check=True)


def fill(pg: EmbeddedPostgres, home: Path, tables: int, rows: int) -> None:
    with pg.connect() as c:
        for i in range(tables):
            c.execute(f"CREATE TABLE t{i} (id int PRIMARY KEY, n int, note text)")
            c.execute(f"INSERT INTO t{i} SELECT g, g % 7, 'row ' || g FROM generate_series(1, {rows}) g")
    with headwater.open(home) as hw, hw.running():
        hw.sql("SELECT 1")  # Spark has started
        hw.sql(connection(pg))
        began = time.monotonic()
        hw.sql("".join(f"CREATE TABLE t{i} FROM CONNECTION pg;\n" for i in range(tables)))
        defined = time.monotonic() - began
        wait_live(hw)
        live = time.monotonic() - began
        print(f"{tables} tables of {rows} rows: defined after {defined:.1f} s, live after {live:.1f} s")


def read(home: Path, tables: int, rows: int) -> None:
    every = " UNION ALL ".join(f"SELECT count(*) AS n FROM t{i}" for i in range(tables))
    times = []
    with headwater.open(home) as hw:
        hw.sql("SELECT 1")
        for _ in range(4):
            began = time.monotonic()
            (result,) = hw.sql(f"SELECT sum(n) AS n FROM ({every})")
            times.append(time.monotonic() - began)
            assert result.rows.to_pylist() == [{"n": tables * rows}]
    print(f"a query over all of them: {times[0]:.1f} s cold, {statistics.median(times[1:]):.1f} s warm")


if __name__ == "__main__":
    main()
