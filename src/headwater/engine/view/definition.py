"""The trees of stored queries: analysed once per Spark, and again when an input's columns have changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.errors import DataError, HeadwaterError
from headwater.meta import relations
from headwater.model import RelationInfo, ViewOrigin
from headwater.view.inputs import input_schema
from headwater.view.plan import read_plan
from headwater.view.shape import Shape, shape
from headwater.view.tree import InputSchema, Tree


class Reshaped(Exception):
    """A view's query gives the same columns as before but other hidden ones: it must be filled again."""

    def __init__(self, found: Shape) -> None:
        super().__init__("an input has changed: the view is filled again beside itself")
        self.found = found


@dataclass(slots=True)
class Trees:
    """Thread-safe. A tree has expressions of one JVM, so it lasts as long as its session."""

    home: Home
    session: Callable[[], SparkSession]
    _known: dict[int, tuple[object, Tree]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, relation: RelationInfo) -> Tree:
        """The tree of a view's query over its inputs as they are now; `Reshaped` if it must be filled again first."""
        assert relation.view is not None
        session = self.session()
        with self.home.meta.read() as c:
            inputs = {r.name: input_schema(r.columns, r.key, r.view is not None) for r in _inputs(c, relation.view)}
        what = (session, relation.view.query, tuple(inputs.items()))
        with self._lock:
            known = self._known.get(relation.id)
            if known is None or known[0] != what:
                known = self._known[relation.id] = what, _checked(session, relation, inputs)
            return known[1]

    def forget(self, ids: Collection[int]) -> None:
        """Lets go of the trees of all other views."""
        with self._lock:
            for gone in self._known.keys() - set(ids):
                del self._known[gone]


def _checked(session: SparkSession, relation: RelationInfo, inputs: Mapping[str, InputSchema]) -> Tree:
    """The tree, if its rows are still those that the view stores."""
    assert relation.view is not None
    try:
        found = read_plan(session, relation.view.query, inputs)
    except AnalysisException as e:
        raise _input_changed(relation, f"its query no longer works: {_first_line(e)}") from e
    check_stored(relation, shape(found))
    return found


def check_stored(relation: RelationInfo, now: Shape) -> None:
    """Raises if the rows of a view's query do not fit those that it stores: `Reshaped` if it can be filled again."""
    stored, given = ([(c.name, c.lake_type) for c in relation.columns], [(c.name, c.type) for c in now.columns])
    shown, visible = stored[: len(relation.shown_columns)], given[: now.visible]
    if shown != visible:
        names = sorted({name for name, _ in set(shown) ^ set(visible)})
        raise _input_changed(relation, f"its query now gives other columns or types: {', '.join(names)}")
    # by the old key, rows that are different now would replace each other
    if stored != given or relation.key != now.key or _may_be_null(relation, now):
        raise Reshaped(now)


def _may_be_null(relation: RelationInfo, now: Shape) -> bool:
    """Whether a column that was declared NOT NULL may hold NULL now: how keys are compared depends on that."""
    return any(new.nullable and not old.nullable for old, new in zip(relation.columns, now.columns, strict=True))


def _input_changed(relation: RelationInfo, why: str) -> HeadwaterError:
    return DataError(
        "view.input_changed",
        f"an input of {relation.name} has changed: {why}",
        f"DROP MATERIALIZED VIEW {relation.name} and create it again; until then it stays readable as it was.",
    )


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def _inputs(c: Connection, view: ViewOrigin) -> list[RelationInfo]:
    return [relations.get(c, id) for id in view.inputs]
