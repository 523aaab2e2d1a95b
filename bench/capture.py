"""Capture against `pg_recvlogical -f /dev/null`, the same log, alternating order, in one run.

    .venv/bin/python bench/capture.py [--rows N] [--rounds N] [--one-transaction]

Each round fills a table of seven columns with N rows in transactions of 1,000 (or in one), then both readers drain that
part of the log through their own slots. Prints rows per second, the ratio and the capture's peak memory.
Our clock runs from START_REPLICATION until the last row is durable and published; pg_recvlogical's also includes its
connect (some 30 ms), but it writes nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from headwater.demo.embedded import EmbeddedPostgres
from headwater.source.postgres.client.session import lsn_to_int
from support.capture import PUBLICATION, Captured, Upstream

TABLE = """CREATE TABLE load (id bigint PRIMARY KEY, customer int, ordered timestamptz, amount numeric(12,2),
status smallint, note text, paid boolean)"""
FILL = """INSERT INTO load SELECT g, g % 1000, now(), g % 100000 / 100.0, g % 5, 'order number ' || g, g % 2 = 0
FROM generate_series({0}, {1}) g"""


def fill(upstream: Upstream, first: int, rows: int, per_transaction: int) -> str:
    """Writes rows; returns the log's end after them."""
    with upstream.connect() as c:
        c.execute("SET synchronous_commit = off")
        for at in range(first, first + rows, per_transaction):
            c.execute(FILL.format(at, min(at + per_transaction, first + rows) - 1))
        c.execute("SET synchronous_commit = on")
        c.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
    return upstream.position()


def recvlogical(pg: EmbeddedPostgres, database: str, slot: str, end: str) -> float:
    """Seconds that pg_recvlogical needs to reach `end`."""
    command = [
        *(str(pg.bin / "pg_recvlogical"), "-d", pg.dsn(database), "-S", slot, "--start", "-f", "/dev/null", "-n"),
        *("-E", end, "-F", "1", "-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"),
    ]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - began


def capture(c: Captured, end: str) -> tuple[float, float, int, float]:
    """Seconds from the first connect to the published end, the same with process start, peak RSS, CPU seconds."""
    began = time.monotonic()
    flows = c.log().count("reading pg after") if (c.home.path / "capture.log").exists() else 0
    process = psutil.Process(c.start().pid)
    connected, largest = 0.0, 0
    while lsn_to_int(c.info().position) < lsn_to_int(end):
        if not connected and c.log().count("reading pg after") > flows:
            connected = time.monotonic()
        largest = max(largest, process.memory_info().rss)
        time.sleep(0.01)
    ended = time.monotonic()
    cpu = sum(process.cpu_times()[:2])
    c.close()
    return ended - (connected or began), ended - began, largest, cpu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--one-transaction", action="store_true")
    arguments = parser.parse_args()
    rows, ratios = arguments.rows, []
    with EmbeddedPostgres(18, database="bench") as pg, tempfile.TemporaryDirectory() as home:
        upstream = Upstream.prepare(pg.dsn())
        upstream.execute(TABLE)
        c = Captured.define(Path(home), upstream)
        print(f"{'round':>5} {'pg_recvlogical':>15} {'capture':>15} {'ratio':>6} {'capture RSS':>12} {'CPU s':>6}")
        for number in range(arguments.rounds):
            end = fill(upstream, number * rows + 1, rows, rows if arguments.one_transaction else 1000)
            os.sync()
            if number % 2:
                ours = capture(c, end)
                theirs = recvlogical(pg, "bench", upstream.oracle_slot, end)
            else:
                theirs = recvlogical(pg, "bench", upstream.oracle_slot, end)
                ours = capture(c, end)
            ratios.append(theirs / ours[0])
            print(
                f"{number + 1:>5} {rows / theirs:>12,.0f}/s {rows / ours[0]:>13,.0f}/s {ratios[-1]:>6.2f}"
                f" {ours[2] / 1e6:>9,.0f} MB {ours[3]:>6.1f}",
                flush=True,
            )
        assert c.info().committed_index == rows * arguments.rounds
        c.home.meta.close()
    print(f"capture / pg_recvlogical, median of {len(ratios)}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
