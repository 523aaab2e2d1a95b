"""The queries running in this process: who runs each, since when, and how to cancel it.

A query runs in its own thread, so that its caller learns of a cancellation before Spark has stopped, and Ctrl-C never
interrupts a call to the JVM.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self, TypeVar

from headwater.engine.caller import Caller, current
from headwater.errors import DefinitionError, QueryError

T = TypeVar("T")

AGAIN_S = 0.1  # a cancelled query may be between two jobs, so the cancellation is repeated until it ends
END_S = 10.0  # how long a cancelled query's caller waits for Spark to stop


@dataclass(frozen=True, slots=True)
class Wanted:
    """A caller's requirements for a result: from complete tables only, within this time, no older than this.

    `fresh`: its views must hold what was published when the statement began, and may be waited for.
    """

    require_complete: bool = False
    timeout_s: float | None = None
    max_age_s: float | None = None
    fresh: bool = False

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Self:
        """The requirements in a request; the rest of it is ignored."""
        return cls(**{f.name: asked[f.name] for f in fields(cls) if f.name in asked})


AS_IT_IS = Wanted()


class Why(StrEnum):
    """Why a query was cancelled."""

    ASKED = "cancelled by CANCEL QUERY"
    INTERRUPTED = "cancelled"
    CALLER_GONE = "cancelled: its client went away"
    STOPPING = "cancelled: the server is stopping"
    TIMEOUT = "timed out"


@dataclass(slots=True)
class Running:
    """A running query. `_stop` cancels its work in Spark; None while Spark has none."""

    id: int
    text: str
    caller: Caller
    since: float
    timeout_s: float | None = None
    why: Why | None = None
    _stop: Callable[[], None] | None = None
    _done: threading.Event = field(default_factory=threading.Event)  # it has ended, or was cancelled
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tag(self) -> str:
        return f"headwater-query-{self.id}"

    @property
    def state(self) -> str:
        return "running" if self.why is None else "cancelling"

    def stop_with(self, stop: Callable[[], None] | None) -> None:
        """Sets how to cancel the query's work in Spark; None once there is none left."""
        with self._lock:
            self._stop = stop

    def check(self) -> None:
        """Raises if the query has been cancelled."""
        if self.why is not None:
            raise self._error(self.why)

    def cancel(self, why: Why) -> None:
        """Cancels the query; returns immediately. The first reason counts."""
        with self._lock:
            if self.why is not None or self._ended.is_set():
                return
            self.why = why
            self._done.set()
        threading.Thread(target=self._keep_stopping, name=f"cancel-{self.id}", daemon=True).start()

    def end(self) -> None:
        """Marks the query as ended: nothing of it is running any more."""
        self._ended.set()
        self._done.set()

    def _keep_stopping(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                if self._stop is not None:
                    self._stop()
            self._ended.wait(AGAIN_S)

    def _error(self, why: Why) -> QueryError:
        if why is Why.TIMEOUT:
            return QueryError(
                "query.timeout", f"the query ran for longer than {self.timeout_s:g} s", "Use a longer --timeout."
            )
        return QueryError("query.cancelled", f"the query was {why}", "Run it again if you need its result.")


class Queries:
    """One per open home."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._running: dict[int, Running] = {}
        self._lock = threading.Lock()

    def run(self, text: str, work: Callable[[Running], T], timeout_s: float | None = None) -> T:
        """The result of `work`. A disconnected caller, KeyboardInterrupt, the timeout and `cancel` end it early."""
        query = Running(next(self._numbers), text, current(), time.time(), timeout_s)
        answer: list[T] = []
        error: list[BaseException] = []

        def in_thread() -> None:
            try:
                query.check()
                answer.append(work(query))
            except BaseException as e:
                error.append(e)
            finally:
                with self._lock:
                    del self._running[query.id]
                query.end()

        with self._lock:
            self._running[query.id] = query
        query.caller.when_gone(lambda: query.cancel(Why.CALLER_GONE))
        context = copy_context()  # so that `current()` returns the caller in the new thread
        threading.Thread(target=context.run, args=(in_thread,), name=query.tag, daemon=True).start()
        try:
            _await(query)
        except BaseException:
            query.cancel(Why.INTERRUPTED)
            _await_end(query)
            raise
        if query.why is not None:
            # the cancellation counts, whatever error Spark raised; but a result that was ready by then is returned
            if answer:
                return answer[0]
            raise query._error(query.why) from (error[0] if error else None)
        if error:
            raise error[0]
        return answer[0]

    def all(self) -> list[Running]:
        """The running queries, oldest first."""
        with self._lock:
            return sorted(self._running.values(), key=lambda q: q.id)

    def cancel(self, id: int) -> None:
        """Cancels a query and waits for it to end."""
        with self._lock:
            query = self._running.get(id)
        if query is None:
            raise DefinitionError("name.unknown", f"no query {id} is running", "SHOW QUERIES lists what is running.")
        query.cancel(Why.ASKED)
        _await_end(query)

    def cancel_all(self) -> None:
        """Cancels every query: the server or the program is stopping."""
        left = self.all()
        for query in left:
            query.cancel(Why.STOPPING)
        for query in left:
            _await_end(query)


def _await(query: Running) -> None:
    """Waits for the query to end; after a cancellation only for a while: a hung JVM must not block the caller."""
    if not query._done.wait(query.timeout_s):
        query.cancel(Why.TIMEOUT)
    _await_end(query)


def _await_end(query: Running) -> None:
    if query._stop is not None:  # otherwise it waits for Spark to start, and ends as soon as that has happened
        query._ended.wait(END_S)
