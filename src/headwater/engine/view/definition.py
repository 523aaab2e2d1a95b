"""The trees of stored queries: analysed once per Spark, and again when an input's columns have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.meta import relations
from headwater.model import RelationInfo, ViewOrigin
from headwater.view.inputs import input_schema
from headwater.view.plan import read_plan
from headwater.view.tree import Tree


@dataclass(slots=True)
class Trees:
    """Thread-safe. A tree has expressions of one JVM, so it lasts as long as its session."""

    home: Home
    session: Callable[[], SparkSession]
    _known: dict[int, tuple[object, Tree]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, relation: RelationInfo) -> Tree:
        """The tree of a view's query over its inputs as they are now."""
        assert relation.view is not None
        session = self.session()
        with self.home.meta.read() as c:
            inputs = {r.name: input_schema(r.columns, r.key, r.view is not None) for r in _inputs(c, relation.view)}
        what = (id(session), relation.view.query, tuple(inputs.items()))
        with self._lock:
            known = self._known.get(relation.id)
            if known is None or known[0] != what:
                known = self._known[relation.id] = what, read_plan(session, relation.view.query, inputs)
            return known[1]


def _inputs(c: Connection, view: ViewOrigin) -> list[RelationInfo]:
    return [relations.get(c, id) for id in view.inputs]
