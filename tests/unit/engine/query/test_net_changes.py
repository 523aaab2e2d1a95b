"""Between which epochs the changes of a relation can be asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.engine.query.net_changes import _whole_at
from headwater.errors import QueryError
from headwater.meta import epochs, relations, tables
from headwater.model import CoveredSpan, Layout, Span
from support.defined import home_with


def test_an_epoch_that_is_gone_is_refused_although_an_older_one_is_kept(tmp_path: Path) -> None:
    with home_with(tmp_path, "t") as home:
        with home.meta.write() as c:
            span = CoveredSpan(Span(None, None), 1, 1, (), 1)
            first = epochs.publish(c, [], {1: Layout(1, 0, (span,), True)}).id
            epochs.take_pin(c, first, "reader")
            gone, newest = (epochs.publish(c, [], {}).id for _ in range(2))
            c.execute(sa.update(tables.epoch).values(created_at=0.0))
            epochs.thin(c, 1.0)
            relation = relations.get(c, 1)
        assert [_whole_at(home, relation, id)[0].id for id in (None, first, newest)] == [first, first, newest]
        with pytest.raises(QueryError) as e:
            _whole_at(home, relation, gone)
        assert e.value.code == "query.epoch"
        assert f"the oldest kept one is {first}, the newest {newest}" in e.value.message
