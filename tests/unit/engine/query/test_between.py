"""When the change of a relation between two epochs can be told from its changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.engine.query.between import obstacle
from headwater.meta import epochs, relations, tables, views
from headwater.meta.store import Meta
from headwater.model import CoveredSpan, Layout, Span
from support.defined import add_connection, add_table


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def layout(id: int, index: int, *, complete: bool = True, connection_id: int = 1) -> Layout:
    return Layout(id, 0, (CoveredSpan(Span(None, None), index, index, (), connection_id),), complete)


def why(c: Connection, id: int, last: int, target: int) -> str:
    first, second = epochs.get(c, last), epochs.get(c, target)
    assert first is not None and second is not None
    return obstacle(c, relations.get(c, id), first, second)


def thinned(c: Connection) -> None:
    """All epochs but the newest and those that views need are gone."""
    c.execute(sa.update(tables.epoch).values(created_at=0.0))
    epochs.thin(c, 1.0)


def test_a_part_that_was_read_again_is_known_for_as_long_as_an_older_epoch_is_kept(c: Connection) -> None:
    add_connection(c)
    id = add_table(c, "t")
    last = epochs.publish(c, [], {id: layout(id, 3)}).id
    views.add_barrier(c, last)
    for index in (3, 4, 5):
        epochs.publish(c, [], {id: layout(id, index, complete=False)})
    epochs.publish(c, [], {id: layout(id, 9)})
    target = epochs.publish(c, [], {}).id
    assert why(c, id, last, target) == "part of t was read again"
    thinned(c)
    assert why(c, id, last, target) == "part of t was read again"
    assert len(epochs.layouts_of(c, id)) == 3, "one incomplete layout says enough"
    views.keep_barriers(c, [])
    epochs.publish(c, [], {})
    thinned(c)
    assert [found.complete for _, found in epochs.layouts_of(c, id)] == [True], "nobody follows it from there any more"


@pytest.mark.parametrize(("limit", "offset"), [(5, 0), (None, 5), (5, 5)])
def test_which_rows_a_limit_or_offset_shows_is_not_told_by_the_rows_that_changed(
    c: Connection, limit: int | None, offset: int
) -> None:
    id = add_table(c, "v", connection_id=0)
    views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=limit, offset=offset)
    last, target = (epochs.publish(c, [], {}).id for _ in range(2))
    epochs.put_layout(c, layout(id, last, connection_id=0), last)
    for epoch in (last, target):
        views.add_version(c, id, epoch)
    assert why(c, id, last, target) == "v has a LIMIT or OFFSET"
