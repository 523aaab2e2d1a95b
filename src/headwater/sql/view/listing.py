"""SHOW MATERIALIZED VIEWS, SHOW VIEWS, and DESCRIBE of a plain view."""

from __future__ import annotations

from pyspark.sql.types import StructType
from sqlalchemy.engine import Connection

from headwater.engine.live import Serving
from headwater.engine.results import Result
from headwater.engine.status.views import progress_of
from headwater.meta import plain_views as stored
from headwater.meta import relations
from headwater.sql.view.explain import Row
from headwater.sql.view.rows import DOUBLE, LONG, STRING, error_text, rows_of


def materialized_views(c: Connection, server: Serving | None) -> Result:
    """A row per materialized view: where it is, and what its last refresh did."""
    columns = [("name", STRING), ("state", STRING), ("epoch", LONG), ("lag_seconds", DOUBLE), ("strategy", STRING)]
    columns += [("reason", STRING), ("rows_read", LONG), ("rows_changed", LONG), ("milliseconds", DOUBLE)]
    columns += [("waits_for", STRING), ("error", STRING)]
    rows = []
    found = progress_of(c, relations.all(c), server)
    for r in relations.named(c):
        if r.view is None:
            continue
        p = found[r.id]
        last: tuple[object, ...] = (None,) * 5
        if p.last is not None:
            x = p.last
            last = (x.strategy, x.reason or None, x.rows_read, x.rows_changed, round(x.ms, 1))
        lag_s = None if p.lag_s is None else round(p.lag_s, 1)
        rows.append((r.name, r.shown_state, p.epoch or None, lag_s, *last, p.waiting_for or None, error_text(p.error)))
    return rows_of(columns, rows, "SHOW MATERIALIZED VIEWS")


def plain_views(c: Connection) -> Result:
    """A row per plain view: what it names, and its query."""
    columns = [("name", STRING), ("inputs", STRING), ("query", STRING)]
    rows = [(v.name, ", ".join(v.inputs), v.query) for v in stored.all(c)]
    return rows_of(columns, rows, "SHOW VIEWS")


def described(name: str, columns: StructType) -> Result:
    """The columns of a plain view."""
    listed = [("column", STRING), ("type", STRING), ("key", LONG), ("upstream_type", STRING)]
    rows = [(f.name, f.dataType.simpleString().upper(), None, None) for f in columns.fields]
    return rows_of(listed, rows, f"DESCRIBE {name}")


def explanation(name: str, rows: list[Row]) -> Result:
    """The rows of EXPLAIN MATERIALIZED VIEW."""
    columns = [("operator", STRING), ("rule", STRING), ("key", STRING), ("reads", STRING)]
    return rows_of(columns, rows, f"EXPLAIN MATERIALIZED VIEW {name}")
