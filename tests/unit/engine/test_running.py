"""Queries under way: whoever ends one, it is told to stop until it has, and its caller is told why."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from headwater.engine.caller import Caller, _current
from headwater.engine.running import Queries, Running, Why
from headwater.errors import DefinitionError, QueryError
from support.wait import wait_for


class Work:
    """Works until it is told to stop, the second time: the first call finds it between two jobs."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self._told = threading.Semaphore(0)

    def __call__(self, query: Running) -> str:
        query.stop_with(self._told.release)
        self.began.set()
        for _ in range(2):
            assert self._told.acquire(timeout=60)
        raise RuntimeError("Spark says that its job was cancelled")


class Asked:
    """A query in a thread of its own."""

    def __init__(self, queries: Queries, timeout_s: float | None = None, caller: Caller | None = None) -> None:
        self.error: BaseException | None = None
        self.work = Work()
        self._thread = threading.Thread(target=self._ask, args=(queries, timeout_s, caller))
        self._thread.start()
        assert self.work.began.wait(60)

    def _ask(self, queries: Queries, timeout_s: float | None, caller: Caller | None) -> None:
        _current.set(caller)
        try:
            queries.run("SELECT 1", self.work, timeout_s)
        except BaseException as e:
            self.error = e

    def ended(self) -> str:
        self._thread.join(60)
        assert isinstance(self.error, QueryError)
        return self.error.code


def test_an_answer_and_an_error_reach_the_caller() -> None:
    queries = Queries()
    assert queries.run("SELECT 1", lambda q: q.text) == "SELECT 1"
    with pytest.raises(ZeroDivisionError):
        queries.run("SELECT 1", lambda q: 1 // 0)
    assert queries.all() == []


def by_number(queries: Queries, _: Caller) -> None:
    queries.cancel(queries.all()[0].id)


def by_the_end(queries: Queries, _: Caller) -> None:
    queries.cancel_all()


def by_hanging_up(_: Queries, caller: Caller) -> None:
    caller.hang_up()


@pytest.mark.parametrize("end", [by_number, by_the_end, by_hanging_up])
def test_a_query_is_told_to_stop_until_it_has(end: Callable[[Queries, Caller], None]) -> None:
    queries, caller = Queries(), Caller("ann", 7)
    asked = Asked(queries, caller=caller)
    (running,) = queries.all()
    assert (running.text, str(running.caller), running.state) == ("SELECT 1", "ann (process 7)", "running")
    end(queries, caller)
    assert asked.ended() == "query.cancelled"
    assert queries.all() == []


def test_a_query_that_outlives_its_timeout_is_ended() -> None:
    assert Asked(Queries(), timeout_s=0.1).ended() == "query.timeout"


def test_a_caller_that_has_gone_before_its_query_begins_gets_none() -> None:
    queries, caller, began = Queries(), Caller("ann", 7), list[int]()
    caller.hang_up()
    token = _current.set(caller)
    try:
        with pytest.raises(QueryError):
            queries.run("SELECT 1", lambda q: began.append(q.id))
    finally:
        _current.reset(token)
    wait_for(lambda: not queries.all(), "nothing is left")
    assert began == []


def test_a_query_that_waits_for_spark_to_start_lets_its_caller_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.engine.running.END_S", 3600.0)
    queries, starts, gone = Queries(), threading.Event(), threading.Event()

    def ask() -> None:
        with pytest.raises(QueryError):
            queries.run("SELECT 1", lambda q: starts.wait(60), timeout_s=0.05)
        gone.set()

    threading.Thread(target=ask, daemon=True).start()
    assert gone.wait(30)
    assert [q.state for q in queries.all()] == ["cancelling"]
    starts.set()
    wait_for(lambda: not queries.all(), "it ends by itself")


def test_an_interrupt_ends_the_query(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, work = Queries(), Work()

    def interrupted(query: Running) -> None:
        assert work.began.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr("headwater.engine.running._await", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queries.run("SELECT 1", work)
    assert queries.all() == []


def test_an_answer_that_was_there_when_its_query_was_ended_is_given() -> None:
    queries, told = Queries(), threading.Event()

    def work(query: Running) -> str:
        query.stop_with(told.set)
        query.cancel(Why.ASKED)
        assert told.wait(60)
        return "the answer"

    assert queries.run("SELECT 1", work) == "the answer"


def test_the_first_reason_for_an_end_is_reported() -> None:
    queries = Queries()

    def work(query: Running) -> None:
        query.stop_with(lambda: None)
        query.cancel(Why.ASKED)
        query.cancel(Why.STOPPING)
        query.check()

    with pytest.raises(QueryError, match="the query was cancelled by CANCEL QUERY"):
        queries.run("SELECT 1", work)


def test_only_a_running_query_can_be_cancelled() -> None:
    with pytest.raises(DefinitionError, match="no query 5 is running"):
        Queries().cancel(5)
