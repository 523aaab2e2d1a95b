"""Recovery from kill -9: until a change made at the kill is in an epoch, and until a backfill resumes.

    .venv/bin/python bench/recovery.py [--rounds N] [--rows N]

The server is a separate process; it is killed in the middle of a backfill and restarted immediately. Compared with the
start of a server that ended cleanly.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.home import Home
from headwater.meta import epochs, relations, spans
from home import FILL, TABLE, connection
from support.lake import Lake, wait_for

LIMIT = "backfill.rate_limit = 20000"


def index(home: Home) -> int:
    with home.meta.read() as c:
        newest = epochs.newest(c)
        return newest.entries[0].index if newest and newest.entries else 0


def rows(home: Home) -> int:
    with home.meta.read() as c:
        relation = relations.find(c, "load")
        return spans.rows(c, relation.id) if relation else 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--rows", type=int, default=3_000_000, help="more than are read, at 20,000 a second, in all rounds"
    )
    given = parser.parse_args()
    took: dict[str, list[float]] = {
        n: [] for n in ("killed: epoch", "killed: backfill", "stopped: epoch", "stopped: backfill")
    }
    with EmbeddedPostgres(18, database="bench") as pg, tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        pg.execute(TABLE)
        pg.execute(FILL.format(given.rows))
        pg.execute("CREATE TABLE probe (id serial PRIMARY KEY)")
        text = (
            connection(pg)
            + f"CREATE TABLE probe FROM CONNECTION pg; CREATE TABLE load FROM CONNECTION pg WITH ({LIMIT});"
        )
        lake = Lake(Path(folder) / "home", text)
        lake.start()
        home = None
        try:
            wait_for(lambda: len(lake.status().tables) == 2, "both tables are defined")
            home = Home.open(lake.home)
            for number in range(2 * given.rounds):
                how = "killed" if number % 2 else "stopped"
                before = rows(home)
                wait_for(lambda: rows(home) > before, "the backfill continues")  # noqa: B023
                if how == "killed":
                    lake.kill()
                else:
                    lake.stop()
                at, read, began = index(home), rows(home), time.monotonic()
                pg.execute("INSERT INTO probe DEFAULT VALUES")
                lake.start()
                missing = {f"{how}: epoch": lambda: index(home) > at, f"{how}: backfill": lambda: rows(home) > read}  # noqa: B023
                while missing:
                    for name in [n for n, there in missing.items() if there()]:
                        took[name].append(time.monotonic() - began)
                        del missing[name]
                    time.sleep(0.02)
        finally:
            if home is not None:
                home.meta.close()
            if lake.process is not None and lake.process.poll() is None:
                lake.kill()
    for name, seconds in took.items():
        print(f"{name:18} {statistics.median(seconds):.1f} s   ({', '.join(f'{s:.1f}' for s in seconds)})")
    print(json.dumps({n: statistics.median(s) for n, s in took.items()}))


if __name__ == "__main__":
    sys.exit(main())
