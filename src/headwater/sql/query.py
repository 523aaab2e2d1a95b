"""A query at one epoch: relations and changelog calls become temp views, Spark does the rest."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater.engine.read import Reader
from headwater.engine.results import Result
from headwater.errors import HeadwaterError, SqlError
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
        except PySparkException as e:
            raise _refused(e) from e
        types = tuple(f.dataType.simpleString().upper() for f in frame.schema.fields)
        return Result(tuple(frame.columns), types, rows, "", at.warnings, query.text)


def _collected(frame: DataFrame) -> pa.Table:
    """The answer itself, which the user asked to see. Names may repeat, so columns go by place."""
    return frame.toArrow()


def _refused(error: PySparkException) -> HeadwaterError:
    """Spark's refusal as ours: its message without the plan and the JVM's stack."""
    text = str(error).split("JVM stacktrace:")[0].strip()
    lines = [line for line in text.splitlines() if line.strip()]
    cut = next((i for i, line in enumerate(lines) if line.startswith(("'", "+-", "== SQL"))), len(lines))
    message = " ".join(lines[: max(cut, 1)])[:2000]
    hint = "Correct the query; its tables are listed by SHOW TABLES."
    return SqlError("sql.query", message, hint)
