"""Views over one that REFRESH has replaced: the new one may have other rows, although it has no changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.commit.filled import settle_slices
from headwater.engine.view.fill import slice_spans
from headwater.engine.view.refresh import plan_step
from headwater.meta import epochs, relations, spans, views
from headwater.meta.store import Meta
from headwater.model import Column, CoveredSpan, Layout, ScanResult, Span, TableState, UpstreamType
from support.defined import add_table

COLUMNS = (Column("k", "BIGINT", UpstreamType("", 0)),)


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def view(c: Connection, name: str, *inputs: int, replaces: int = 0) -> int:
    id = add_table(c, name, COLUMNS, ("k",), connection_id=0, replaces=replaces)
    views.add(c, id, query="SELECT 1", inputs=inputs, uses={}, visible=1, order=[], limit=None)
    relations.set_state(c, id, TableState.LIVE)
    return id


def test_a_view_over_a_refreshed_one_is_recomputed_although_nothing_changed(c: Connection) -> None:
    today = view(c, "today")
    over = view(c, "over", today)
    epoch = epochs.publish(c, [], {}).id
    views.add_barrier(c, epoch)
    for id in (today, over):
        layout = Layout(id, 0, (CoveredSpan(Span(None, None), epoch, 0, (), 0),), True, 1)
        epochs.put_layout(c, layout, epoch)
        views.add_version(c, id, epoch)
    new = view(c, relations.BESIDE + "today", replaces=today)
    views.set_fill(c, new, views.Fill(epoch, 1))
    spans.add(c, new, slice_spans(1), 0.0)
    relations.set_planned(c, new, True)
    (only,) = spans.all(c, new)
    spans.scanned(c, only.id, ScanResult("", "", (), 5), epoch, "")
    settle_slices(c, new, [only.id])

    newest = epochs.newest(c)
    assert newest is not None and newest.id > epoch, "somewhere to go, although the home is quiet"
    views.add_barrier(c, newest.id)
    views.add_version(c, new, newest.id)
    step = plan_step(c, relations.get(c, over), epoch, newest.id)
    assert step is not None and step.obstacle == "an input was replaced" and not step.quiet
    views.followed(c, over, [today])
    assert views.input_replaced(c, over), "it was computed over the old one"
    views.followed(c, over, [new])
    assert not views.input_replaced(c, over)
