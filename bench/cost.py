"""CPU-seconds per million changes (capture, epochs, runs, folds) on a table of 0.3 M and of 3 M rows.

    .venv/bin/python bench/cost.py [--changes N] [--rows N N]

Both tables get the same changes, in turn; the cost per change must not grow with the table's size.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

import headwater
from headwater.demo.embedded import EmbeddedPostgres
from headwater.source.postgres.client.session import lsn_to_int

COLUMNS = (
    "id int PRIMARY KEY, customer int, amount numeric(12,2), status smallint, note text, paid boolean, at timestamptz"
)
PER_TRANSACTION = 1000


def cpu_seconds() -> float:
    """CPU time of this process, its captures, its JVM and their workers."""
    me = psutil.Process()
    total = 0.0
    for p in [me, *me.children(recursive=True)]:
        try:
            if "postgres" in p.name():
                continue
            t = p.cpu_times()
            total += t.user + t.system
        except psutil.NoSuchProcess:
            continue
    return total


def measure(rows: int, changes: int) -> float:
    """CPU-seconds per million changes on a table of this many rows."""
    home = tempfile.TemporaryDirectory(prefix="headwater-bench-")
    with home, EmbeddedPostgres(18, database="bench") as pg, headwater.open(Path(home.name)) as hw, hw.running():
        pg.execute(f"CREATE TABLE load ({COLUMNS})")
        pg.execute(
            "INSERT INTO load SELECT i, i % 1000, i / 100.0, i % 5, 'note ' || i, i % 2 = 0, now() "
            f"FROM generate_series(1, {rows}) i"
        )
        hw.sql(
            f"CREATE CONNECTION pg WITH (type='postgres-cdc', hostname='{pg.host}', port='{pg.port}', "
            f"username='{pg.user}', password='{pg.password}', database.name='bench'); "
            "CREATE TABLE load FROM CONNECTION pg;"
        )
        while not all(t.state == "live" for t in hw.status().tables):
            time.sleep(0.1)
        hw.sql("FOLD TABLE load")
        before = cpu_seconds()
        with pg.connect() as c:
            for at in range(0, changes, PER_TRANSACTION):
                low = at * 7 % (rows - PER_TRANSACTION)
                c.execute(
                    "UPDATE load SET amount = amount + 1, note = 'again ' || id WHERE id BETWEEN %s AND %s",
                    (low + 1, low + PER_TRANSACTION),
                )
        target = lsn_to_int(pg.execute("SELECT pg_current_wal_insert_lsn()::text")[0][0])
        while lsn_to_int(hw.status().connections[0].position) < target:
            time.sleep(0.1)
        hw.sql("FOLD TABLE load")
        return (cpu_seconds() - before) * 1_000_000 / changes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, nargs=2, default=[300_000, 3_000_000])
    given = parser.parse_args()
    small, large = (measure(rows, given.changes) for rows in given.rows)
    print(
        f"CPU per 1 M changes: {small:.1f} s at {given.rows[0]:,} rows, {large:.1f} s at {given.rows[1]:,} rows, "
        f"ratio {large / small:.2f}"
    )
    print(json.dumps({"small_s": small, "large_s": large, "ratio": large / small}))


if __name__ == "__main__":
    sys.exit(main())
