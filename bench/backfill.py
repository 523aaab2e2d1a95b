"""Backfill through a running server with 1, 2 and 4 concurrent scans: CREATE TABLE to live, rows per second.

    .venv/bin/python bench/backfill.py [--rows N] [--rounds N]

Includes planning, scans, commits and covering epochs; the order rotates every round, and a first one is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys

from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.spark.conf import share_of
from headwater.settings.table import DEFAULTS
from home import FILL, TABLE, running, wait_live

SCANS = (1, 2, 4)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    seconds: dict[int, list[float]] = {n: [] for n in SCANS}
    with EmbeddedPostgres(18, database="bench") as pg:
        pg.execute(TABLE)
        pg.execute(FILL.format(given.rows))
        pg.execute("VACUUM ANALYZE load")
        with running(pg) as hw:
            for number in range(given.rounds + 1):
                turn = number % len(SCANS)
                for scans in SCANS[turn:] + SCANS[:turn]:
                    hw.sql(f"CREATE TABLE load FROM CONNECTION pg WITH (backfill.parallelism = {scans});")
                    took = wait_live(hw)
                    if number:
                        seconds[scans].append(took)
                    hw.sql("DROP TABLE load;")
    rate = {n: given.rows / statistics.median(s) for n, s in seconds.items()}
    for n, value in rate.items():
        print(f"{n} scans: {value / 1000:,.0f} k rows/s   {', '.join(f'{s:.1f} s' for s in seconds[n])}")
    print(f"at most {(share_of(DEFAULTS) or 2) // 2} scans at once")
    print(json.dumps({"rows_per_s": rate, "ratio_2": rate[2] / rate[1], "ratio_4": rate[4] / rate[1]}))


if __name__ == "__main__":
    sys.exit(main())
