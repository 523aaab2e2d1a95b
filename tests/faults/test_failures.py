"""One failure stays one failure: one server through a missing file, a stopped table, a hanging capture, a dead Spark, a
full disk, a restart of meta; and in the end through a signal to all of its processes.

The tests share a server, because its start takes longer than each of them; every one leaves it running.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.home import Home
from headwater.engine.results import TableStatus
from headwater.errors import HeadwaterError
from headwater.meta import relations, segments
from support.lake import Lake, assert_equal, definitions
from support.upstreams.postgres import drop_database
from support.wait import wait_for

CAPTURE = "headwater.capture.process"
SOON = {"HEADWATER_FOLD_AGE_S": "1", "HEADWATER_HISTORY_S": "2", "HEADWATER_CAPTURE_SILENCE_S": "3"}
TABLES = ("good", "bad", "retyped")
DISK_MB = 192


@dataclass
class Database:
    """The upstream: a database on the shared server."""

    server: EmbeddedPostgres
    name: str

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)


@pytest.fixture(scope="module")
def upstream(pg: EmbeddedPostgres) -> Iterator[Database]:
    name = "failures"
    pg.execute(f"CREATE DATABASE {name}")
    yield Database(pg, name)
    drop_database(pg, name)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory on a small disk of its own, where this user may mount one."""
    path = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(path)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0
    yield path
    if mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture(scope="module")
def lake(upstream: Database, disk: Path) -> Iterator[Lake]:
    for name in TABLES:
        upstream.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        upstream.execute(f"INSERT INTO {name} SELECT i, i FROM generate_series(1, 200) i")
    text = definitions(upstream, TABLES).replace("database.name", "retention.hours='0', database.name")
    made = Lake(disk / "home", text)
    made.start(**SOON)
    made.wait_live()
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


@pytest.fixture
def home(lake: Lake) -> Iterator[Home]:
    opened = Home.open(lake.home)
    yield opened
    opened.meta.close()


def table(lake: Lake, name: str) -> TableStatus:
    return next(t for t in lake.status().tables if t.name == name)


