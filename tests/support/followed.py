"""A table and a view over it in meta, without rows."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from headwater.meta import epochs, views
from headwater.model import CoveredSpan, Layout, Span
from support.defined import add_table


def layout(id: int, index: int, *, complete: bool = True, connection_id: int = 1) -> Layout:
    return Layout(id, 0, (CoveredSpan(Span(None, None), index, index, (), connection_id),), complete)


def followed(c: Connection, block: int = 0) -> tuple[int, int, int]:
    """A table, a view over it, and the epoch at which the view is exact."""
    table, view = add_table(c, "t", block=block), add_table(c, "v", connection_id=0)
    views.add(c, view, query="SELECT 1", inputs=[table], uses={}, visible=0, order=[], limit=None)
    last = epochs.publish(c, [], {table: layout(table, 3)}).id
    epochs.put_layout(c, layout(view, last, connection_id=0), last)
    views.add_barrier(c, last)
    views.add_version(c, view, last)
    return table, view, last
