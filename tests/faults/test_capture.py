"""The capture under kill -9, server crashes, lost slots, lost leases and full disks: nothing lost, nothing twice."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater import crash
from headwater.demo.embedded import EmbeddedPostgres
from headwater.meta import connections
from headwater.model import ConnectionState
from headwater.source.postgres.session import lsn_to_int
from support.capture import Captured, Upstream, Writers, captured
from support.wait import wait_for

POINTS = [p for p in crash.POINTS if p.split(".")[0] in ("capture", "transaction", "segment", "position")]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server of its own: it is crashed, and forgets silent readers soon."""
    with EmbeddedPostgres(18, settings={"wal_sender_timeout": "3s"}) as pg:
        yield pg


@pytest.fixture
def upstream(server: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[Upstream]:
    name = f"faults_{abs(hash(request.node.name)) % 10**8}"
    server.execute(f"CREATE DATABASE {name}")
    it = Upstream.prepare(server.dsn(name))
    Writers.prepare(it)
    yield it

    def dropped() -> bool:
        left = server.execute(f"SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = '{name}'")
        for slot, pid in left:
            if pid is None:
                server.execute(f"SELECT pg_drop_replication_slot('{slot}')", name)
            else:
                server.execute(f"SELECT pg_terminate_backend({pid})")
        return not left

    wait_for(dropped)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def check_acknowledged_is_durable(c: Captured) -> None:
    assert lsn_to_int(c.confirmed()) <= lsn_to_int(c.info().resume_position)


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_loses_and_repeats_nothing(point: str, upstream: Upstream, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    with captured(tmp_path, upstream) as c, Writers(upstream.dsn, seed, threads=2) as writers:
        wait_for(lambda: writers.commits > 20)
        if point in ("transaction.half", "capture.cut_back"):
            upstream.execute("INSERT INTO item SELECT g, g, repeat('y', 60) FROM generate_series(10000000, 10100000) g")
        if point == "capture.cut_back":  # needs something to cut back
            assert c.start("transaction.half").wait(90) == -signal.SIGKILL, c.log()[-2000:]
        if point == "position.published":  # only an idle upstream makes idle progress
            writers.stop()
        nth = random.Random(seed).randrange(1, 4) if point.startswith("segment") else 1
        assert c.start(f"{point}:{nth}").wait(90) == -signal.SIGKILL, c.log()[-2000:]
        check_acknowledged_is_durable(c)
        c.start()
        c.wait_reading()
        writers.stop()
        upstream.execute("UPDATE item SET n = n + 1")
        c.wait_caught_up()
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()
        assert len(list(c.home.storage.list("changelog"))) == segment_count(c), "no file is left behind"


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


def segment_count(c: Captured) -> int:
    from headwater.meta import segments

    with c.home.meta.read() as m:
        return len(segments.in_range(m, c.id, 0, c.info().last_index))


def test_kills_at_random_moments_lose_and_repeat_nothing(upstream: Upstream, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    numbers = random.Random(seed)
    with captured(tmp_path, upstream) as c:
        with Writers(upstream.dsn, seed, threads=2):
            for _ in range(4):
                c.start()
                goal = c.info().last_index + numbers.randrange(1, 500)
                wait_for(lambda goal=goal: c.info().last_index > goal, timeout_s=90)  # type: ignore[misc]
                c.kill()
                check_acknowledged_is_durable(c)
            c.start()
        c.wait_caught_up()
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()


def test_crashes_of_the_server_are_survived_and_begin_another_life(
    server: EmbeddedPostgres, upstream: Upstream, tmp_path: Path
) -> None:
    upstream.execute(f"ALTER DATABASE {upstream.slot[3:]} SET synchronous_commit = off")
    lives = set()
    with captured(tmp_path, upstream) as c:
        c.start()
        with Writers(upstream.dsn, random.randrange(10**6), threads=2) as writers:
            for round in range(2):
                c.wait_reading(round + 1)
                goal = writers.commits + 100
                wait_for(lambda goal=goal: writers.commits > goal)  # type: ignore[misc]
                with c.home.meta.read() as m:
                    lives.add(connections.server_life(m, c.id))
                server.crash()
                wait_for(lambda: c.info().state is ConnectionState.RETRYING, what=c.log()[-2000:])
                server.start()
            c.wait_reading(3)
        c.wait_caught_up()
        with c.home.meta.read() as m:
            lives.add(connections.server_life(m, c.id))
        assert c.info().state is ConnectionState.RUNNING and c.info().error is None
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()
    assert len(lives) == 3


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


def test_a_slot_that_was_dropped_or_made_anew_fails_visibly(upstream: Upstream, tmp_path: Path) -> None:
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


def test_another_server_or_one_that_went_back_in_time_fails_visibly(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream) as c:
        c.start()
        c.wait_caught_up()
        c.close()
        identity, position = c.info().identity, c.info().position
        with c.home.meta.write() as m:
            connections.set_identity(m, c.id, {**identity, "system_identifier": "1"})
        fails_with(c, "source.replaced")
        with c.home.meta.write() as m:
            connections.set_identity(m, c.id, {**identity, "timeline": "7"})
        fails_with(c, "source.replaced")
        with c.home.meta.write() as m:
            connections.set_identity(m, c.id, identity)
            connections.advance(m, c.id, "FFFFFF/0")
        fails_with(c, "source.replaced")
        with c.home.meta.write() as m:
            connections.advance(m, c.id, position)
        c.start()
        c.wait_caught_up()
        assert c.info().error is None


def test_an_owner_stopped_past_its_lease_is_fenced_when_it_goes_on(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream) as c, captured_twin(c) as other:
        with Writers(upstream.dsn, random.randrange(10**6), threads=2) as writers:
            stopped = c.start()
            wait_for(lambda: c.info().last_index > 100)
            stopped.send_signal(signal.SIGSTOP)
            other.start()
            other.wait_reading(2, timeout_s=60)  # after the upstream gave up on the silent reader
            goal = writers.commits + 100
            wait_for(lambda: writers.commits > goal)
            stopped.send_signal(signal.SIGCONT)
            assert stopped.wait(60) == 1
            assert "job.fenced" in c.log()
        other.wait_caught_up()
        assert other.info().state is ConnectionState.RUNNING
        assert other.close() == 0
        assert other.transactions() == upstream.oracle()


def captured_twin(c: Captured) -> Captured:
    return Captured(c.home, c.id, c.upstream)


def test_a_second_capture_without_force_is_refused_while_the_lease_is_held(upstream: Upstream, tmp_path: Path) -> None:
    import subprocess
    import sys

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
        check_acknowledged_is_durable(c)
        assert c.info().last_index == 0
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        c.wait_caught_up()
        assert c.info().state is ConnectionState.RUNNING and c.info().error is None
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()
