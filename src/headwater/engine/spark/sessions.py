"""Spark sessions for statements: each statement has its own, so that temp views never clash."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext

from pyspark.sql import DataFrame, SparkSession

from headwater.engine.running import Running
from headwater.engine.spark.conf import SHUFFLED
from headwater.engine.spark.jobs import pool, share, stoppable
from headwater.relation.schema import quoted
from headwater.relation.session import reading

LEAST_SHUFFLED = 4


class Pooled:
    """A session in UTC whose temp views are the tables that one statement reads.

    Views are cached: the next statement in this session that needs the same rows reuses them. So the cost of a query
    over many tables depends on how many have changed since the last one, not on how many there are.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._views: dict[str, object] = {}  # name → what the view shows

    def only(self, names: Collection[str]) -> None:
        """Drops every view but these."""
        for name in self._views.keys() - set(names):
            self.session.catalog.dropTempView(name)  # by its exact name: a session may be case-sensitive
            del self._views[name]

    def show(self, name: str, what: object, frame: Callable[[], DataFrame]) -> None:
        """Makes `name` a view of the frame, unless it already shows `what`."""
        if self._views.get(name) != what:
            frame().createOrReplaceTempView(quoted(name))
            self._views[name] = what


class Sessions:
    """Pooled sessions. Each also has its own scheduler pool: within one pool the first query's tasks go first."""

    def __init__(self, root: SparkSession) -> None:
        self.root = root
        self._free: list[tuple[int, Pooled]] = []
        self._made = 0
        self._lock = threading.Lock()

    @contextmanager
    def use(self, query: Running | None = None) -> Iterator[Pooled]:
        """A session whose work is cancelled with the query; the most recently used one, because its views are warm."""
        number, pooled = self._take()
        try:
            stopping = stoppable(pooled.session, query) if query else nullcontext()
            with pool(pooled.session, f"queries-{number}"), stopping:
                yield pooled
        finally:
            with self._lock:
                self._free.append((number, pooled))

    def _take(self) -> tuple[int, Pooled]:
        with self._lock:
            if self._free:
                return self._free.pop()
            self._made += 1
            number = self._made
        session = reading(self.root)
        if not session.sparkContext.getConf().contains(SHUFFLED):  # a cluster, or the user's own session
            session.conf.set(SHUFFLED, str(max(LEAST_SHUFFLED, share(session))))
        return number, Pooled(session)
