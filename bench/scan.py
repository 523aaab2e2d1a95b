"""Scan into the base against Spark JDBC → Delta and against COPY with its output discarded: one run, alternating order.

    .venv/bin/python bench/scan.py [--rows N] [--rounds N] [--jdbc-jar FILE]

A table of seven columns on an embedded PostgreSQL 18. Headwater: planning, scans as Spark tasks (as many at once as
there are cores, as the server runs them) and the Delta commits, into an existing base. Spark JDBC: six partitions of
the key, fetch size 10,000, appended to such a table. COPY: `psql` reads the binary form and discards it. Prints rows
per second, medians over the rounds, the ratios, and the peak memory of a Python worker.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import psutil
from pyspark import cloudpickle
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from headwater import stored
from headwater.backfill.plan import Plan
from headwater.backfill.plan import spans as spans_of
from headwater.backfill.read_span import ScanJob, scan_span
from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.spark import jobs, machine
from headwater.engine.spark import session as spark
from headwater.engine.spark.task import run_task
from headwater.model import RelationInfo, ScanResult, Span, TableOrigin, TableState
from headwater.relation import base
from headwater.settings.table import Settings
from headwater.storage import LocalStorage
from support.backfill import bench

TABLE = """CREATE TABLE load (id bigint PRIMARY KEY, customer int, ordered timestamptz, amount numeric(12,2),
status smallint, note text, paid boolean)"""
FILL = """INSERT INTO load SELECT g, g % 1000, '2024-01-01'::timestamptz + g * interval '1 s', g % 100000 / 100.0,
g % 5, 'order number ' || g, g % 2 = 0 FROM generate_series(1, {}) g"""
PARTITIONS = 6
DRIVER = "org.postgresql_postgresql-42.7.7.jar"
CLASS_PATH = "spark.driver.extraClassPath"


@dataclasses.dataclass
class Race:
    """What all contestants share: a scan of the whole table, and how JDBC reaches it (None: no driver was found)."""

    job: ScanJob
    session: SparkSession
    home: Path
    rows: int
    jdbc: dict[str, str] | None
    worker_bytes: int = 0

    def new_base(self, name: str) -> RelationInfo:
        table = self.job.table
        relation = RelationInfo(
            id=1,
            name=name,
            origin=TableOrigin(1, table.schema, table.name, table.upstream_id),
            columns=table.columns,
            key=table.key,
            options={},
            state=TableState.FILLING,
            error=None,
            base_path=name,
            base_version=-1,  # not created yet
        )
        base.create(LocalStorage(self.home), relation)
        return relation


Contestants = dict[str, Callable[[Race, RelationInfo], None]]


class Task:
    """A scan as it travels to a worker; also returns the worker's memory."""

    def __init__(self, job: ScanJob) -> None:
        self.job = job

    def __call__(self) -> str:
        result = scan_span(self.job)
        return f"{psutil.Process().memory_info().rss}\n{stored.dump(result)}"


