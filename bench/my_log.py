"""Capture of a binlog against a raw socket read and against mysql-replication: one run, in turns.

    .venv/bin/python bench/my_log.py [--server mysql|mariadb] [--rows N] [--rounds N] [--per-transaction N]

Each round fills a table of seven columns with N rows in transactions of 1,000 (or of N rows); then every reader reads
that part of the binlog.

- capture: from the start of its dump until the last row is durable and published
- raw: the same dump, bytes discarded
- kept: the same dump, its bytes checksummed by zlib and written as they arrive, synced every 8 MB by another thread:
  the least that a durable reader must do, without inspecting an event
- mysql-replication: its stream reader, rows iterated; it is slow, so it stops after the first rows

Prints row changes per second, the ratios and the capture's peak memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import psutil
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from headwater.settings.table import DEFAULTS
from headwater.source.mysql.binlog.position import Position, table_number
from headwater.source.mysql.client.dump import Start, begin_dump
from my_home import NAME, TABLE, Database, discard, fill, servers
from support.capture_mysql import log_end
from support.captured import Captured, Definition

NAMES = ("capture", "raw", "kept", "mysql-replication")
SERVER_IDS = {name: 4_000_000_001 + i for i, name in enumerate(NAMES)}
LOOK_S = 0.002
SLOW_ROWS = 200_000  # that mysql-replication reads


@dataclass(frozen=True)
class Upstream:
    """The benchmark's database as `Captured` expects it."""

    database: Database
    began: Position

    def definition(self) -> Definition:
        name = self.database.name
        return Definition(
            type="mysql-cdc",
            options={**self.database.options, "server.id": str(SERVER_IDS["capture"])},
            secret=self.database.password,
            position=str(self.began),
            txn=self.began.number,
            tables=((name, NAME, table_number(name, NAME)),),
        )


@dataclass(frozen=True)
class Part:
    """A part of the binlog, and the number of rows up to its end."""

    database: Database
    begin: Position
    end: Position
    rows: int
    rows_upto: int

    @property
    def bytes(self) -> int:
        assert self.begin.name == self.end.name, "the part spans two binlog files"
        return self.end.offset - self.begin.offset


@dataclass
class Captures:
    """The capture as a contestant: restarted for each part; records the peak memory of all."""

    captured: Captured
    largest_bytes: int = 0
    cpu_s: float = 0.0

    def read(self, part: Part) -> float:
        """Seconds from the dump's start to the publication of the last row."""
        c = self.captured
        flows = c.log().count("reading pg after") if (c.home.path / "capture.log").exists() else 0
        process = psutil.Process(c.start().pid)
        began = 0.0
        while not self._published(part.rows_upto):
            assert c.process is not None and c.process.poll() is None, c.log()[-3000:]
            if not began and c.log().count("reading pg after") > flows:
                began = time.monotonic()
            self.largest_bytes = max(self.largest_bytes, process.memory_info().rss)
            time.sleep(LOOK_S)
        ended = time.monotonic()
        self.cpu_s += sum(process.cpu_times()[:2])
        assert c.close() == 0
        return ended - began

    def _published(self, index: int) -> bool:
        said = next((line for line in reversed(self.captured.lines) if line.startswith("published ")), "published 0")
        return int(said.split()[1]) >= index


def ends(part: Part, total: int, last: memoryview) -> bool:
    """Whether the last block is the part's last event, which tells where it ends, after `total` bytes."""
    # MariaDB omits what may be most of its files, the statements' texts
    return total > part.bytes // 8 and part.end.offset.to_bytes(4, "little") in bytes(last[-64:])


def raw(part: Part) -> float:
    """Seconds until the last event arrived."""
    session = part.database.endpoint.connect()
    try:
        began = time.monotonic()
        begin_dump(session, SERVER_IDS["raw"], Start(part.begin.name, part.begin.offset))
        discard(session, partial(ends, part))
        return time.monotonic() - began
    finally:
        session._force_close()


def kept(part: Part) -> float:
    """Seconds until the last event is durable in a file."""
    session = part.database.endpoint.connect()
    blocks = [memoryview(bytearray(DEFAULTS.flush_bytes)) for _ in range(2)]
    try:
        with tempfile.TemporaryFile(buffering=0) as file, ThreadPoolExecutor(1) as syncer:

            def keep(block: memoryview) -> None:
                zlib.crc32(block)
                file.write(block)
                os.fsync(file.fileno())

            began = time.monotonic()
            begin_dump(session, SERVER_IDS["kept"], Start(part.begin.name, part.begin.offset))
            total, last, done = 0, False, syncer.submit(time.monotonic)
            while not last:
                block, size = blocks[0], 0
                blocks.reverse()
                while size < len(block) and not last:
                    got = session._sock.recv_into(block[size:])
                    assert got, f"the server closed the connection after {total + size} bytes"
                    size += got
                    last = ends(part, total + size, block[:size])
                total += size
                done.result()
                done = syncer.submit(keep, block[:size])
            done.result()
            return time.monotonic() - began
    finally:
        session._force_close()


def mysql_replication(part: Part) -> float:
    """Seconds that a loop over all rows would take, at the rate of the first ones."""
    server = part.database.server
    account = {"host": server.host, "port": server.port, "user": server.user, "passwd": server.password}
    wanted = min(part.rows, SLOW_ROWS)
    began = time.monotonic()
    stream = BinLogStreamReader(
        connection_settings=account,
        server_id=SERVER_IDS["mysql-replication"],
        only_events=[WriteRowsEvent],
        log_file=part.begin.name,
        log_pos=part.begin.offset,
        resume_stream=True,
        enable_logging=False,
    )
    try:
        rows = sum(1 for _ in islice((row for event in stream for row in event.rows), wanted))
    finally:
        stream.close()
    assert rows == wanted, f"mysql-replication read {rows} of {wanted} rows"
    return (time.monotonic() - began) * part.rows / rows


def race(database: Database, rows: int, rounds: int, per_transaction: int, home: Path) -> None:
    database.execute(TABLE)
    captures = Captures(Captured.define(home, Upstream(database, log_end(database))))
    contestants = dict(zip(NAMES, (captures.read, raw, kept, mysql_replication), strict=True))
    names = list(contestants)
    seconds: dict[str, list[float]] = {n: [] for n in names}
    print(f"{'round':>5} " + " ".join(f"{n:>17}" for n in names))
    for number in range(rounds):
        begin = log_end(database)
        fill(database, number * rows + 1, rows, per_transaction)
        part = Part(database, begin, log_end(database), rows, (number + 1) * rows)
        os.sync()
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds[name].append(contestants[name](part))
        rates = " ".join(f"{rows / seconds[n][-1]:>15,.0f}/s" for n in names)
        print(f"{number + 1:>5} {rates}   ({part.bytes / 1e6:.0f} MB)", flush=True)
    captures.captured.home.meta.close()
    for name in names[1:]:
        ratio = statistics.median(t / o for t, o in zip(seconds[name], seconds["capture"], strict=True))
        print(f"capture / {name}, median of {rounds}: {ratio:.2f}")
    print(
        f"capture: {captures.largest_bytes / 1e6:,.0f} MB at most, {captures.cpu_s / rounds:.1f} s CPU with its start"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--per-transaction", type=int, default=1000)
    given, databases = servers(parser)
    for database in databases:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as home:
            race(database, given.rows, given.rounds, given.per_transaction, Path(home))


if __name__ == "__main__":
    main()
