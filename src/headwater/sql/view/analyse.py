"""What Spark says about a view's query before it is stored: which names it means, its columns, its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.changelog.envelope import SCHEMA
from headwater.engine.query.net_changes import CHANGE_TYPE
from headwater.errors import DefinitionError, unknown_name
from headwater.model import Column
from headwater.relation.schema import quoted
from headwater.relation.session import reading
from headwater.sql.parse import parse
from headwater.sql.refusal import refusal
from headwater.sql.statements import ChangelogCall, ChangesCall, CreateMaterializedView, CreateView, Query
from headwater.sql.view.known import Known
from headwater.sql.view.names import in_message

NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Analysed:
    """A query as Spark understands it: the names in it, as they are spelled in meta, and its columns."""

    names: tuple[str, ...]
    columns: StructType
    files: tuple[str, ...]  # that it would read directly


def analyse(
    session: SparkSession, statement: CreateMaterializedView | CreateView, known: Mapping[str, Known]
) -> Analysed:
    """Analyses a definition's query over empty relations; raises Spark's complaint with its place in the definition.

    Spark is asked for one missing name after the other, so the names found are exactly those that the query means: an
    alias or a column may have the name of a table.
    """
    stage = _Stage(session, known)
    query = statement.query
    while True:
        try:
            frame = stage.frame(query, _indent(statement))
            calls = [known[c.relation.lower()].name for c in query.calls if isinstance(c, ChangesCall)]
            return Analysed(tuple(dict.fromkeys(stage.direct + calls)), frame.schema, tuple(frame.inputFiles()))
        except (PySparkException, Py4JError) as e:
            missing = _missing(e)
            if missing is not None and missing.lower() in known and missing.lower() not in stage.shown:
                stage.show(missing.lower())
                stage.direct.append(known[missing.lower()].name)
            elif missing is not None and missing.lower() == statement.name.lower():
                text = f"the query of {statement.name} names the view itself"
                raise DefinitionError("view.input", text, "Name its inputs instead.") from e
            elif missing is None and stage.show_candidates(query):
                continue  # what looked like another error may come from names that were not there
            else:
                raise refusal(e, _placed(statement), names=[k.name for k in known.values()]) from e


def columns_of(session: SparkSession, query: str, known: Mapping[str, Known]) -> StructType:
    """The columns of a stored query."""
    (parsed,) = parse(query)
    assert isinstance(parsed, Query)
    stage = _Stage(session, known)
    stage.show_candidates(parsed)
    try:
        return stage.frame(parsed).schema
    except (PySparkException, Py4JError) as e:
        raise refusal(e, parsed, names=[k.name for k in known.values()]) from e


class _Stage:
    """A session of its own in which relations are empty views."""

    def __init__(self, session: SparkSession, known: Mapping[str, Known]) -> None:
        self._session = reading(session)
        self._known = known
        self._calls = 0
        self.shown: set[str] = set()
        self.direct: list[str] = []  # what the query itself names

    def frame(self, query: Query, indent: int = 0) -> DataFrame:
        return self._session.sql(" " * indent + query.with_views(tuple(map(self._call, query.calls))))

    def show(self, name: str) -> None:
        """Makes a relation or a plain view visible to queries."""
        self._frame_of(name).createOrReplaceTempView(quoted(self._known[name].name))
        self.shown.add(name)

    def _frame_of(self, name: str) -> DataFrame:
        """A relation without rows, or a plain view; what that one names is visible to itself only."""
        known = self._known[name]
        if not known.query:
            return self._empty(known.shown)
        hidden = [each for each in known.inputs if each.lower() not in self.shown]
        for each in hidden:
            self._frame_of(each.lower()).createOrReplaceTempView(quoted(each))
        (query,) = parse(known.query)
        assert isinstance(query, Query)
        frame = self.frame(query)
        for each in hidden:
            self._session.catalog.dropTempView(each)
        return frame

    def show_candidates(self, query: Query) -> bool:
        """Shows all that the query may name; whether something was not shown before."""
        found = [name for name in sorted(query.identifiers) if name in self._known and name not in self.shown]
        for name in found:
            self.show(name)
            self.direct.append(self._known[name].name)
        return bool(found)

    def _call(self, call: ChangelogCall | ChangesCall) -> str:
        """An empty view with the columns that a call has."""
        self._calls += 1
        view = f"__call_{self._calls}"
        if isinstance(call, ChangelogCall):
            self._session.createDataFrame(SCHEMA.empty_table()).createOrReplaceTempView(view)
            return view
        known = self._known.get(call.relation.lower())
        if known is None or known.query:
            raise unknown_name("table", call.relation, [k.name for k in self._known.values() if not k.query])
        self._empty(known.shown, f"{CHANGE_TYPE} STRING").createOrReplaceTempView(view)
        return view

    def _empty(self, columns: tuple[Column, ...], *more: str) -> DataFrame:
        ddl = ", ".join([*(f"{quoted(c.name)} {c.lake_type}" for c in columns), *more])
        return self._session.createDataFrame([], ddl)


def _missing(error: Exception) -> str | None:
    """The name that Spark did not find; empty if it has several parts, None if the error is another one."""
    if not isinstance(error, AnalysisException):
        return None
    found = re.match(rf"\[{NOT_FOUND}\].*?(`(?:[^`]|``)*`(?:\.`(?:[^`]|``)*`)*)", str(error))
    return None if found is None else in_message(found.group(1))


def _indent(statement: CreateMaterializedView | CreateView) -> int:
    """How far the query's first line is indented in the definition, so that Spark counts columns like the user."""
    before = statement.text[: len(statement.text) - len(statement.query.text)]
    return len(before) - (before.rfind("\n") + 1)


def _placed(statement: CreateMaterializedView | CreateView) -> Query:
    """The query with the whole of its first line, for messages."""
    begin = len(statement.text) - len(statement.query.text) - _indent(statement)
    return replace(statement.query, text=statement.text[begin:])