def headwater(race: Race, relation: RelationInfo) -> None:
    """Plans, scans and commits the table as the server does."""
    storage = LocalStorage(race.home)
    job = dataclasses.replace(race.job, storage=LocalStorage(race.home), base_path=relation.base_path)
    plan = Plan.of(job.reach.read_extent(job.table), ("BIGINT",))
    commits = 0

    def scan(span: Span) -> list[ScanResult]:
        memory, text = run_task(race.session, "scans", Task(dataclasses.replace(job, span=span))).split("\n", 1)
        race.worker_bytes = max(race.worker_bytes, int(memory))
        result = stored.scan_result(text)
        rest = [] if result.stopped_at is None else scan(Span(result.stopped_at, span.hi))
        return [result, *rest]

    with job.reach.walk(job.table) as walk, ThreadPoolExecutor(max(1, jobs.share(race.session) // 2)) as pool:
        running = [pool.submit(scan, span) for span in spans_of(plan, walk.next_bound)]
        for done in as_completed(running):
            for result in done.result():
                commits += 1
                base.add_files(storage, relation.base_path, result.files, "bench", commits)


def jdbc(race: Race, relation: RelationInfo) -> None:
    """What a Spark user would write."""
    assert race.jdbc is not None
    frame = (
        race.session.read.format("jdbc")
        .options(dbtable=race.job.table.name, fetchsize="10000", **race.jdbc)
        .options(partitionColumn="id", lowerBound="1", upperBound=str(race.rows), numPartitions=str(PARTITIONS))
        .load()
    )
    frame.write.format("delta").mode("append").save(str(race.home / relation.base_path))


def copy(server: EmbeddedPostgres) -> None:
    """The server's own limit: one stream, discarded."""
    subprocess.run(
        [str(server.bin / "psql"), server.dsn(), "-qc", "COPY load TO STDOUT (FORMAT binary)"],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PGOPTIONS": ""},
    )


def run(race: Race, rounds: int, limits: Contestants) -> dict[str, list[float]]:
    """Seconds per contestant and round; the order rotates every round, and a first round is not counted.

    `limits` are readers that write nothing; Headwater and JDBC are always included.
    """
    contestants: Contestants = {"headwater": headwater, **({"jdbc": jdbc} if race.jdbc else {}), **limits}
    names = list(contestants)
    seconds: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            relation = race.new_base(f"{name}-{number}")
            began = time.monotonic()
            contestants[name](race, relation)
            if number:
                seconds[name].append(time.monotonic() - began)
            if name not in limits:
                count = race.session.read.format("delta").load(str(race.home / relation.base_path)).count()
                assert count == race.rows, f"{name} read {count} of {race.rows} rows"
            LocalStorage(race.home).remove_folder(relation.base_path)
    return seconds


def report(race: Race, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """The figures of a run by name."""
    rate = {n: race.rows / statistics.median(s) for n, s in seconds.items()}
    for name, value in rate.items():
        print(f"{name:10} {value / 1000:8.0f} k rows/s   {', '.join(f'{s:.1f} s' for s in seconds[name])}")
    ratios = {n: rate["headwater"] / rate[n] for n in rate if n != "headwater"}
    for name, ratio in ratios.items():
        print(f"headwater / {name}: {ratio:.2f}")
    print(f"largest memory of a Python worker: {race.worker_bytes >> 20} MB")
    return {"rate": rate, "ratio": ratios, "worker_bytes": race.worker_bytes}


def find_driver(given: str | None, name: str = DRIVER) -> Path | None:
    """The JDBC driver: the given one, or where `make setup-bench` puts it; without one JDBC is skipped."""
    folders = (machine.jars_directory().parent / "bench", machine.jars_directory())
    paths = [Path(given)] if given else [folder / name for folder in folders]
    found = next((p for p in paths if p.exists()), None)
    if found is None:
        print("no JDBC driver found: run `make setup-bench`, or give --jdbc-jar", file=sys.stderr)
    return found


def start_spark(home: Path, driver: Path | None) -> SparkSession:
    """A session that has the driver, with workers that do not need this file."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    path = [*machine.jars(), *([str(driver)] if driver is not None else [])]
    return spark.start(home, Settings(spark_conf={CLASS_PATH: ":".join(path)}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jdbc-jar")
    arguments = parser.parse_args()
    driver = find_driver(arguments.jdbc_jar)
    with EmbeddedPostgres(18) as server, tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        server.execute(TABLE)
        server.execute(FILL.format(arguments.rows))
        server.execute("VACUUM ANALYZE load")
        home = Path(folder)
        reached = {
            "url": f"jdbc:postgresql://{server.host}:{server.port}/{server.database}",
            "driver": "org.postgresql.Driver",
            "user": server.user,
            "password": server.password,
        }
        session = start_spark(home, driver)
        try:
            job = bench(_Database(server), home, "load").job(Span(None, None))
            race = Race(job, session, home, arguments.rows, reached if driver else None)
            report(race, run(race, arguments.rounds, {"copy": lambda _, __: copy(server)}))
        finally:
            session.stop()


class _Database:
    """The server's own database in the form of the tests' fixture."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server, self.name = server, server.database


if __name__ == "__main__":
    main()
