"""Whose an error is: it is kept with its table, its connection or its loop, tried again later, and ends nobody else."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from py4j.protocol import Py4JNetworkError

from headwater.backoff import Backoff
from headwater.engine import failures
from headwater.engine.counters import Counters
from headwater.engine.failures import Failures, Who, described
from headwater.engine.fill.backfill import Backfill
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.engine.serve.server import Server, _Loop
from headwater.engine.status.status import status_of
from headwater.errors import DataError, FencedError, HeadwaterError, MachineError, Retry, Scope, SourceError
from headwater.model import RelationInfo, TableState
from headwater.ownership.lease import Leases
from support.defined import home_with
from support.owned import serving, taken_over
from support.wait import wait_for


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path / "home", "good", "bad") as opened:
        yield opened


@pytest.fixture
def leases(home: Home) -> Leases:
    with home.meta.write() as c:
        return serving(c)


def raising(error: Exception) -> Callable[[], bool]:
    def work() -> bool:
        raise error

    return work


def test_the_pause_doubles_up_to_a_minute_and_begins_again_after_a_success() -> None:
    clock, who = Clock(), Who("fold", table=1)
    kept = Failures(Counters(), clock)
    waits = [kept.failed(who, RuntimeError("no")).wait_s for _ in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert kept.backing_off(who)
    clock.now += 60
    assert not kept.backing_off(who)
    kept.succeeded(who)
    assert kept.failed(who, RuntimeError("no")).wait_s == 0.5


def test_work_that_is_backing_off_is_not_done_and_work_that_succeeds_is_no_longer_reported() -> None:
    clock, who, done = Clock(), Who("fold", table=1), list[int]()
    kept = Failures(Counters(), clock)
    assert not kept.attempt(who, raising(OSError("gone")), False)
    kept.attempt(who, lambda: done.append(1), None)
    assert done == []
    assert [job for job, _ in kept.of(table=1)] == ["fold"]
    clock.now += 1
    kept.attempt(who, lambda: done.append(1), None)
    assert done == [1] and kept.of(table=1) == []


def test_only_a_lost_lease_is_raised() -> None:
    kept = Failures(Counters())
    with pytest.raises(FencedError):
        kept.attempt(Who("fold"), raising(FencedError("job.fenced", "x")), False)
    for error in (MemoryError(), RuntimeError("x"), MachineError("spark.failed", "x"), OSError(errno.EIO, "x")):
        assert kept.attempt(Who(repr(error)), raising(error), 7) == 7


KNOWN = (
    (OSError(errno.ENOSPC, "No space left on device"), "home.disk_full"),
    (
        RuntimeError("org.apache.spark.SparkException: ... java.io.IOException: No space left on device"),
        "home.disk_full",
    ),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "home.disk_full"),
    (OSError(errno.EIO, "Input/output error"), "home.unusable"),
    (sa.exc.OperationalError("SELECT 1", {}, Exception("server closed the connection")), "meta.unreachable"),
    (ConnectionRefusedError(111, "Connection refused"), "spark.failed"),
    (Py4JNetworkError("Answer from Java side is empty"), "spark.failed"),
    (Py4JNetworkError("[FILE_NOT_EXIST] file:/h/warehouse/1/part-0.parquet"), "data.base_damaged"),
    (Py4JNetworkError("[FILE_NOT_EXIST] file:/h/runs/1/run-0.parquet"), "spark.failed"),
    (KeyError("x"), "job.failed"),
    (MemoryError(), "job.failed"),
)


@pytest.mark.parametrize(("error", "code"), KNOWN, ids=lambda x: x if isinstance(x, str) else type(x).__name__)
def test_every_error_has_a_code_and_whether_waiting_helps(error: Exception, code: str) -> None:
    known = described(error)
    assert (known.code, known.stops(Scope.TABLE)) == (code, code == "data.base_damaged")
    assert known.hint


def test_a_table_whose_data_is_at_fault_stops_and_any_other_error_is_retried(home: Home, leases: Leases) -> None:
    guard = Guard(home, leases)
    guard.attempt("fold", 1, raising(MachineError("spark.failed", "Spark is away", "Wait.", Retry.AUTO)), False)
    guard.attempt("fold", 2, raising(DataError("data.base_damaged", "a file is gone", "RESYNC TABLE bad")), False)
    good, bad = status_of(home, None).tables
    assert (good.state, good.code, good.retry) == ("defined", "spark.failed", "auto")
    assert (bad.state, bad.code, bad.hint) == (TableState.FAILED, "data.base_damaged", "RESYNC TABLE bad")
    assert guard.attempt("upkeep", 1, lambda: True, False), "another job of the same table does not rest"
    assert not guard.attempt("fold", 77, raising(KeyError("x")), False)
    assert home.live.failures.of(table=77) == [], "a table that was dropped has no failures"


def test_a_table_stops_only_for_what_waiting_does_not_fix_and_has_no_other_failures_then(
    home: Home, leases: Leases
) -> None:
    guard = Guard(home, leases)
    guard.attempt("fold", 1, raising(DataError("data.base_damaged", "not yet", "Wait.", Retry.AUTO)), False)
    guard.attempt("upkeep", 2, raising(MachineError("spark.failed", "Spark is away", "Wait.", Retry.AUTO)), False)
    good, bad = status_of(home, None).tables
    assert (good.state, good.code) == ("defined", "data.base_damaged")
    assert (bad.state, bad.code) == ("defined", "spark.failed")
    guard.stop(2, DataError("data.rewritten", "its rows changed", "RESYNC TABLE bad"))
    assert home.live.failures.of(table=2) == [] and len(home.live.failures.of(table=1)) == 1


def test_an_owner_that_lost_its_lease_stops_no_table(home: Home, leases: Leases) -> None:
    with home.meta.write() as c:
        taken_over(c)
    with pytest.raises(FencedError):
        Guard(home, leases).attempt("fold", 1, raising(DataError("data.base_damaged", "a file is gone")), False)
    assert {t.state for t in status_of(home, None).tables} == {"defined"}


def test_the_first_error_of_a_table_stays_when_its_backfill_fails_too(
    home: Home, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(home, leases)

    def step(self: Backfill, relation: RelationInfo, work: object) -> None:
        guard.stop(relation.id, DataError("data.rewritten", "its rows changed", "RESYNC TABLE"))  # the watcher's
        raise DataError("data.schema_changed", "a scan met another table", "RESYNC TABLE")

    monkeypatch.setattr(Backfill, "_step", step)
    Backfill(home, leases, lambda: None, lambda: None).tick()  # type: ignore[arg-type,return-value]
    assert {t.code for t in status_of(home, None).tables} == {"data.rewritten"}, "a restart would let it go on"


def test_an_error_of_the_connection_stops_none_of_its_tables(
    home: Home, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: Backfill, relation: RelationInfo, work: object) -> None:
        raise SourceError("source.authentication", "the upstream refused the user", "Correct the password.")

    monkeypatch.setattr(Backfill, "_step", step)
    Backfill(home, leases, lambda: None, lambda: None).tick()  # type: ignore[arg-type,return-value]
    found = status_of(home, None).tables
    assert {(t.state, t.code) for t in found} == {("defined", "source.authentication")}, "its capture goes on, too"


def test_a_loop_continues_after_any_error_and_shows_it_meanwhile(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "BACKOFF", Backoff(0.001, 60.0))
    errors: list[Exception] = [
        KeyError("a defect"),
        sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection")),
        SourceError("source.failed", "no"),
        ConnectionRefusedError(111, "Connection refused"),
    ]
    went_on, may_succeed = threading.Event(), threading.Event()
    running = Server(home)

    def work() -> None:
        if errors:
            raise errors.pop(0)
        if not may_succeed.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        went_on.set()

    loop = _Loop("folds", work, 0.001)
    thread = threading.Thread(target=running._repeat, args=(loop,))
    thread.start()
    wait_for(lambda: [j.code for j in status_of(home, None).jobs] == ["home.disk_full"], "the loop's error is shown")
    assert running.failure is None
    may_succeed.set()
    assert went_on.wait(60)
    wait_for(lambda: not status_of(home, None).jobs, "what is over is not shown")
    running._stopping.set()
    thread.join(10)
    counted = home.live.counters.counted("headwater_errors_total")
    assert {"job.failed", "meta.unreachable", "source.failed", "spark.failed", "home.disk_full"} <= set(counted)


def test_a_lost_lease_ends_the_server(home: Home) -> None:
    running = Server(home)

    def work() -> None:
        raise FencedError("job.fenced", "another one has it")

    running._repeat(_Loop("epochs", work, 0.001))
    failure: HeadwaterError | None = running.failure
    assert failure is not None and failure.code == "job.fenced"


def test_what_fails_because_everything_ends_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    counters = Counters()
    kept = Failures(counters)
    kept.ending = True
    kept.failed(Who("upkeep", table=1), AttributeError("'NoneType' object has no attribute 'setLocalProperty'"))
    assert caplog.records == [] and not counters.counted("headwater_errors_total")
    kept.ending = False
    kept.failed(Who("upkeep", table=1), AttributeError("of ours"))
    assert [r.levelname for r in caplog.records] == ["WARNING"] and counters.counted("headwater_errors_total")
