"""Random kills of everything, again and again, while writers go on and cuts are compared. Minutes long: `make soak`.

HEADWATER_SOAK_S says how long (default 300 s), HEADWATER_SOAK_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from support import upstreams
from support.invariant import QUERY, check_invariant
from support.lake import Lake, await_equal
from support.upstreams import Upstream
from support.wait import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb, pytest.mark.mysql]


@dataclass
class Storm:
    """What the events act on, and what they choose by."""

    lake: Lake
    upstream: Upstream
    pick: random.Random
    threads: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def sql(self, text: str, *allowed: str) -> None:
        """Runs statements; the server may just be gone, and other refusals must be allowed ones."""
        try:
            self.lake.remote().ask(text)
        except HeadwaterError as e:
            assert e.code in ("server.unreachable", *allowed), (text, e)

    def defined(self) -> None:
        """Waits until the server answers and has defined every table (which takes an upstream that answers)."""
        names = set(self.upstream.tables)
        wait_for(lambda: names <= {t.name for t in self.lake.status().tables}, "everything is defined")

    def all_live(self) -> None:
        """Waits until every table, and every resync, is complete."""
        self.defined()
        for table in ("ints", "pairs", "parts", "whole"):
            self.sql(f"ALTER TABLE {table} SET (backfill.rate_limit = 1000000)")
            self.sql(f"RESUME BACKFILL {table}", "backfill.none")
        self.lake.wait_live(600)


def kill_server(s: Storm) -> None:
    s.lake.kill()
    s.lake.start()


def kill_capture(s: Storm) -> None:
    for child in s.lake.children("headwater.capture.process"):
        child.kill()


def kill_worker(s: Storm) -> None:
    workers = s.lake.children("headwater.engine.spark.workers")
    if workers:
        workers[-1].kill()


def crash_upstream(s: Storm) -> None:
    s.defined()  # a server that has yet to define a table asks the upstream, and ends if that is away
    s.upstream.crash()
    s.upstream.start()


def stop_and_start(s: Storm) -> None:
    s.lake.remote()
    s.lake.stop()
    s.lake.start()


def fold(s: Storm) -> None:
    for table in ("ints", "pairs", "padded"):
        s.sql(f"FOLD TABLE {table}", "job.failed")


def drop_and_create(s: Storm) -> None:
    table = s.pick.choice(("uuids", "names", "padded"))
    s.sql(f"DROP TABLE IF EXISTS {table}", "source.unreachable", "source.disconnected", "source.failed")
    s.lake.kill()  # the next start makes it again
    s.lake.start()


def resync(s: Storm) -> None:
    table = s.pick.choice(("ints", "pairs", "parts", "padded", "whole"))
    dropped = ("name.unknown",) if table == "padded" else ()  # and not made again yet
    s.sql(f"RESYNC TABLE {table}", "source.unreachable", "source.disconnected", "source.failed", *dropped)


def change_pace(s: Storm) -> None:
    table = s.pick.choice(("ints", "pairs", "parts", "whole"))
    s.sql(f"ALTER TABLE {table} SET (backfill.rate_limit = {s.pick.choice((50, 500, 5000))})")
    if s.pick.random() < 0.5:
        s.sql(f"PAUSE BACKFILL {table}", "backfill.none")
        s.sql(f"RESUME BACKFILL {table}", "backfill.none")


def rewrite(s: Storm) -> None:
    """A statement that the log does not tell in rows, perhaps in the middle of a scan; a resync follows."""
    with s.upstream.session() as run:
        for statement in s.upstream.rewrite:
            run(statement)
    s.sql("RESYNC TABLE parts", "source.unreachable", "source.disconnected", "source.failed")


def long_transaction(s: Storm) -> None:
    """A transaction that stays open for a while, prepared or not, while other events go on."""
    seconds, commit, prepare = s.pick.uniform(1, 8), s.pick.random() < 0.6, s.pick.random() < 0.5

    def run() -> None:
        try:  # the length of the transaction is the event
            s.upstream.hold(lambda: s.over.wait(seconds), commit=commit, prepare=prepare)
        except s.upstream.errors:
            return  # the server crashed, or somebody else was first

    s.threads.append(threading.Thread(target=run))
    s.threads[-1].start()


EVENTS = (
    *(kill_server, kill_capture, kill_capture, kill_worker, crash_upstream, stop_and_start, fold),
    *(drop_and_create, resync, resync, change_pace, change_pace, rewrite, long_transaction, long_transaction),
)
SHORT = (resync, kill_server, rewrite, long_transaction, crash_upstream, change_pace, kill_capture)
SAMPLE = 3  # of them in a short storm: each costs a start of the server, or nearly


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", upstreams.EVERY, ids=lambda k: k.name)
def test_nothing_is_lost_or_doubled_whatever_is_killed(
    kind: type[Upstream], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    seconds = float(os.environ.get("HEADWATER_SOAK_S") or 300)

    def events(pick: random.Random) -> Iterator[Event]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield pick.choice(EVENTS)

    upstreams.expect(request, kind)
    storm(kind, tmp_path, events, upstreams.new_seed())


def test_a_short_storm_loses_and_doubles_nothing(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Other events, and perhaps another kind, each time; long storms over all of them are in `make soak`."""
    kind, seed = upstreams.choose(upstreams.EVERY)
    upstreams.expect(request, kind)
    storm(kind, tmp_path, lambda pick: iter(pick.sample(SHORT, SAMPLE)), seed, compare=0.2)


Event = Callable[[Storm], None]
# a kill just before; a table of which a rewrite has just been noticed is left out the next time
PASSING = ("source.", "server.", "job.", "spark.", "data.rewritten")


def storm(
    kind: type[Upstream],
    tmp_path: Path,
    events: Callable[[random.Random], Iterator[Event]],
    seed: int,
    compare: float = 0.5,
) -> None:
    """Writers and events at once; now and then, and at the end, everything is compared at one cut."""
    pick = random.Random(seed)
    with kind.serve() as upstream:
        upstream.create_schema(rows=300, seed=seed)
        lake = Lake(tmp_path / "home", upstream.definitions(upstream.tables))
        lake.start()
        s = Storm(lake, upstream, pick)
        s.defined()
        try:
            with upstream.writer(seed, rate=40, sessions=4, crashes=True):
                for number, event in enumerate(events(pick), 1):
                    print(f"{event.__name__}", flush=True)
                    event(s)
                    if pick.random() < 0.8:  # else the next one strikes while this one is being mended
                        s.defined()
                        s.over.wait(pick.uniform(0, 5))  # how far it gets before the next one is chance
                    if pick.random() < compare:
                        _compare(lake, filling=True)
                    if number % 10 == 0:  # nothing may stay behind for ever
                        s.all_live()
                s.all_live()
                _compare(lake)
                check_invariant(*lake.remote().ask(QUERY)[0].rows.to_pylist()[0].values())
        finally:
            s.over.set()
            for thread in s.threads:
                thread.join(30)
            if lake.process is not None and lake.process.poll() is None:
                lake.kill()


def _compare(lake: Lake, *, filling: bool = False) -> None:
    """All tables at one cut; a kill just before may make the comparison itself impossible for a while."""

    def verify() -> list[Any] | None:
        try:
            found = lake.verify()
        except HeadwaterError as e:
            assert e.code.startswith(PASSING), e
            return None
        for v in found:
            assert v.equal or v.skipped or v.code.startswith(PASSING), v
        return None if any(v.code for v in found) else found

    await_equal(verify, filling=filling)
