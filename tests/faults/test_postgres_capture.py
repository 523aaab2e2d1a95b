"""The capture of PostgreSQL with lost slots, large transactions and full disks: nothing lost, nothing twice."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.model import ConnectionState
from headwater.source.postgres.client.session import lsn_to_int
from support.capture import Captured, Upstream, captured
from support.upstreams import Postgres

pytestmark = pytest.mark.postgres


@pytest.fixture
def upstream(make: Callable[[type[Postgres]], Postgres]) -> Upstream:
    return make(Postgres).prepare_capture()


def test_memory_does_not_grow_with_a_transaction(upstream: Upstream, tmp_path: Path) -> None:
    """Hazard 16: ten times the changes in one transaction, the same memory."""
    bulk = "INSERT INTO item SELECT g, g, repeat('y', 100) FROM generate_series({}, {}) g"
    with captured(tmp_path, upstream) as c:
        c.start()
        upstream.execute(bulk.format(1, 150_000))
        c.wait_caught_up()
        before = peak_bytes(c)
        upstream.execute(bulk.format(1_000_001, 2_500_000))
        c.wait_caught_up(120)
        grown = peak_bytes(c) - before
        assert c.info().committed_index == 1_650_000
        assert c.close() == 0
    assert grown < 48 << 20, f"{grown >> 20} MB more for a transaction of 200 MB"


def peak_bytes(c: Captured) -> int:
    """The most memory that the process has ever held."""
    assert c.process is not None
    status = Path(f"/proc/{c.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) << 10


def fails_with(c: Captured, code: str) -> None:
    process = c.start()
    error = c.wait_state(ConnectionState.FAILED, code)
    assert "Resync" in error["hint"]
    assert process.wait(30) == 1


def test_a_slot_that_somebody_advanced_fails_visibly(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream) as c:
        upstream.execute("INSERT INTO item VALUES (1, 1, 'lost')")
        upstream.execute(f"SELECT pg_replication_slot_advance('{upstream.slot}', pg_current_wal_flush_lsn())")
        fails_with(c, "source.slot_moved")


def test_a_slot_that_was_dropped_or_made_again_fails_visibly(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream) as c:
        upstream.execute("INSERT INTO item VALUES (1, 1, 'lost')")
        upstream.execute(f"SELECT pg_drop_replication_slot('{upstream.slot}')")
        fails_with(c, "source.slot_missing")
        upstream.execute(f"SELECT pg_create_logical_replication_slot('{upstream.slot}', 'pgoutput')")
        fails_with(c, "source.slot_moved")


def test_a_slot_that_lost_its_log_fails_visibly(tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with EmbeddedPostgres(16, settings=settings, database="lossy") as pg:
        upstream = Upstream.prepare(pg.dsn())
        with captured(tmp_path, upstream) as c:
            for _ in range(4):
                pg.execute("SELECT pg_switch_wal()")
                pg.execute("SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000000))")
                pg.execute("CHECKPOINT")
            fails_with(c, "source.slot_lost")


def test_a_second_capture_is_refused_while_the_lease_is_held(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream) as c:
        c.start()
        c.wait_caught_up()
        command = [
            sys.executable,
            "-m",
            "headwater.capture.process",
            "--home",
            str(tmp_path),
            "--connection",
            str(c.id),
        ]
        second = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.PIPE, timeout=60)
        assert second.returncode == 1 and "job.fenced" in second.stderr
        assert c.info().state is ConnectionState.RUNNING
        c.wait_caught_up()


def test_a_full_disk_is_waited_out(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream) as c:
        process = c.start()
        c.wait_caught_up()
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, unlimited[1]))
        upstream.execute(
            "INSERT INTO item SELECT g, g, (SELECT string_agg(md5(g::text || i), '') FROM generate_series(1, 20) i) "
            "FROM generate_series(1, 20000) g"
        )
        error = c.wait_state(ConnectionState.RETRYING, "home.disk_full")
        assert "Free space" in error["hint"]
        assert lsn_to_int(c.confirmed()) <= lsn_to_int(c.info().resume_position)
        assert c.info().last_index == 0
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        c.wait_caught_up()
        assert c.info().state is ConnectionState.RUNNING and c.info().error is None
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()
