"""A query at one epoch: relations, plain views and our own functions become temp views, and Spark does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headwater.engine.query.freshness import worth_saying
from headwater.engine.query.read import Pinned, Reader
from headwater.engine.results import Behind, Result
from headwater.engine.running import Running, Wanted
from headwater.engine.spark.jobs import plan
from headwater.errors import QueryError
from headwater.meta.plain_views import PlainView
from headwater.sql.parse import parse
from headwater.sql.refusal import refusal
from headwater.sql.statements import ChangelogCall, Query
from headwater.sql.view import names


def run_query(
    reader: Reader, query: Query, plain: Sequence[PlainView], running: Running, wanted: Wanted, prefix: str = ""
) -> Result:
    """The rows of a query, every relation in it at one epoch.

    `plain` are the plain views that it names, and those that they name, each after those that it names.
    """
    queries = [(v.name, _parsed(v.query)) for v in plain]
    named = query.identifiers.union(*(q.identifiers for _, q in queries))
    with reader.pinned(
        named,
        require_complete=wanted.require_complete,
        query=running,
        fresh=wanted.fresh,
    ) as at:
        behind = at.behind({call.connection for q in (query, *(q for _, q in queries)) for call in q.changelog_calls})
        _refuse_old(behind, wanted.max_age_s)
        shown = _Functions(at)
        for name, own in queries:
            text = shown.in_place(own)
            try:
                at.pooled.show(name, object(), partial(at.session.sql, text))
            except PySparkException as e:
                refused = refusal(e, own, names=_names(at))
                raise refused.reworded(f"view {name}: {refused.message}") from e
        text = prefix + shown.in_place(query)
        try:
            frame = plan(at.session.sql(text))
            rows = frame.toArrow()
        except (PySparkException, Py4JError) as e:  # a job that fails while running raises the second
            raise refusal(e, query, prefix, _names(at)) from e
        types = tuple(f.dataType.simpleString().upper() for f in frame.schema.fields)
        late = worth_saying(behind)
        return Result(tuple(frame.columns), types, rows, "", at.warnings, query.text, late, at.epoch.id, at.age_s)


class _Functions:
    """`changelog(…)` and `changes(…)` as temp views of one statement."""

    def __init__(self, at: Pinned) -> None:
        self._at = at
        self._made = 0

    def in_place(self, query: Query) -> str:
        """The query's text with views in the place of its calls."""
        views = []
        for call in query.calls:
            self._made += 1
            if isinstance(call, ChangelogCall):
                name = f"__changelog_{self._made}"
                self._at.show_changelog(name, call.connection, call.table, call.from_index, call.to_index)
            else:
                name = f"__changes_{self._made}"
                self._at.show_changes(name, call.relation, call.from_epoch, call.to_epoch)
            views.append(name)
        return query.with_views(tuple(views))


def _names(at: Pinned) -> list[str]:
    with at.home.meta.read() as c:
        return names.names(c)


def _parsed(text: str) -> Query:
    (query,) = parse(text)
    assert isinstance(query, Query)
    return query


def _refuse_old(behind: list[Behind], max_age_s: float | None) -> None:
    old = [b for b in behind if max_age_s is not None and b.seconds > max_age_s]
    if old:
        raise QueryError(
            "query.stale",
            "; ".join(str(b) for b in old),
            "See `headwater status` for the reason; query without --max-age (max_age_s) to get the stale result.",
        )
