"""A home under steady load stays as it is: files, meta and the time that a read takes do not grow. `make soak`.

HEADWATER_SOAK_S says how long (default 3600 s), HEADWATER_SOAK_RATE how many changes per second (default 2,000). What
waits for minutes is shortened in proportion when the run is shorter than an hour, so that minutes already show it.
(Dead files of a base stay for an hour, which nothing shortens.)
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.home import Home
from headwater.meta import tables
from support.lake import Lake, assert_equal, definitions
from support.wait import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

HOUR_S = 3600.0
ROWS = 100_000
BATCH = 100  # changes per transaction
SAMPLES = 24


@dataclass(frozen=True)
class Sample:
    """A home at one moment of the run."""

    at_s: float
    changes: int
    files: dict[str, int]  # by folder
    rows: dict[str, int]  # of meta, by table
    meta_bytes: int
    read_s: float

    def __str__(self) -> str:
        files, rows = (" ".join(f"{k}={v}" for k, v in d.items() if v) for d in (self.files, self.rows))
        return (
            f"{self.at_s:6.0f} s {self.changes:9,} changes, read {self.read_s:.2f} s, meta {self.meta_bytes:,} bytes\n"
            f"         files {files}\n         meta {rows}"
        )


class Load:
    """Changes of rows of `t` all over the table, at a steady rate, until the block ends."""

    def __init__(self, dsn: str, rate: float) -> None:
        self._dsn = dsn
        self._rate = rate
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self.changes = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="load")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            began = time.monotonic()
            with psycopg.connect(self._dsn, autocommit=True) as session:
                while not self._stop.is_set():
                    ahead_s = self.changes / self._rate - (time.monotonic() - began)
                    if ahead_s > 0 and self._stop.wait(ahead_s):
                        return
                    session.execute(
                        "UPDATE t SET n = n + 1, at = now() WHERE id IN "
                        "(SELECT 1 + (random() * %s)::int FROM generate_series(1, %s))",
                        (ROWS - 1, BATCH),
                    )
                    self.changes += BATCH
        except BaseException as e:
            self._failure = e


def sample(lake: Lake, home: Home, began: float, changes: int) -> Sample:
    asked = time.monotonic()
    (answer,) = lake.remote().ask("SELECT count(*) AS c, sum(n) AS s FROM t")
    read_s = time.monotonic() - asked
    assert answer.rows.to_pylist()[0]["c"] == ROWS
    folders = ("changelog", "runs", "warehouse", "tmp/tail", "logs")
    files = {f: len(list(home.storage.list(f))) for f in folders}
    with home.meta.read() as c:
        rows = {
            t.name: int(c.execute(sa.select(sa.func.count()).select_from(t)).scalar_one())
            for t in tables.metadata.sorted_tables
        }
    size = sum(p.stat().st_size for p in lake.home.glob("meta.db*"))
    return Sample(time.monotonic() - began, changes, files, rows, size, read_s)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_files_meta_and_reads_stay_as_they_are_under_steady_load(tmp_path: Path) -> None:
    seconds = float(os.environ.get("HEADWATER_SOAK_S") or HOUR_S)
    rate = float(os.environ.get("HEADWATER_SOAK_RATE") or 2000)
    share = min(1.0, seconds / HOUR_S)
    settings = {
        "HEADWATER_TAIL_CHANGES": "50000",
        "HEADWATER_SLICE_CHANGES": "500000",
        "HEADWATER_SEGMENT_AGE_S": str(60 * share),
        "HEADWATER_HISTORY_S": str(max(10.0, 600 * share)),
    }
    with EmbeddedPostgres(18, {"synchronous_commit": "off"}, database="soak") as pg:
        database: Any = SimpleNamespace(server=pg, name="soak", dsn=pg.dsn())
        with pg.connect() as session:
            session.execute("CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL, at timestamptz, note text)")
            session.execute(f"INSERT INTO t SELECT i, 0, now(), md5(i::text) FROM generate_series(1, {ROWS}) i")
        text = definitions(database, ()) + "CREATE TABLE t FROM CONNECTION pg;"
        # segments expire as soon as nobody needs them, so that the changelog, too, reaches its size
        lake = Lake(tmp_path / "home", text.replace("database.name", "retention.hours='0', database.name"))
        lake.start(**settings)
        home = Home.open(lake.home)
        try:
            lake.wait_live()
            samples = _soak(lake, home, Load(pg.dsn(), rate), seconds)
            assert_equal(lake.verify())
            lake.stop()
        finally:
            home.meta.close()
            if lake.process is not None and lake.process.poll() is None:
                lake.kill()
    _check(samples)


def _soak(lake: Lake, home: Home, load: Load, seconds: float) -> list[Sample]:
    samples: list[Sample] = []
    began = time.monotonic()
    with load.running():
        for i in range(SAMPLES):
            due = began + seconds * (i + 1) / SAMPLES
            wait_for(lambda due=due: time.monotonic() >= due, "the next sample", seconds)
            if i % 4 == 1:  # a fold comes by itself only after an hour, or a million changes
                lake.remote().ask("FOLD TABLE t")
            samples.append(sample(lake, home, began, load.changes))
            print(samples[-1], flush=True)
    return samples


def _check(samples: list[Sample]) -> None:
    """The last third is as the second one: what was to be reached has been reached, and nothing grows with time."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]

    def grown(name: str, before: list[float], after: list[float], slack: float) -> str:
        return "" if max(after) <= 1.5 * max(before) + slack else f"{name}: {max(before):.1f}, then {max(after):.1f}"

    found = [grown("meta bytes", [s.meta_bytes for s in middle], [s.meta_bytes for s in last], 1 << 20)]
    for folder in samples[0].files:
        found.append(grown(folder, [s.files[folder] for s in middle], [s.files[folder] for s in last], 50))
    for table in samples[0].rows:
        found.append(grown(table, [s.rows[table] for s in middle], [s.rows[table] for s in last], 50))
    reads = [sorted(s.read_s for s in part)[len(part) // 2] for part in (middle, last)]
    found.append(grown("read time", reads[:1], reads[1:], 0.5))
    assert not any(found), [f for f in found if f]
