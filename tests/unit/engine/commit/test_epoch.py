"""Epochs: published when something moved, with the newest cut of every connection, under the fence."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.engine.commit import epoch
from headwater.errors import FencedError
from headwater.meta import epochs, relations, spans, tables
from headwater.model import TableState
from headwater.source.postgres.client.session import int_to_lsn
from support.commits import Commits, span
from support.owned import taken_over


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    return Commits.make(tmp_path, [span(None, 10), span(10, None)])


def test_an_epoch_is_published_only_when_an_index_moved(b: Commits) -> None:
    first = b.publish()
    assert first is not None and first.index_of(b.connection_id) == 0, "the first one always is"
    assert b.publish() is None
    b.idle(50)
    assert b.publish() is None, "a position alone shows nothing new"
    b.log(3, position=60)
    second = b.publish()
    assert second is not None and second.id > first.id
    assert [(c.index, c.position) for c in second.entries] == [(3, int_to_lsn(60))]
    assert b.publish() is None and b.epoch() == second


def test_an_owner_that_lost_its_lease_publishes_nothing(b: Commits) -> None:
    b.publish()
    b.log(1, position=20)
    with b.home.meta.write() as c:
        taken_over(c)
    with pytest.raises(FencedError):
        b.publish()
    assert b.epoch() is not None and b.epoch().index_of(b.connection_id) == 0  # type: ignore[union-attr]


def test_a_table_turns_live_with_the_epoch_that_shows_its_last_span_and_no_earlier(tmp_path: Path) -> None:
    b = Commits.make(tmp_path, [span(None, 10), span(10, None)], planned=False)
    b.idle(50)
    for which in (0, 1):
        b.scan(which, [which], high=10)
        assert b.restart().cover(b.relation_id) is not None
        assert b.relation.state is TableState.FILLING, "more may still be planned"
    with b.home.meta.write() as c:
        relations.set_planned(c, b.relation_id, True)
        shown = epoch.publish(c, [b.relation_id])
        layout = epochs.layout_at(c, b.relation_id, shown.id)
    assert layout is not None and layout.complete and b.relation.state is TableState.LIVE


def test_a_table_that_was_dropped_meanwhile_gets_no_layout(b: Commits) -> None:
    with b.home.meta.write() as c:
        relations.remove(c, b.relation_id)
        shown = epoch.publish(c, [b.relation_id])
        assert epochs.layout_at(c, b.relation_id, shown.id) is None


def test_a_live_table_that_reads_keys_again_stays_as_it_is_but_incomplete(b: Commits) -> None:
    b.scan(0, [1], high=10)
    b.scan(1, [11], high=10)
    b.idle(50)
    b.log(1, position=60)
    assert b.committer.cover(b.relation_id) is not None and b.relation.state is TableState.LIVE
    with b.home.meta.write() as c:
        spans.punch(c, b.spans[0].id, span(3, 4))
        epoch.publish(c, [b.relation_id])
    layout = b.layout()
    assert layout is not None and not layout.complete and b.relation.state is TableState.LIVE
    assert [s.span for s in layout.spans] != [span(None, None)]


def test_tables_of_one_block_are_opened_by_the_epoch_that_completes_the_last_of_them(b: Commits) -> None:
    other = b.add_relation("u", [span(None, None)])
    with b.home.meta.write() as c:
        c.execute(sa.update(tables.relation).values(block=1))
    first = b.relation_id
    b.idle(50)
    b.scan(0, [1], high=10)
    b.scan(1, [11], high=10)
    assert b.cover() is not None and (b.relation.state, b.relation.block) == (TableState.LIVE, 1)
    b.relation_id = other
    b.scan(0, [7], high=10)
    assert b.cover() is not None and b.relation.block == 0
    b.relation_id = first
    assert b.relation.block == 0
