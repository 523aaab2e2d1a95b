"""What a capture does to its upstream's other users: it keeps no log of theirs, and says when they wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.status.sampler import Sampler
from headwater.source.postgres.replication.slot import log_end
from support.capture import Upstream, captured
from support.lake import definitions
from support.wait import wait_for

MEGABYTES = 48  # three WAL files


@dataclass
class Database:
    server: EmbeddedPostgres
    name: str


@pytest.fixture
def alone() -> Iterator[EmbeddedPostgres]:
    """A server that takes whoever reads its log for a synchronous standby; its own sessions do not wait for that."""
    settings = {"synchronous_standby_names": "*", "synchronous_commit": "local"}
    with EmbeddedPostgres(18, settings=settings) as server:
        yield server


def test_an_idle_database_keeps_no_log_of_a_busy_neighbour(database: Any, tmp_path: Path) -> None:
    pg, idle = database.server, Upstream.prepare(database.dsn)
    pg.execute(f"CREATE DATABASE {database.name}_busy")
    try:
        with captured(tmp_path, idle) as capture:
            capture.start()
            capture.wait_reading()
            pg.execute("CREATE TABLE t (v text)", f"{database.name}_busy")
            rows = MEGABYTES << 10
            pg.execute(
                f"INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, {rows})", f"{database.name}_busy"
            )

            def kept() -> int:
                pg.execute("SELECT pg_log_standby_snapshot()")  # where a slot may begin anew; every 15 s by itself
                with database.connect() as session:
                    end = log_end(session, idle.slot, capture.info().position)
                assert end.kept_bytes is not None
                return end.kept_bytes

            wait_for(lambda: kept() < (MEGABYTES << 20) // 4, "the slot has let go of the neighbour's log")
            assert capture.info().committed_index == 0, "nothing of it is ours"
    finally:
        pg.execute(f"DROP DATABASE {database.name}_busy WITH (FORCE)")


def test_commits_that_wait_for_our_reader_are_reported_at_create_and_by_status(
    alone: EmbeddedPostgres, tmp_path: Path
) -> None:
    text = definitions(Database(alone, "postgres"), ())
    with headwater.open(tmp_path / "defined") as hw:
        (made,) = hw.sql(text)
    assert any("synchronous_standby_names" in w for w in made.warnings), made.warnings

    upstream = Upstream.prepare(alone.dsn("postgres"))
    with captured(tmp_path / "captured", upstream) as capture:
        capture.start()
        capture.wait_reading()
        pulse = Sampler(capture.home)

        def told() -> bool:
            pulse.ask()
            end = pulse.log_end(capture.id)
            return end is not None and "synchronous" in end.notice

        wait_for(told, "the upstream says whom its commits wait for")
