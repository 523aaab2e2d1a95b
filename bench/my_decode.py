"""Row changes of a binlog decoded per second: by a Spark job, and by one core without Spark.

    .venv/bin/python bench/my_decode.py [--server mysql|mariadb] [--rows N] [--rounds N]

N rows of seven columns are inserted in transactions of 1,000 and captured. The job reads and decodes the segments in as
many tasks as Spark has slots, each a range of changes; its workers are warm. It has no peer: the goal is a rate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from pyspark import cloudpickle

from headwater.changelog.reader import read_table
from headwater.decode.changes import decode_changes
from headwater.engine.spark import jobs
from headwater.engine.spark import session as spark
from headwater.engine.spark.task import run_task
from headwater.meta import segments
from headwater.model import Column, SchemaVersion
from headwater.model import Part as TablePart
from headwater.source.mysql.binlog.position import table_number
from headwater.storage import LocalStorage
from my_home import NAME, TABLE, Database, fill, servers
from my_log import Captures, Part, Upstream
from support.capture_mysql import log_end
from support.captured import Captured
from support.mysql_scan import bench


@dataclass(frozen=True)
class Task:
    """A range of a table's changes to read and decode; travels to a worker."""

    root: Path
    pieces: list[tuple[str, TablePart]]
    versions: dict[int, SchemaVersion]
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    after: int
    upto: int

    def __call__(self) -> str:
        raw = read_table(LocalStorage(self.root), self.pieces, self.after, self.upto)
        return str(decode_changes(raw, self.versions, self.columns, self.key).table.num_rows)


def capture(database: Database, home: Path, rows: int) -> Task:
    """Fills the table, captures it, and returns where the changes are."""
    database.execute(TABLE)
    begin = log_end(database)
    captured = Captured.define(home, Upstream(database, begin))
    fill(database, 1, rows)
    Captures(captured).read(Part(database, begin, log_end(database), rows, rows))
    table = bench(database, home, NAME).table
    id = table_number(database.name, NAME)
    with captured.home.meta.read() as c:
        pieces = segments.of_table(c, captured.id, id, 0, rows)
        versions = {v.id: v for v in segments.schemas(c, captured.id, id)}
    captured.home.meta.close()
    return Task(home, pieces, versions, table.columns, table.key, 0, rows)


def halves(whole: Task, count: int) -> list[Task]:
    """The same changes in `count` tasks."""
    ends = [whole.upto * i // count for i in range(count + 1)]
    return [replace(whole, after=a, upto=b) for a, b in pairwise(ends)]


def rate(rows: int, rounds: int, work: Callable[[], int]) -> float:
    """Row changes per second, the median of several rounds; a first one is not counted."""
    seconds = []
    for _ in range(rounds + 1):
        began = time.monotonic()
        assert work() == rows
        seconds.append(time.monotonic() - began)
    return rows / statistics.median(seconds[1:])


def main() -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not need this file
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    given, databases = servers(parser)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        tasks = {d.server.name: capture(d, Path(folder) / d.server.name, given.rows) for d in databases}
        session = spark.start(Path(folder))
        try:
            for name, whole in tasks.items():
                one = rate(given.rows, given.rounds, lambda whole=whole: int(whole()))  # type: ignore[misc]
                parts = halves(whole, jobs.share(session))

                def job(parts: list[Task] = parts) -> int:
                    with ThreadPoolExecutor(len(parts)) as pool:
                        return sum(int(n) for n in pool.map(lambda t: run_task(session, "scans", t), parts))

                in_spark = rate(given.rows, given.rounds, job)
                print(
                    f"{name}: {in_spark / 1e6:.2f} M/s in Spark ({len(parts)} tasks), {one / 1e6:.2f} M/s on one core"
                )
        finally:
            session.stop()


if __name__ == "__main__":
    main()
