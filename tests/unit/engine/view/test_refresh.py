"""What a refresh publishes if the barrier it went to is no longer one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.query.between import At
from headwater.engine.query.read import Reader
from headwater.engine.view import barriers
from headwater.engine.view.definition import Trees
from headwater.engine.view.refresh import Refresher, Step
from headwater.meta import epochs, relations, runs, views
from headwater.meta.views import Refresh
from headwater.model import Column, CoveredSpan, Layout, Span, UpstreamType
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.view.shape import WEIGHT
from headwater.view.signed import change
from support.defined import add_table, home_with
from support.owned import serving

COLUMNS = (Column("k", "BIGINT", UpstreamType("", 0)),)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


def barrier(c: Connection, *views_there: int) -> int:
    id = epochs.publish(c, [], {}).id
    views.add_barrier(c, id)
    for view in views_there:
        views.add_version(c, view, id)
    return id


def published(home: Home, leases: Leases, id: int, last: int, target: int) -> None:
    """A refresh of a view that found one new row."""
    with home.meta.read() as c:
        view, epoch, to = relations.get(c, id), epochs.get(c, last), epochs.get(c, target)
    assert epoch is not None and to is not None
    layout = Layout(id, 0, (CoveredSpan(Span(None, None), 0, 0, (), 0),), True, 1)
    step = Step(view, epoch, to, At(view, layout, last), {}, {}, {}, "", 0)
    row = pa.table({"k": pa.array([target], pa.int64()), WEIGHT: pa.array([1], pa.int32())})

    def no_spark() -> None:
        raise AssertionError("publishing needs no Spark")

    reader = Reader(home, no_spark)  # type: ignore[arg-type]
    refresher = Refresher(home, leases, reader, Trees(home, no_spark))  # type: ignore[arg-type]
    done = Refresh(last, target, "rows", "", 1, 1, 1.0)
    refresher._publish(step, change(view, row, target), done, leases.of(Name.relation(id)), {})


def test_a_run_to_a_barrier_that_was_pruned_meanwhile_is_not_recorded_without_its_version(home: Home) -> None:
    with home.meta.write() as c:
        leases = serving(c)
        below, above = (add_table(c, name, COLUMNS, ("k",), connection_id=0) for name in ("below", "above"))
        for id, inputs in ((below, []), (above, [below])):
            views.add(c, id, query="SELECT 1", inputs=inputs, uses={}, visible=1, order=[], limit=None)
        barrier(c)
        last = barrier(c, below, above)
        chosen = barrier(c, below)  # by the loop, for `above`, just before …
        newer = barrier(c, below)  # … `below` reached this one, which has a higher rank
        barrier(c)
        barriers.prune(c, {})
        assert not views.is_barrier(c, chosen)
    published(home, leases, above, last, chosen)
    published(home, leases, above, last, newer)
    with home.meta.read() as c:
        assert views.last_version(c, above) == newer
        assert [(r.first_index, r.last_index) for r in runs.live(c, above, 0, newer)] == [(last + 1, newer)]
