"""The capture of MySQL and MariaDB under kill -9, server crashes, and logs that are gone: nothing lost, nothing twice.

Every kill is made over MariaDB, some by the seed over MySQL, and all over both in `make soak`. What was captured is
compared with what a second reader finds in the server's own files.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater import crash
from headwater.meta import connections, segments
from headwater.model import ConnectionState
from support import upstreams
from support.capture_mysql import Upstream, Writers, log_end
from support.captured import Captured, captured
from support.mysql import MyDatabase
from support.upstreams import MariaDB, Mysql
from support.wait import wait_for

POINTS = [p for p in crash.POINTS if p.split(".")[0] in ("capture", "transaction", "segment", "position")]
HALF_BYTES = 40 << 20  # of a transaction that does not fit into one segment

Make = Callable[[type[Mysql]], Upstream]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[dict[str, Mysql]]:
    """Servers of their own, made when they are asked for: they are crashed."""
    made: dict[str, Mysql] = {}
    yield made
    for one in made.values():
        one.server.stop()


@pytest.fixture
def prepare(servers: dict[str, Mysql], request: pytest.FixtureRequest) -> Make:
    """A fresh database of a kind, with the writers' tables."""

    def make(kind: type[Mysql]) -> Upstream:
        upstreams.expect(request, kind)
        if kind.name not in servers:
            servers[kind.name] = kind(MyDatabase(kind.server_class(), "test"))
        server = servers[kind.name].server
        name = f"faults_{next(_numbers)}"
        server.execute(f"CREATE DATABASE {name}")
        return Upstream.prepare(MyDatabase(server, name))

    return make


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_a_kill_at_some_point_loses_and_repeats_nothing(kind: type[Mysql], prepare: Make, tmp_path: Path) -> None:
    """Other points each time; all of them in `make soak`."""
    for point in random.Random(upstreams.new_seed()).sample(POINTS, 2):
        kill_at(point, kind, prepare(kind), tmp_path / point)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_a_kill_at_any_point_loses_and_repeats_nothing(
    kind: type[Mysql], point: str, prepare: Make, tmp_path: Path
) -> None:
    kill_at(point, kind, prepare(kind), tmp_path)


