"""Many tables on one connection: one slot, one walsender, one capture; one more disturbs none of the others."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.home import Home
from headwater.meta import epochs
from support.lake import Lake, assert_equal, definitions
from support.wait import wait_for

pytestmark = pytest.mark.spark

ROWS = 200


def create(database: Any, count: int) -> list[str]:
    names = [f"t{i}" for i in range(count)]
    with database.connect() as c:
        for name in names:
            c.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, n int)")
            c.execute(f"INSERT INTO {name} SELECT g, 0 FROM generate_series(1, {ROWS}) g")
    return names


class Sampler:
    """Writes to the tables in turn and watches how long a change takes into an epoch."""

    def __init__(self, database: Any, home: Path, tables: list[str]) -> None:
        self.lags: list[float] = []
        self._database, self._home, self._tables = database, home, tables
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        home = Home.open(self._home)
        with self._database.connect() as c:
            turn = 0
            while not self._stop.is_set():
                before = self._index(home)
                began = time.monotonic()
                c.execute(f"UPDATE {self._tables[turn % len(self._tables)]} SET n = n + 1 WHERE id = 1")
                wait_for(lambda: self._index(home) != before or self._stop.is_set(), "an epoch")  # noqa: B023
                self.lags.append(time.monotonic() - began)
                turn += 1
                self._stop.wait(0.05)
        home.meta.close()

    @staticmethod
    def _index(home: Home) -> int:
        with home.meta.read() as c:
            newest = epochs.newest(c)
        return newest.entries[0].index if newest and newest.entries else 0


def follow_many(database: Any, tmp_path: Path, count: int) -> None:
    names = create(database, count + 1)
    lake = Lake(tmp_path / "home", definitions(database, names[:count]))
    began = time.monotonic()
    lake.start()
    try:
        wait_for(lambda: len(lake.status().tables) == count, "all are defined")
        lake.wait_live(1200)
        print(f"{count} tables live after {time.monotonic() - began:.0f} s")
        assert database.execute("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == [
            (1,)
        ]
        walsenders = (
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database()"
        )
        assert database.execute(walsenders) == [(1,)]
        assert len(lake.children("headwater.capture.process")) == 1
        with Sampler(database, lake.home, names[:count]) as pulse:
            wait_for(lambda: len(pulse.lags) >= 10, "changes flow")
            idle = statistics.median(pulse.lags)
            first = len(pulse.lags)
            lake.remote().ask(f"CREATE TABLE {names[count]} FROM CONNECTION pg;")
            lake.wait_live(120)
            wait_for(lambda: len(pulse.lags) >= first + 10, "changes flow on")
            beside = statistics.median(pulse.lags[first:])
        print(f"a change is in an epoch after {idle:.2f} s, while a table is added {beside:.2f} s")
        states = {t.name: t.state for t in lake.status().tables}
        assert states == dict.fromkeys(names, "live")
        for name in (names[0], names[count // 2], names[count]):
            assert_equal(lake.verify(name))
    finally:
        if lake.process is not None and lake.process.poll() is None:
            lake.stop()


def test_several_tables_share_one_slot_and_one_more_disturbs_none(database: Any, tmp_path: Path) -> None:
    follow_many(database, tmp_path, 8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_tables_share_one_slot_and_one_more_disturbs_none(database: Any, tmp_path: Path) -> None:
    follow_many(database, tmp_path, int(os.environ.get("HEADWATER_MANY") or 200))
