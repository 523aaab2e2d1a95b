"""Random kills of everything, again and again, while writers go on and cuts are compared. Minutes long: `make soak`.

HEADWATER_SOAK_S says how long (default 300 s), HEADWATER_SOAK_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from support.invariant import QUERY, check_invariant
from support.lake import Lake, assert_equal, definitions, wait_for
from support.writer import TABLES, Writer, create_schema


def kill_server(lake: Lake, _pg: EmbeddedPostgres) -> None:
    lake.kill()
    lake.start()


def kill_capture(lake: Lake, _pg: EmbeddedPostgres) -> None:
    for child in _children(lake, "headwater.engine.capture"):
        child.kill()


def kill_worker(lake: Lake, _pg: EmbeddedPostgres) -> None:
    workers = _children(lake, "headwater.engine.workers")
    if workers:
        workers[-1].kill()


def crash_upstream(_lake: Lake, pg: EmbeddedPostgres) -> None:
    pg.crash()
    pg.start()


def stop_and_start(lake: Lake, _pg: EmbeddedPostgres) -> None:
    lake.remote()
    lake.stop()
    lake.start()


def fold(lake: Lake, _pg: EmbeddedPostgres) -> None:
    for table in ("ints", "pairs", "padded"):
        try:
            lake.remote().sql(f"FOLD TABLE {table}")
        except HeadwaterError as e:
            assert e.code in ("job.failed", "server.unreachable"), e


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_nothing_is_lost_or_doubled_whatever_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADWATER_SOAK_SEED") or random.randrange(1 << 30))
    seconds = float(os.environ.get("HEADWATER_SOAK_S") or 300)
    print(f"seed {seed}")
    pick = random.Random(seed)
    with EmbeddedPostgres(18, {"synchronous_commit": "off"}, database="soak") as pg:
        database: Any = SimpleNamespace(server=pg, name="soak", dsn=pg.dsn())
        with pg.connect() as connection:
            create_schema(connection, rows=300, seed=seed)
        lake = Lake(tmp_path / "home", definitions(database, TABLES))
        lake.start()
        wait_for(lambda: len(lake.status().tables) == len(TABLES), "everything is defined")
        deadline = time.monotonic() + seconds
        try:
            with Writer(database.dsn, seed, rate=40, sessions=4):
                while time.monotonic() < deadline:
                    event = pick.choice(
                        [kill_server, kill_capture, kill_capture, kill_worker, crash_upstream, stop_and_start, fold]
                    )
                    print(f"{event.__name__}", flush=True)
                    event(lake, pg)
                    if pick.random() < 0.5:
                        _compare(lake)
                lake.wait_live()
                _compare(lake)
                check_invariant(*lake.remote().sql(QUERY)[0].rows.to_pylist()[0].values())
        finally:
            if lake.process is not None and lake.process.poll() is None:
                lake.kill()


def _compare(lake: Lake) -> None:
    """All tables at one cut; a kill just before may make the comparison itself impossible for a while."""

    def compared() -> list[Any] | None:
        try:
            return lake.verify()
        except HeadwaterError as e:
            assert e.code.startswith(("source.", "server.", "job.", "spark.")), e
            return None

    assert_equal(wait_for(compared, "a comparison", 300.0))


def _children(lake: Lake, name: str) -> list[psutil.Process]:
    """The living processes below the server whose command names a module."""
    assert lake.process is not None
    found = []
    for child in psutil.Process(lake.process.pid).children(recursive=True):
        try:
            if name in " ".join(child.cmdline()):
                found.append(child)
        except (psutil.ZombieProcess, psutil.NoSuchProcess):
            continue  # ended while we looked
    return found
