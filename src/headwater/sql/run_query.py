"""A query at one epoch: relations and changelog calls become temp views, and Spark does the rest."""

from __future__ import annotations

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from headwater.engine.query.freshness import worth_saying
from headwater.engine.query.read import Reader
from headwater.engine.results import Behind, Result
from headwater.engine.running import Running, Wanted
from headwater.engine.spark.jobs import plan
from headwater.errors import QueryError
from headwater.sql.refusal import refusal
from headwater.sql.statements import Query


def run_query(reader: Reader, query: Query, running: Running, wanted: Wanted, prefix: str = "") -> Result:
    """The rows of a query, every relation in it at the newest epoch."""
    with reader.pinned(query.identifiers, require_complete=wanted.require_complete, query=running) as at:
        behind = at.behind({call.connection for call in query.changelog_calls})
        _refuse_old(behind, wanted.max_age_s)
        views = []
        for i, call in enumerate(query.changelog_calls):
            views.append(
                at.show_changelog(f"__changelog_{i}", call.connection, call.table, call.from_index, call.to_index)
            )
        try:
            frame = plan(at.session.sql(prefix + query.with_views(tuple(views))))
            rows = frame.toArrow()
        except (PySparkException, Py4JError) as e:  # a job that fails while running raises the second
            raise refusal(e, query, prefix, reader.names()) from e
        types = tuple(f.dataType.simpleString().upper() for f in frame.schema.fields)
        return Result(tuple(frame.columns), types, rows, "", at.warnings, query.text, worth_saying(behind))


def _refuse_old(behind: list[Behind], max_age_s: float | None) -> None:
    old = [b for b in behind if max_age_s is not None and b.seconds > max_age_s]
    if old:
        raise QueryError(
            "query.stale",
            "; ".join(str(b) for b in old),
            "See `headwater status` for the reason; query without --max-age (max_age_s) to get the stale result.",
        )