def kill_at(point: str, kind: type[Mysql], upstream: Upstream, path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"point {point}, seed {seed}")
    with captured(path, upstream) as c, Writers(upstream.database, seed, moods=kind.moods) as writers:
        wait_for(lambda: writers.commits > 20)
        if point in ("transaction.half", "capture.cut_back"):
            upstream.fill(10_000_000, 10_020_000, HALF_BYTES // 20_000)
        if point == "capture.cut_back":  # needs something to cut back
            assert c.start("transaction.half").wait(90) == -signal.SIGKILL, c.log()[-2000:]
        nth = random.Random(seed).randrange(1, 4) if point.startswith("segment") else 1
        process = c.start(f"{point}:{nth}")
        if point == "position.published":  # progress without a row: transactions of a table that nobody follows
            writers.stop()
            wait_for(lambda: upstream.goal() and process.poll() is not None, c.log()[-2000:], 90)
        assert process.wait(90) == -signal.SIGKILL, c.log()[-2000:]
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


def segment_count(c: Captured) -> int:
    with c.home.meta.read() as m:
        return len(segments.in_range(m, c.id, 0, c.info().last_index))


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_kills_at_random_moments_lose_and_repeat_nothing(kind: type[Mysql], prepare: Make, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    numbers = random.Random(seed)
    upstream = prepare(kind)
    with captured(tmp_path, upstream) as c:
        with Writers(upstream.database, seed, moods=kind.moods):
            for _ in range(2):
                c.start()
                goal = c.info().last_index + numbers.randrange(1, 500)
                wait_for(lambda goal=goal: c.info().last_index > goal, c.log()[-2000:], 90)  # type: ignore[misc]
                c.kill()
            c.start()
        c.wait_caught_up()
        assert c.close() == 0
        check(c)


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_crashes_of_the_server_are_survived_and_begin_another_life(
    kind: type[Mysql], prepare: Make, tmp_path: Path
) -> None:
    upstream = prepare(kind)
    server = upstream.database.server
    lives = set()
    seed = random.randrange(10**6)
    writers = Writers(upstream.database, seed, moods=kind.moods, two_phase=False)
    with captured(tmp_path, upstream) as c:
        c.start()
        with writers:
            c.wait_reading()
            goal = writers.commits + 100
            wait_for(lambda: writers.commits > goal)
            with c.home.meta.read() as m:
                lives.add(connections.server_life(m, c.id))
            server.crash()
            wait_for(lambda: c.info().state is ConnectionState.RETRYING, c.log()[-2000:])
            server.start()
            c.wait_reading(2)
        c.wait_caught_up()
        with c.home.meta.read() as m:
            lives.add(connections.server_life(m, c.id))
        assert c.info().state is ConnectionState.RUNNING and c.info().error is None
        assert c.close() == 0
        check(c)
    assert len(lives) == 2


def fails_with(c: Captured, code: str) -> None:
    process = c.start()
    error = c.wait_state(ConnectionState.FAILED, code)
    assert "Resync" in error["hint"]
    assert process.wait(30) == 1


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_a_log_that_was_purged_fails_visibly(kind: type[Mysql], prepare: Make, tmp_path: Path) -> None:
    upstream = prepare(kind)
    with captured(tmp_path, upstream) as c:
        upstream.fill(1, 10, 10)
        upstream.execute("FLUSH BINARY LOGS")
        (last, *_) = upstream.execute("SHOW BINARY LOGS")[-1]

        def purged() -> bool:  # not while another reader, or a checkpoint, needs a file
            upstream.execute("UPDATE mark SET n = n + 1")
            upstream.execute(f"PURGE BINARY LOGS TO '{last}'")
            return bool(upstream.execute("SHOW BINARY LOGS")[0][0] == last)

        wait_for(purged, "the log is purged", 30)
        fails_with(c, "source.slot_lost")


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "longer"])
def test_a_log_that_was_reset_fails_visibly_even_if_it_has_grown_past_our_place(
    kind: type[Mysql], grown: bool, prepare: Make, tmp_path: Path
) -> None:
    upstream = prepare(kind)
    upstream.execute(kind.reset_log)  # so that our file is the first, whose name comes again
    upstream.began = log_end(upstream.database)
    with captured(tmp_path, upstream) as c:
        c.start()
        upstream.fill(1, 10, 10)
        c.wait_caught_up()
        assert c.close() == 0
        upstream.execute(kind.reset_log)
        if grown:
            upstream.fill(100, 20_100, 100)
        fails_with(c, "source.slot_lost")


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_another_server_under_the_same_address_fails_visibly(kind: type[Mysql], prepare: Make, tmp_path: Path) -> None:
    upstream = prepare(kind)
    with captured(tmp_path, upstream) as c:
        c.start()
        upstream.fill(1, 10, 10)
        c.wait_caught_up()
        c.close()
        identity, position = c.info().identity, c.info().resume_position
        strange = "0-77-1" if " 0-" in position else "11111111-1111-1111-1111-111111111111:1-5"
        with c.home.meta.write() as m:
            connections.set_identity(m, c.id, {**identity, "server": "another"})
            connections.advance(m, c.id, f"{position.split()[0]} {strange}")
        fails_with(c, "source.replaced")


def test_an_owner_stopped_past_its_lease_is_fenced_when_it_goes_on(prepare: Make, tmp_path: Path) -> None:
    upstream = prepare(MariaDB)
    with captured(tmp_path, upstream) as c, Captured(c.home, c.id, c.upstream) as other:
        with Writers(upstream.database, random.randrange(10**6)) as writers:
            stopped = c.start()
            wait_for(lambda: c.info().last_index > 100)
            stopped.send_signal(signal.SIGSTOP)
            other.start()
            other.wait_reading(2, timeout_s=60)
            goal = writers.commits + 100
            wait_for(lambda: writers.commits > goal)
            stopped.send_signal(signal.SIGCONT)
            assert stopped.wait(60) == 1
            assert "job.fenced" in c.log()
        other.wait_caught_up()
        assert other.info().state is ConnectionState.RUNNING
        assert other.close() == 0
        check(other)
