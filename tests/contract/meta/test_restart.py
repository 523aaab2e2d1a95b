"""Meta on PostgreSQL goes away and comes back: every loop of the server waits for it and goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.backoff import Backoff
from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine import failures
from headwater.engine.commit.clean import Cleaner
from headwater.engine.home import Home
from headwater.engine.serve.server import Server, _Loop
from headwater.engine.status.sampler import Sampler
from headwater.errors import MachineError
from headwater.meta import connections, epochs
from headwater.meta.store import Meta
from headwater.ownership.names import Name
from headwater.relation.overlay import Overlays
from headwater.storage import LocalStorage
from support.owned import acquired, serving
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


def test_every_loop_goes_on_when_meta_is_back(
    database: EmbeddedPostgres, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "BACKOFF", Backoff(0.5, 1.0))
    with home.meta.write() as c:
        id = connections.add(c, name="pg", type="postgres-cdc", options={}, secret=None, position="0/10")
        leases = serving(c)
    server = Server(home)
    server._leases = leases
    cleaner = Cleaner(home, leases, Overlays(home.storage, home.meta))
    rounds = dict.fromkeys(("epochs", "covers", "rates", "clean"), 0)
    works = {"epochs": server._publish, "covers": server._cover, "rates": Sampler(home).look, "clean": cleaner.clean}

    def counting(name: str) -> None:
        works[name]()
        rounds[name] += 1

    threads = []
    for name in works:
        loop = _Loop(name, lambda name=name: counting(name), 0.01)  # type: ignore[misc]
        threads.append(threading.Thread(target=server._repeat, args=(loop,)))
        threads[-1].start()
    try:
        wait_for(lambda: all(rounds.values()), "every loop has been round once")
        database.crash()
        # a cleaning's steps fail apart from each other, so each that needs meta says so itself
        failing = {"epochs", "covers", "rates", "retention", "sweep", "dropped"}
        wait_for(lambda: {job for job, _ in home.live.failures.of()} == failing, "every loop says so")
        assert {e.code for _, e in home.live.failures.of()} == {"meta.unreachable"}
        database.start()
        before = dict(rounds)
        wait_for(lambda: all(rounds[n] > before[n] for n in rounds), "every loop goes on")
        wait_for(lambda: not home.live.failures.of(), "nothing fails any more")
        with home.meta.write() as c:
            connections.advance(c, id, "0/20")
            assert epochs.newest(c) is not None
    finally:
        server._stopping.set()
        for thread in threads:
            thread.join(30)
    assert server.failure is None


def test_a_transaction_that_meta_interrupts_is_one_of_our_errors(database: EmbeddedPostgres, home: Home) -> None:
    with pytest.raises(MachineError) as e, home.meta.write() as c:
        acquired(c, Name.relation(1))
        database.restart()
        acquired(c, Name.relation(2))
    assert (e.value.code, e.value.retry) == ("meta.unreachable", "auto")
    with home.meta.write() as c:
        assert acquired(c, Name.relation(1), "other").fence == 1, "nothing of it was stored"
