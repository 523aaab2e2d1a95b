"""The trees of stored queries: analysed once per Spark, and again when an input's columns have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headwater.engine.home import Home
from headwater.meta import plain_views, relations
from headwater.model import RelationInfo
from headwater.view.plan import read_plan
from headwater.view.tree import InputColumn, InputSchema, Tree


def input_schema(relation: RelationInfo) -> InputSchema:
    """What a query may see of a relation. Key columns of a view that its readers do not see identify its rows, too."""
    shown = [InputColumn(c.name, c.lake_type, c.nullable) for c in relation.shown_columns]
    seen = {c.name for c in relation.shown_columns}
    hidden = [InputColumn(c.name, c.lake_type, c.nullable) for c in relation.key_columns if c.name not in seen]
    return InputSchema(tuple(shown), relation.key, tuple(hidden))


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
            inputs = {r.name: input_schema(r) for r in (relations.get(c, id) for id in relation.view.inputs)}
            plain = {v.name: v.query for v in plain_views.all(c)}
        what = (id(session), relation.view.query, tuple(inputs.items()), tuple(plain.items()))
        with self._lock:
            known = self._known.get(relation.id)
            if known is None or known[0] != what:
                known = self._known[relation.id] = what, read_plan(session, relation.view.query, inputs, plain)
            return known[1]
