"""A query at one epoch: relations and changelog calls become temp views, Spark does the rest."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater.engine.read import Reader
from headwater.engine.results import Result
from headwater.sql.refusal import refusal
from headwater.sql.statements import Query


def run_query(reader: Reader, query: Query, *, prefix: str = "", require_complete: bool = False) -> Result:
    """The rows of a query, every relation in it at the newest epoch."""
    with reader.pinned(query.identifiers, require_complete=require_complete) as at:
        views = []
        for i, call in enumerate(query.changelog_calls):
            views.append(
                at.show_changelog(f"__changelog_{i}", call.connection, call.table, call.from_index, call.to_index)
            )
        try:
            frame = at.session.sql(prefix + query.with_views(tuple(views)))
            rows = _collected(frame)
        except (PySparkException, Py4JError) as e:  # a job that fails while it runs comes as the second
            raise refusal(e, query, prefix) from e
        types = tuple(f.dataType.simpleString().upper() for f in frame.schema.fields)
        return Result(tuple(frame.columns), types, rows, "", at.warnings, query.text)


def _collected(frame: DataFrame) -> pa.Table:
    """The answer itself, which the user asked to see. Names may repeat, so columns go by place."""
    return frame.toArrow()
