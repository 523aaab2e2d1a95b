"""What the server looks at by itself: rates while tables are read, errors as they come, upstreams that are silent."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.engine.home import Home
from headwater.engine.live import Lag
from headwater.engine.status import sampler as pulse
from headwater.engine.status.sampler import Sampler
from headwater.engine.status.status import status_of
from headwater.errors import DataError, Retry, SourceError
from headwater.meta import connections, relations, spans
from headwater.model import ConnectionState, Control, ScanResult, Span, TableState
from headwater.source.upstream import LogEnd
from headwater.sql import listing
from headwater.sql.parse import parse
from support.defined import home_with


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pulse, "time", clock)
    return clock


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path / "home", "orders") as opened:
        yield opened


def test_a_rate_is_that_of_the_time_in_which_the_table_is_read(home: Home, clock: Clock) -> None:
    seen = Sampler(home)
    for _ in range(20):  # it waits
        seen.look()
        clock.now += 1
    with home.meta.write() as c:
        relations.set_state(c, 1, TableState.FILLING)
        spans.add(c, 1, [Span(None, None)] * 2, 1.0)
        first, _ = spans.all(c, 1)
    seen.look()
    clock.now += 2
    with home.meta.write() as c:
        spans.scanned(c, first.id, ScanResult("1:1:", "0/9", (), 1000), 0, "life")
    seen.look()
    assert seen.rate(1) == 500.0
    with home.meta.write() as c:
        relations.set_control(c, 1, Control.PAUSED)
    seen.look()
    assert seen.rate(1) == 0.0


def test_an_error_is_counted_when_it_comes_and_not_while_it_stays(home: Home) -> None:
    seen = Sampler(home)
    lost = SourceError("source.unreachable", "no answer", "Wait.", Retry.AUTO)
    for error in (lost, lost, None, lost):
        with home.meta.write() as c:
            connections.set_state(c, 1, ConnectionState.RETRYING if error else ConnectionState.RUNNING, error)
        seen.look()
        seen.look()
    with home.meta.write() as c:
        relations.set_state(c, 1, TableState.FAILED, DataError("data.rewritten", "it was", "RESYNC TABLE orders;"))
    seen.look()
    assert home.live.counters.counted("headwater_errors_total") == {"source.unreachable": 2, "data.rewritten": 1}


def test_an_upstream_that_does_not_answer_is_left_alone_for_a_while(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    answers = True

    class Upstream:
        def log_end(self, since: str) -> LogEnd:
            asked.append(clock.now)
            if not answers:
                raise SourceError("source.unreachable", "no answer", "Wait.", Retry.AUTO)
            return LogEnd("0/20", 16, 100, None)

    monkeypatch.setattr(pulse, "upstream_of", lambda meta, id: Upstream())
    seen = Sampler(home)
    seen.ask()
    assert seen.lag(1, "0/10") == Lag(16, 0.0) and seen.log_end(1) == LogEnd("0/20", 16, 100, None)
    answers = False
    for _ in range(10):
        clock.now += 2
        seen.ask()
    assert len(asked) == 1 + 2, "asked again after ten seconds, not every two"
    assert seen.log_end(1) is None and seen.lag(1, "0/10") == Lag(16, 20.0)
    clock.now += 2
    assert seen.lag(1, "0/10") is None, "nobody knows any more"


def test_an_upstream_that_accepts_connections_and_is_silent_is_reported_with_since_when(
    home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its capture waits for the log, which is nothing unusual: it stays `running`."""
    seen = Sampler(home)

    class Upstream:
        def log_end(self, since: str) -> LogEnd:
            if hangs:
                for _ in range(2):  # the other loop goes on while this one waits for the answer
                    clock.now += pulse.SILENT_S - 1
                    seen.look()
                    told.append(status_of(home, None).connections[0].error)
                raise SourceError("source.unreachable", "timeout", "Wait.", Retry.AUTO)
            return LogEnd("0/20", 16, 100, None)

    monkeypatch.setattr(pulse, "upstream_of", lambda meta, id: Upstream())
    answered = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
    monkeypatch.setattr(pulse, "_now", lambda: answered)
    told: list[str] = []
    hangs = False
    seen.ask()
    hangs = True
    seen.ask()
    shown = "the upstream has not answered since 2026-05-04 03:02:01 UTC"
    assert told == ["", shown], "after a while, and not at once"
    rows = listing.run(home, parse("SHOW CONNECTIONS")[0]).rows
    assert rows is not None
    (row,) = rows.to_pylist()
    assert row["error"] == f"{shown} (source.unreachable)"
    assert status_of(home, None).tables[0].error == shown
    for _ in range(3):
        seen.look()
    assert home.live.counters.counted("headwater_errors_total") == {"source.unreachable": 1}
    clock.now += pulse.ASK_AGAIN_S + 1
    hangs = False
    seen.ask()
    seen.look()
    assert status_of(home, None).connections[0].error == ""


def test_an_upstream_that_refuses_is_not_silent(home: Home, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Upstream:
        def log_end(self, since: str) -> LogEnd:
            raise SourceError("source.authentication", "wrong password", "Correct it.")

    monkeypatch.setattr(pulse, "upstream_of", lambda meta, id: Upstream())
    seen = Sampler(home)
    for _ in range(5):
        seen.ask()
        clock.now += pulse.ASK_AGAIN_S + 1
        seen.look()
    assert status_of(home, None).connections[0].error == ""


def test_an_upstream_that_its_capture_cannot_reach_is_not_asked(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "upstream_of", lambda meta, id: pytest.fail("asked"))
    with home.meta.write() as c:
        lost = SourceError("source.unreachable", "no answer", "Wait.", Retry.AUTO)
        connections.set_state(c, 1, ConnectionState.RETRYING, lost)
    Sampler(home).ask()
