"""Barriers in meta: when the next one comes, which are kept, and when a view is given up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.engine.view import barriers
from headwater.engine.view.barriers import Meeting
from headwater.errors import DataError, JobError, Retry
from headwater.meta import epochs, relations, tables, views
from headwater.meta.store import Meta
from headwater.model import Control, TableState
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
    relations.set_state(c, id, TableState.LIVE)
    return id


def epoch(c: Connection) -> int:
    return epochs.publish(c, [], {}).id


def stop(c: Connection, id: int) -> int:
    """A barrier at the newest epoch, where the view has a version."""
    newest = epochs.newest(c)
    assert newest is not None
    made = views.add_barrier(c, newest.id)
    views.add_version(c, id, newest.id)
    return made.number


def test_a_new_epoch_becomes_a_barrier_and_without_one_there_is_none(c: Connection) -> None:
    id = view(c, "v")
    epoch(c)
    assert barriers.advance(c, {})
    views.add_version(c, id, views.barriers(c)[-1].epoch)
    assert not barriers.advance(c, {})
    epoch(c)
    assert barriers.advance(c, {})


def test_no_barrier_is_made_for_views_that_cannot_go_on_because_of_what_they_read(c: Connection) -> None:
    live, paused = view(c, "live"), view(c, "paused")
    over = add_table(c, "over", connection_id=0)
    views.add(c, over, query="SELECT 1", inputs=[paused], uses={}, visible=0, order=[], limit=None)
    epoch(c)
    stop(c, live)
    for id in (paused, over):
        views.add_version(c, id, views.barriers(c)[-1].epoch)
    relations.set_control(c, paused, Control.PAUSED)
    epoch(c)
    assert barriers.advance(c, {})
    views.add_version(c, live, views.barriers(c)[-1].epoch)
    assert not barriers.advance(c, {}), "the others come no nearer, however many there are"


def test_no_barrier_is_made_for_a_view_over_one_that_was_given_up(c: Connection) -> None:
    below = view(c, "below")
    over = add_table(c, "over", connection_id=0)
    views.add(c, over, query="SELECT 1", inputs=[below], uses={}, visible=0, order=[], limit=None)
    epoch(c)
    stop(c, below)
    views.add_version(c, over, views.barriers(c)[-1].epoch)
    relations.set_state(c, below, TableState.FAILED, DataError(barriers.STALE, "it stood still", "", Retry.NEVER))
    epoch(c)
    assert barriers.advance(c, {})
    assert not barriers.advance(c, {}), "it comes no nearer"


def test_the_last_version_of_every_view_stays(c: Connection) -> None:
    first, second = view(c, "first"), view(c, "second")
    epoch(c)
    stop(c, first)
    epoch(c)
    stop(c, second)
    epoch(c)
    barriers.advance(c, {})
    barriers.prune(c, {})
    assert views.last_version(c, first) == 1 and views.last_version(c, second) == 2


def test_the_barrier_of_a_fill_stays_until_the_view_has_its_version(c: Connection) -> None:
    live, filling = view(c, "live"), view(c, "filling")
    fill = epoch(c)
    stop(c, live)
    views.set_fill(c, filling, views.Fill(fill, 1))
    for _ in range(5):
        epoch(c)
        barriers.advance(c, {})
        views.add_version(c, live, views.barriers(c)[-1].epoch)
        barriers.prune(c, {})
    assert fill in {b.epoch for b in views.barriers(c)}
    views.add_version(c, filling, fill)
    barriers.prune(c, {})
    assert views.last_version(c, filling) == fill


def test_a_view_whose_refresh_failed_gets_another_barrier_although_nothing_moves(c: Connection) -> None:
    id = view(c, "v")
    epoch(c)
    stop(c, id)
    epoch(c)
    assert barriers.advance(c, {})
    begun = {id: views.barriers(c)[-1].number}
    relations.set_state(c, id, TableState.FAILED, JobError("view.failed", "it failed", "", Retry.AUTO))
    assert not barriers.advance(c, begun), "it is backing off"
    assert barriers.advance(c, begun, again=[id])
    target = Meeting(c, begun).target(relations.get(c, id))
    assert target is not None and target.number > begun[id]


def test_a_view_that_stands_still_is_given_up_after_the_retention_and_lets_its_epochs_go(c: Connection) -> None:
    id = view(c, "v")
    first = epoch(c)
    stop(c, id)
    relations.set_control(c, id, Control.PAUSED)
    assert barriers.expire(c, 3600, now=1e12) == [], "nothing is newer: it misses nothing"
    epoch(c)
    c.execute(sa.update(tables.epoch).values(created_at=1000.0))
    assert barriers.expire(c, 3600, now=4599.0) == []
    assert [r.id for r in barriers.expire(c, 3600, now=4601.0)] == [id]
    assert (relations.get(c, id).error or {})["code"] == "view.stale"
    assert barriers.expire(c, 3600, now=9999.0) == [], "once"
    barriers.advance(c, {})
    assert first not in {b.epoch for b in views.barriers(c)}
    epochs.thin(c, 2000.0)
    assert views.last_version(c, id) == 0


def test_a_view_with_a_long_interval_is_not_given_up_between_its_refreshes(c: Connection) -> None:
    id = view(c, "v")
    relations.set_options(c, id, {"refresh.interval": "3600"})
    epoch(c)
    stop(c, id)
    epoch(c)
    c.execute(sa.update(tables.epoch).values(created_at=0.0))
    assert barriers.expire(c, 3600, now=4 * 3600.0) == []
    assert [r.id for r in barriers.expire(c, 3600, now=4 * 3600.0 + 1)] == [id]


def test_of_views_that_want_a_slot_the_one_that_waited_longest_is_first(c: Connection) -> None:
    slow, quick, filling = view(c, "slow"), view(c, "quick"), view(c, "filling")
    epoch(c)
    stop(c, quick)
    epoch(c)
    stop(c, slow)
    known = [relations.get(c, id) for id in (slow, quick, filling)]
    assert [r.id for r in Meeting(c, {}).in_turn(known)] == [quick, slow]


def test_a_view_that_stood_still_since_its_fill_gives_up_the_epoch_of_that(c: Connection) -> None:
    id = view(c, "v")
    first = epoch(c)
    views.set_fill(c, id, views.Fill(first, 1))
    stop(c, id)
    epoch(c)
    c.execute(sa.update(tables.epoch).values(created_at=0.0))
    assert [r.id for r in barriers.expire(c, 3600, now=3601.0)] == [id]
    barriers.advance(c, {})
    assert first not in {pinned for pinned, _ in epochs.pinned_by(c)}


@pytest.mark.parametrize("paused", [True, False])
def test_a_fill_that_does_not_go_on_is_given_up_after_the_retention(c: Connection, paused: bool) -> None:
    id = view(c, "v")
    first = epoch(c)
    views.add_barrier(c, first)
    views.set_fill(c, id, views.Fill(first, 1))
    relations.set_state(c, id, TableState.FILLING)
    epoch(c)
    c.execute(sa.update(tables.epoch).values(created_at=0.0))
    assert barriers.expire(c, 3600, now=1e9) == [], "it goes on"
    if paused:
        relations.set_control(c, id, Control.PAUSED)
    else:
        relations.set_state(c, id, TableState.FAILED, JobError("view.failed", "it failed", "", Retry.AUTO))
    assert barriers.expire(c, 3600, now=3599.0) == []
    assert barriers.expire(c, 3600, now=1e9, busy=[id]) == [], "a slice is running"
    assert [r.id for r in barriers.expire(c, 3600, now=1e9)] == [id]
    barriers.advance(c, {})
    assert first not in {pinned for pinned, _ in epochs.pinned_by(c)}


def test_views_are_behind_until_they_reach_an_epoch_unless_they_or_what_they_read_stand_still(c: Connection) -> None:
    first, second, paused = view(c, "first"), view(c, "second"), view(c, "paused")
    over = add_table(c, "over", connection_id=0)
    views.add(c, over, query="SELECT 1", inputs=[paused], uses={}, visible=0, order=[], limit=None)
    relations.set_control(c, paused, Control.PAUSED)
    epoch(c)
    stop(c, first)
    stop(c, second)
    target = epoch(c)
    assert [r.id for r in barriers.behind(c, target)] == [first, second]
    stop(c, second)
    assert [r.id for r in barriers.behind(c, target)] == [first]
    relations.set_state(c, first, TableState.FAILED, JobError("view.failed", "no", "Wait.", Retry.AUTO))
    assert barriers.behind(c, target) == []


def test_no_barrier_is_made_for_a_view_that_is_still_being_filled(c: Connection) -> None:
    live, filling = view(c, "live"), view(c, "filling")
    first = epoch(c)
    stop(c, live)
    views.set_fill(c, filling, views.Fill(first, 1))
    assert not barriers.advance(c, {}), "its fill ends at the barrier that it began at"


def test_a_failed_view_that_has_a_barrier_ahead_gets_no_other_one(c: Connection) -> None:
    id = view(c, "v")
    epoch(c)
    stop(c, id)
    epoch(c)
    assert barriers.advance(c, {})
    relations.set_state(c, id, TableState.FAILED, JobError("view.failed", "it failed", "", Retry.AUTO))
    assert not barriers.advance(c, {}, again=[id]), "it has not tried the newest one yet"
