"""The capture under kill -9, crashes of the server and lost leases, over every upstream: nothing lost, nothing twice.

What was captured is compared with what a second reader finds in the server's own log. Every kill is made over
PostgreSQL, some by the seed over MariaDB and MySQL, and all over all of them in `make soak`.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater import crash
from headwater.meta import connections, segments
from headwater.model import ConnectionState
from support import turns, upstreams
from support.captured import Captured, captured
from support.upstreams import MariaDB, Mysql, Postgres, Upstream
from support.wait import wait_for

POINTS = [p for p in crash.POINTS if p.split(".")[0] in ("capture", "transaction", "segment", "position")]
HALF_BYTES = 40 << 20  # of a transaction that does not fit into one segment
SAMPLE = 2  # points of a kind of which not all are tried

Make = Callable[[type[Upstream]], Upstream]
KILLS = [
    pytest.param(kind, point, id=f"{kind.name}-{point}", marks=() if kind is Postgres else pytest.mark.soak)
    for kind in upstreams.EVERY
    for point in POINTS
]


@pytest.mark.parametrize(("kind", "point"), KILLS)
def test_a_kill_at_any_point_loses_and_repeats_nothing(
    kind: type[Upstream], point: str, make: Make, tmp_path: Path
) -> None:
    kill_at(point, make(kind), tmp_path)


@turns.TAKEN
@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_a_kill_at_some_point_loses_and_repeats_nothing(kind: type[Mysql], make: Make, tmp_path: Path) -> None:
    """Other points each time; all of them in `make soak`."""
    for point in random.Random(upstreams.new_seed()).sample(POINTS, SAMPLE):
        kill_at(point, make(kind), tmp_path / point)


def kill_at(point: str, upstream: Upstream, path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"point {point}, seed {seed}")
    with captured(path, upstream.prepare_capture()) as c, upstream.capture_writers(seed) as writers:
        wait_for(lambda: writers.commits > 20)
        if point in ("transaction.half", "capture.cut_back"):
            upstream.fill("item", 20_000, f"i + 10000000, i, repeat('y', {HALF_BYTES // 20_000})")
        if point == "capture.cut_back":  # needs something to cut back
            assert c.start("transaction.half").wait(90) == -signal.SIGKILL, c.log()[-2000:]
        if point == "position.published":  # only an upstream that is idle, or writes other tables, makes such progress
            writers.stop()
        nth = random.Random(seed).randrange(1, 4) if point.startswith("segment") else 1
        process = c.start(f"{point}:{nth}")
        if point == "position.published":
            wait_for(lambda: c.upstream.goal() and process.poll() is not None, c.log()[-2000:], 90)
        assert process.wait(90) == -signal.SIGKILL, c.log()[-2000:]
        check_acknowledged_is_durable(upstream, c)
        c.start()
        c.wait_reading()
        writers.stop()
        upstream.execute("UPDATE item SET n = n + 1")
        c.wait_caught_up()
        assert c.close() == 0
        check(c)
        assert len(list(c.home.storage.list("changelog"))) == segment_count(c), "no file is left behind"
        assert list(c.home.storage.list("aside")) == [], "no prepared transaction is left behind"


def check(c: Captured) -> None:
    """Each transaction once, in the order of the log, with the very bytes of its rows."""
    mine, theirs = c.transactions(), c.upstream.oracle()
    assert mine, "something was captured"
    assert [t for t, _ in mine] == [t for t, _ in theirs]
    assert mine == theirs


def check_acknowledged_is_durable(upstream: Upstream, c: Captured) -> None:
    """Where the server keeps its log for us, it was told to forget only what meta has."""
    if upstream.can.keep_log:
        number = upstream.seam().number
        assert number(c.confirmed()) <= number(c.info().resume_position)


def segment_count(c: Captured) -> int:
    with c.home.meta.read() as m:
        return len(segments.in_range(m, c.id, 0, c.info().last_index))


@turns.TAKEN
@pytest.mark.parametrize("kind", upstreams.EVERY, ids=lambda k: k.name)
def test_kills_at_random_moments_lose_and_repeat_nothing(kind: type[Upstream], make: Make, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    numbers = random.Random(seed)
    upstream = make(kind)
    with captured(tmp_path, upstream.prepare_capture()) as c:
        with upstream.capture_writers(seed):
            for _ in range(4 if kind is Postgres else 2):
                c.start()
                goal = c.info().last_index + numbers.randrange(1, 500)
                wait_for(lambda goal=goal: c.info().last_index > goal, c.log()[-2000:], 90)  # type: ignore[misc]
                c.kill()
                check_acknowledged_is_durable(upstream, c)
            c.start()
        c.wait_caught_up()
        assert c.close() == 0
        check(c)


@pytest.mark.parametrize(
    ("kind", "crashes"), [(Postgres, 2), (MariaDB, 1), (Mysql, 1)], ids=lambda x: getattr(x, "name", x)
)
def test_crashes_of_the_server_are_survived_and_begin_another_life(
    kind: type[Upstream], crashes: int, make: Make, tmp_path: Path
) -> None:
    upstream = make(kind)
    lives = set()
    with captured(tmp_path, upstream.prepare_capture()) as c:
        c.start()
        with upstream.capture_writers(random.randrange(10**6), crashes=True) as writers:
            for number in range(crashes):
                c.wait_reading(number + 1)
                goal = writers.commits + 100
                wait_for(lambda goal=goal: writers.commits > goal)  # type: ignore[misc]
                with c.home.meta.read() as m:
                    lives.add(connections.server_life(m, c.id))
                upstream.crash()
                wait_for(lambda: c.info().state is ConnectionState.RETRYING, c.log()[-2000:])
                upstream.start()
            c.wait_reading(crashes + 1)
        c.wait_caught_up()
        with c.home.meta.read() as m:
            lives.add(connections.server_life(m, c.id))
        assert c.info().state is ConnectionState.RUNNING and c.info().error is None
        assert c.close() == 0
        check(c)
    assert len(lives) == crashes + 1


@turns.TAKEN
@pytest.mark.parametrize("kind", upstreams.EVERY, ids=lambda k: k.name)
def test_another_server_under_the_same_address_fails_visibly(kind: type[Upstream], make: Make, tmp_path: Path) -> None:
    upstream = make(kind)
    with captured(tmp_path, upstream.prepare_capture()) as c:
        c.start()
        upstream.execute("INSERT INTO item VALUES (1, 1, '')")
        c.wait_caught_up()
        c.close()
        identity, position = c.info().identity, c.info().resume_position
        for other, place in upstream.replaced_servers(identity, position):
            with c.home.meta.write() as m:
                connections.set_identity(m, c.id, other)
                connections.advance(m, c.id, place)
                connections.set_state(m, c.id, ConnectionState.RUNNING)  # the last round's failure is not this one's
            assert c.info().error is None
            process = c.start()
            error = c.wait_state(ConnectionState.FAILED, "source.replaced")
            assert "Resync" in error["hint"]
            assert process.wait(30) == 1
        with c.home.meta.write() as m:
            connections.set_identity(m, c.id, identity)
            connections.advance(m, c.id, position)
        c.start()
        c.wait_caught_up()
        assert c.info().error is None


@pytest.mark.parametrize("kind", [Postgres, MariaDB], ids=lambda k: k.name)
def test_an_owner_stopped_past_its_lease_is_fenced_when_it_continues(
    kind: type[Upstream], make: Make, tmp_path: Path
) -> None:
    upstream = make(kind)
    with captured(tmp_path, upstream.prepare_capture()) as c, Captured(c.home, c.id, c.upstream) as other:
        with upstream.capture_writers(random.randrange(10**6)) as writers:
            stopped = c.start()
            wait_for(lambda: c.info().last_index > 100)
            stopped.send_signal(signal.SIGSTOP)
            other.start()
            other.wait_reading(2, timeout_s=240)  # once the upstream can send the silent reader no more
            goal = writers.commits + 100
            wait_for(lambda: writers.commits > goal)
            stopped.send_signal(signal.SIGCONT)
            assert stopped.wait(60) == 1
            assert "job.fenced" in c.log()
        other.wait_caught_up()
        assert other.info().state is ConnectionState.RUNNING
        assert other.close() == 0
        check(other)
