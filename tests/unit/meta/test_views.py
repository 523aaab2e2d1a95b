"""What is kept of a view's past refreshes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.meta import views
from headwater.meta.store import Meta
from headwater.meta.views import KEPT_REFRESHES, Refresh
from support.defined import add_table


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def test_what_recomputing_cost_is_remembered_however_many_refreshes_follow(c: Connection) -> None:
    view, other = (add_table(c, name, connection_id=0) for name in ("v", "w"))
    views.record(c, other, Refresh(0, 1, "full", "", 1, 1, 9.0))
    for i, strategy in enumerate(["rows", "full", "full", *["rows"] * (2 * KEPT_REFRESHES)]):
        views.record(c, view, Refresh(i, i + 1, strategy, "", 1, 1, float(i)))
    found = views.refreshes(c, view)
    assert [r.ms for r in found if r.strategy == "full"] == [2.0], "the newest one, of this view"
    assert len(found) == KEPT_REFRESHES + 1 and found[0].to_epoch == 2 * KEPT_REFRESHES + 3
