"""Meta on PostgreSQL goes away and comes back: every loop of the server waits for it and goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from headwater.backoff import Backoff
from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine import failures
from headwater.engine.home import Home
from headwater.engine.serve.server import Server
from headwater.engine.serve.supervisor import Supervisor
from headwater.errors import MachineError
from headwater.meta import connections, epochs
from headwater.meta.store import Meta
from headwater.model import Epoch
from headwater.ownership.names import Name
from headwater.storage import LocalStorage
from support.owned import acquired
from support.wait import wait_for

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def database() -> Iterator[EmbeddedPostgres]:
    """A server of its own: it is crashed."""
    with EmbeddedPostgres(18) as server:
        yield server


@pytest.fixture
def home(database: EmbeddedPostgres, tmp_path: Path) -> Iterator[Home]:
    opened = Home(tmp_path, LocalStorage(tmp_path), Meta(database.dsn()))
    yield opened
    opened.meta.close()


@pytest.fixture
def server(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """All loops of a server, without the processes that they watch over: Spark and captures need no meta."""
    monkeypatch.setattr(failures, "BACKOFF", Backoff(0.5, 1.0))
    monkeypatch.setattr(Server, "_start_spark", lambda self: None)
    monkeypatch.setattr(Supervisor, "want", lambda self, ids: None)
    running = Server(home)
    running.start()
    yield running
    running.stop()
    assert running.failure is None


NEEDS_NO_META = {"spark"}
# a cleaning's steps fail apart from each other, so each that needs meta says so itself
PARTS = {"clean": {"retention", "sweep", "dropped"}}


def test_every_loop_continues_when_meta_is_back(database: EmbeddedPostgres, home: Home, server: Server) -> None:
    rounds = Counter[str]()

    def counted(name: str, work: Callable[[], None]) -> None:
        work()
        rounds[name] += 1

    for loop in server._loops:
        loop.work, loop.pause_s = partial(counted, loop.name, loop.work), 0.01
        loop.wake.set()
    names = [loop.name for loop in server._loops]
    wait_for(lambda: all(rounds[n] for n in names), "every loop has been round once")
    database.crash()
    failing = set[str]().union(*(PARTS.get(n, {n}) for n in names if n not in NEEDS_NO_META))
    wait_for(lambda: {job for job, _ in home.live.failures.of()} == failing, "every loop says so")
    assert {e.code for _, e in home.live.failures.of()} == {"meta.unreachable"}
    database.start()
    before = Counter(rounds)
    wait_for(lambda: all(rounds[n] > before[n] for n in names), "every loop goes on")
    wait_for(lambda: not home.live.failures.of(), "nothing fails any more")
    with home.meta.write() as c:
        seen = epochs.newest(c)
        connections.add(c, name="pg", type="postgres-cdc", options={}, secret=None, position="0/10")

    def newest() -> Epoch | None:
        with home.meta.read() as c:
            return epochs.newest(c)

    wait_for(lambda: newest() != seen, "what is new is published")


def test_a_transaction_that_meta_interrupts_is_one_of_our_errors(database: EmbeddedPostgres, home: Home) -> None:
    with pytest.raises(MachineError) as e, home.meta.write() as c:
        acquired(c, Name.relation(1))
        database.restart()
        acquired(c, Name.relation(2))
    assert (e.value.code, e.value.retry) == ("meta.unreachable", "auto")
    with home.meta.write() as c:
        assert acquired(c, Name.relation(1), "other").fence == 1, "nothing of it was stored"