def ask(lake: Lake, query: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.remote().ask(query)[0].rows.to_pylist()  # type: ignore[union-attr]
    return rows


def goes_on(lake: Lake, upstream: Database, word: str) -> None:
    """What is written upstream now arrives."""
    upstream.execute(f"INSERT INTO good SELECT coalesce(max(id), 0) + 1, '{word}' FROM good")
    wait_for(lambda: answered(lake, f"SELECT v FROM good WHERE v = '{word}'"), f"{word} arrives")


def answered(lake: Lake, query: str) -> list[dict[str, Any]]:
    try:
        return ask(lake, query)
    except HeadwaterError as e:
        assert e.code in ("spark.failed", "home.disk_full", "home.unusable"), (e.code, e.message)
        return []


def last_index(home: Home) -> int:
    with home.meta.read() as c:
        return segments.first_kept(c, 1) if not segments.sizes(c) else segments.in_range(c, 1, 0, 10**9)[-1].last_index


def kept_from(home: Home) -> int:
    with home.meta.read() as c:
        return segments.first_kept(c, 1)


def test_a_missing_file_of_one_base_stops_that_table_and_no_other(lake: Lake, upstream: Database, home: Home) -> None:
    captures = [p.pid for p in lake.children(CAPTURE)]
    with home.meta.read() as c:
        (bad,) = (r for r in relations.all(c) if r.name == "bad")
    for file in (lake.home / bad.base_path).glob("*.parquet"):
        file.unlink()
    upstream.execute("UPDATE bad SET v = 'x'")
    wait_for(lambda: table(lake, "bad").state == "failed", "the damaged table has stopped")
    assert table(lake, "bad").code == "data.base_damaged" and "RESYNC TABLE" in table(lake, "bad").hint
    goes_on(lake, upstream, "after a missing file")
    assert [p.pid for p in lake.children(CAPTURE)] == captures
    lake.remote().ask("RESYNC TABLE bad")
    wait_for(lambda: table(lake, "bad").state == "live", "it is read anew")


def test_a_table_that_cannot_be_followed_is_left_whole_and_holds_back_no_log(
    lake: Lake, upstream: Database, home: Home
) -> None:
    upstream.execute("UPDATE retyped SET v = 'before' WHERE id = 1")
    upstream.execute("ALTER TABLE retyped ALTER v TYPE bytea USING convert_to(v, 'UTF8')")
    upstream.execute("UPDATE retyped SET v = 'after' WHERE id <= 2")
    wait_for(lambda: table(lake, "retyped").state == "failed", "the changed table has stopped")
    reached = last_index(home)
    goes_on(lake, upstream, "after a change of type")
    wait_for(lambda: kept_from(home) >= reached, "nobody holds back the changelog")
    assert table(lake, "retyped").code in ("data.schema_changed", "data.rewritten")
    query = "SELECT id, v FROM retyped WHERE id <= 2 ORDER BY id"
    assert ask(lake, query) == [{"id": 1, "v": "before"}, {"id": 2, "v": "2"}]


def test_a_capture_that_is_stopped_is_replaced(lake: Lake, upstream: Database) -> None:
    (stopped,) = lake.children(CAPTURE)
    stopped.suspend()
    upstream.execute("INSERT INTO good VALUES (-1, 'while it was stopped')")
    wait_for(lambda: ask(lake, "SELECT v FROM good WHERE id = -1"), "another capture has read it")
    assert [p.pid for p in lake.children(CAPTURE)] != [stopped.pid]
    assert not stopped.is_running() or stopped.status() == psutil.STATUS_ZOMBIE
    metrics = lake.remote().ask("SHOW METRICS")[0].rows.to_pylist()  # type: ignore[union-attr]
    (restarts,) = (m["value"] for m in metrics if m["name"] == "headwater_capture_restarts_total")
    assert float(restarts) == 1
    goes_on(lake, upstream, "after a hanging capture")


def test_a_spark_that_was_killed_is_started_again_while_captures_continue(lake: Lake, upstream: Database) -> None:
    captures = [p.pid for p in lake.children(CAPTURE)]
    (jvm,) = (p for p in psutil.Process(lake.process.pid).children() if "java" in p.name())  # type: ignore[union-attr]
    in_the_way = lake.home / "logs" / "log4j2.properties"
    in_the_way.unlink()
    in_the_way.mkdir()  # so that the first new start fails
    jvm.kill()
    wait_for(lambda: "spark" in {job.name for job in lake.status().jobs}, "the status says that Spark does not start")
    in_the_way.rmdir()
    goes_on(lake, upstream, "after a dead Spark")
    assert [p.pid for p in lake.children(CAPTURE)] == captures
    wait_for(lambda: not lake.status().jobs, "nothing fails any more")
    assert "Traceback" not in lake.log and "ERROR" not in lake.log, lake.log


@pytest.mark.soak  # that the capture waits out a full disk is tested without a server, too
def test_a_full_disk_is_reported_and_everything_continues_once_there_is_room(
    lake: Lake, upstream: Database, disk: Path
) -> None:
    if not os.path.ismount(disk):
        pytest.skip("A FULL DISK WAS NOT TESTED: only root can mount a small one")
    ballast = disk / "ballast"
    with ballast.open("wb") as f:
        while shutil.disk_usage(disk).free > 0:
            f.write(b"x" * min(1 << 20, shutil.disk_usage(disk).free))
            f.flush()
    upstream.execute("INSERT INTO good SELECT i, repeat('full', 50) FROM generate_series(10001, 20000) i")

    def told() -> bool:
        status = lake.status()
        return "home.disk_full" in {x.code for x in (*status.connections, *status.tables, *status.jobs)}

    wait_for(told, "the status says that the disk is full")
    assert lake.process is not None and lake.process.poll() is None
    ballast.unlink()
    goes_on(lake, upstream, "after a full disk")
    wait_for(lambda: not lake.status().jobs, "nothing fails any more")
    assert_equal([v for v in lake.verify() if v.table != "retyped"])


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_signal_to_every_process_at_once_is_a_clean_stop(lake: Lake, number: signal.Signals) -> None:
    """As systemd does it: the group, and whoever has left the group."""
    assert lake.process is not None
    children = psutil.Process(lake.process.pid).children(recursive=True)
    os.killpg(lake.process.pid, number)
    for child in children:
        if child.is_running():
            child.send_signal(number)
    assert lake.process.wait(60) == 0, lake.log
    assert "Traceback" not in lake.log and "unexpected" not in lake.log, lake.log
    assert "stopped; the next start continues here" in lake.log
