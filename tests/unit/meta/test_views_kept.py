"""What is kept for materialized views: their epochs, and what is known of their refreshes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta import epochs, tables, views
from headwater.meta.store import Meta
from headwater.meta.views import KEPT_REFRESHES, Fill, Refresh
from support.defined import add_table


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def view(c: Connection, name: str) -> int:
    id = add_table(c, name, connection_id=0)
    views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=None)
    return id


def refreshed(c: Connection, id: int, to: int) -> None:
    views.record(c, id, Refresh(to - 1, to, "rows", "", 1, 1, 1.0))


def test_epochs_at_which_views_stop_or_are_filled_outlive_the_retention(c: Connection) -> None:
    filled, filling = view(c, "filled"), view(c, "filling")
    first, stop, other, fill, newest = (epochs.publish(c, [], {}).id for _ in range(5))
    views.add_barrier(c, stop)
    views.add_version(c, filled, stop)
    views.set_fill(c, filled, Fill(first, 1))  # it has a version: its fill needs nothing more
    views.set_fill(c, filling, Fill(fill, 1))
    c.execute(sa.update(tables.epoch).values(created_at=0.0))
    assert epochs.thin(c, 1.0) == 2
    assert epochs.kept(c) == [stop, fill, newest] and other not in epochs.kept(c)
    assert epochs.pinned_by(c) == [(stop, epochs.VIEWS), (fill, epochs.VIEWS)]


def test_of_each_view_the_newest_refreshes_are_kept(c: Connection) -> None:
    busy, quiet = view(c, "busy"), view(c, "quiet")
    refreshed(c, quiet, 1)
    for to in range(1, KEPT_REFRESHES + 6):
        refreshed(c, busy, to)
    assert [r.to_epoch for r in views.refreshes(c, busy)] == list(range(KEPT_REFRESHES + 5, 5, -1))
    assert [r.to_epoch for r in views.refreshes(c, quiet)] == [1], "whatever others do"
