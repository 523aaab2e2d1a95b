"""What a statement reads in the place of a relation that another one has replaced, and until when that is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.engine.query.meet import meet, no_common_version, wait_until_fresh
from headwater.engine.view import barriers
from headwater.errors import QueryError
from headwater.meta import epochs, relations, tables, views
from headwater.meta.store import Meta
from headwater.meta.views import Fill, Refresh
from headwater.model import Layout, TableState
from support.defined import add_table


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def view(c: Connection, name: str, *inputs: int, replaces: int = 0) -> int:
    id = add_table(c, name, connection_id=0, replaces=replaces)
    views.add(c, id, query="SELECT 1", inputs=inputs, uses={}, visible=0, order=[], limit=None)
    relations.set_state(c, id, TableState.LIVE)
    return id


def stop(c: Connection, *ids: int) -> int:
    """A new epoch and barrier, where these views have a version."""
    epoch = epochs.publish(c, [], {}).id
    views.add_barrier(c, epoch)
    for id in ids:
        views.add_version(c, id, epoch)
    barriers.prune(c, {})
    return epoch


def read(c: Connection, *names: str) -> tuple[int, set[int]]:
    """The epoch that a statement reads, and the replaced views in it."""
    met = meet(c, relations.named(c), names)
    assert met is not None, f"{names} have no common version"
    for id, past in met.instead.items():
        assert past.name == relations.get(c, id).name
    return met.epoch.id, {past.id for past in met.instead.values()}


def test_a_replaced_view_is_read_until_the_new_one_has_met_all_others(c: Connection) -> None:
    old, above, slow = view(c, "v"), view(c, "above"), view(c, "slow")
    first = stop(c, old, above, slow)
    second = stop(c, old, above)
    new = view(c, relations.BESIDE + "v", replaces=old)
    filled = epochs.publish(c, [], {}).id
    views.add_barrier(c, filled)
    third = stop(c, old)
    views.add_version(c, new, filled)
    relations.take_place(c, new)
    barriers.prune(c, {})
    assert relations.find(c, "v") == relations.get(c, new)
    assert [r.id for r in relations.replaced(c)] == [old] and old not in {r.id for r in relations.all(c)}
    assert read(c, "v") == (third, {old}), "no reader goes back"
    assert read(c, "v", "above") == (second, {old})
    assert read(c, "v", "above", "slow") == (first, {old})
    fourth = stop(c, new, above)
    assert read(c, "v", "above") == (fourth, set())
    assert read(c, "v", "slow") == (first, {old}), "it is needed for this one"
    fifth = stop(c, new, above, slow)
    assert relations.replaced(c) == [] and relations.get_or_none(c, old) is None
    assert read(c, "v", "above", "slow") == (fifth, set())


def test_a_replaced_view_stays_while_it_alone_is_newer_than_what_the_new_one_shares_with_others(c: Connection) -> None:
    old, slow = view(c, "v"), view(c, "slow")
    stop(c, old, slow)
    new = view(c, relations.BESIDE + "v", replaces=old)
    filled = epochs.publish(c, [], {}).id
    views.add_barrier(c, filled)
    views.set_fill(c, new, Fill(filled, 1))
    newest = stop(c, old)
    for id in (new, slow):
        views.add_version(c, id, filled)
    relations.take_place(c, new)
    barriers.prune(c, {})
    assert read(c, "v", "slow") == (filled, set())
    assert read(c, "v") == (newest, {old}), "no reader goes back"


def test_views_over_a_replaced_one_read_the_new_one_and_its_record_goes_along(c: Connection) -> None:
    old = view(c, "v")
    above = view(c, "above", old)
    views.record(c, old, Refresh(1, 2, "groups", "", 1, 1, 1.0))
    stop(c, old, above)
    for _ in range(2):  # the second one replaces two
        new = view(c, relations.BESIDE + "v", replaces=old)
        views.add_version(c, new, stop(c))
        relations.take_place(c, new)
        assert views.over(c, new) == [above] and views.over(c, old) == []
        assert [r.strategy for r in views.refreshes(c, new)] == ["groups"]
        old = new
    assert {r.replaced_by for r in relations.replaced(c)} == {new}
    assert len(relations.replaced(c)) == 2
    relations.remove(c, new)
    assert relations.replaced(c) == []


def test_a_view_that_nobody_read_with_others_is_gone_with_its_successor_in_place(c: Connection) -> None:
    old = view(c, "v")
    at = stop(c, old)
    new = view(c, relations.BESIDE + "v", replaces=old)
    views.add_version(c, new, at)
    relations.take_place(c, new)
    barriers.prune(c, {})
    assert relations.replaced(c) == [] and read(c, "v") == (at, set())


def complete(c: Connection, id: int, epoch: int) -> None:
    """The table can be read from this epoch on."""
    epochs.put_layout(c, Layout(id, 0, (), True), epoch)


def test_a_replaced_table_is_read_with_views_that_have_not_followed_yet(c: Connection) -> None:
    old, above = add_table(c, "t"), view(c, "above")
    relations.set_state(c, old, TableState.LIVE)
    before = stop(c, above)
    complete(c, old, before)
    new = add_table(c, relations.BESIDE + "t", replaces=old)
    after = epochs.publish(c, [], {}).id
    complete(c, new, after)
    relations.set_state(c, new, TableState.LIVE)
    relations.take_place(c, new)
    barriers.prune(c, {})
    assert read(c, "t") == (after, set()) and read(c, "t", "above") == (before, {old})
    followed = stop(c, above)
    assert relations.replaced(c) == [] and read(c, "t", "above") == (followed, set())


def test_a_table_that_had_failed_is_not_kept(c: Connection) -> None:
    old, above = add_table(c, "t"), view(c, "above")
    relations.set_state(c, old, TableState.FAILED)
    complete(c, old, stop(c, above))
    new = add_table(c, relations.BESIDE + "t", replaces=old)
    complete(c, new, epochs.publish(c, [], {}).id)
    relations.take_place(c, new)
    assert relations.replaced(c) == [] and meet(c, relations.named(c), ("t", "above")) is None
    refused = no_common_version(relations.named(c), ("t", "above"))
    assert refused.message == "there is no epoch at which above and t can all be read"


def test_two_views_that_are_replaced_together_keep_their_common_version_until_the_new_ones_have_one(
    c: Connection,
) -> None:
    a, b = view(c, "a"), view(c, "b")
    both = stop(c, a, b)
    copies = [view(c, f"{relations.BESIDE}{name}", replaces=id) for name, id in (("a", a), ("b", b))]
    for copy in copies:
        filled = stop(c)
        views.set_fill(c, copy, Fill(filled, 1))
        views.add_version(c, copy, filled)
        relations.take_place(c, copy)
        barriers.prune(c, {})
    assert read(c, "a", "b") == (both, {a, b})
    later = stop(c, *copies)
    assert read(c, "a", "b") == (later, set()) and relations.replaced(c) == []


def test_a_replaced_view_stays_while_a_statement_that_may_have_found_it_runs(c: Connection) -> None:
    old = view(c, "v")
    epoch = stop(c, old)
    pin = epochs.take_pin(c, epoch, "statement")
    new = view(c, relations.BESIDE + "v", replaces=old)
    views.add_version(c, new, epoch)
    relations.take_place(c, new)
    stop(c, new)
    assert [r.id for r in relations.replaced(c)] == [old]
    epochs.release_pin(c, pin)
    stop(c, new)
    assert relations.replaced(c) == []


def test_a_replaced_table_goes_although_views_have_not_reached_the_newest_barrier(c: Connection) -> None:
    old, above = add_table(c, "t"), view(c, "above")
    relations.set_state(c, old, TableState.LIVE)
    complete(c, old, stop(c, above))
    new = add_table(c, relations.BESIDE + "t", replaces=old)
    complete(c, new, epochs.publish(c, [], {}).id)
    relations.set_state(c, new, TableState.LIVE)
    relations.take_place(c, new)
    followed = epochs.publish(c, [], {}).id
    views.add_barrier(c, followed)
    views.add_version(c, above, followed)
    stop(c)  # a busy home always has a barrier that nobody has reached yet
    assert relations.replaced(c) == [] and read(c, "t", "above") == (followed, set())


def test_a_table_that_is_still_being_filled_is_read_with_a_view_as_far_as_it_is(c: Connection) -> None:
    add_table(c, "t")
    at = stop(c, view(c, "other"))
    assert read(c, "t", "other") == (at, set())


def test_the_age_of_a_view_is_for_how_long_there_has_been_a_newer_epoch(c: Connection) -> None:
    id = view(c, "v")
    at = stop(c, id)
    c.execute(sa.update(tables.epoch).values(created_at=time.time() - 3600))
    met = meet(c, relations.named(c), ("v",))
    assert met is not None and met.epoch.id == at and met.age_s == 0.0, "old, but nothing is newer"
    later = epochs.publish(c, [], {}).id
    c.execute(sa.update(tables.epoch).where(tables.epoch.c.id == later).values(created_at=time.time() - 60))
    met = meet(c, relations.named(c), ("v",))
    assert met is not None and met.epoch.id == at and met.age_s is not None and 60 <= met.age_s < 1800


def test_a_fresh_statement_waits_until_its_views_have_what_was_published(tmp_path: Path) -> None:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as c:
        id = view(c, "v")
        stop(c, id)
    wait_until_fresh(meta, ("v",), running=False)
    with meta.write() as c:
        newer = epochs.publish(c, [], {}).id
        views.add_barrier(c, newer)
    with pytest.raises(QueryError) as refused:
        wait_until_fresh(meta, ("v",), running=False)
    assert refused.value.code == "view.not_fresh" and "no server is running" in refused.value.message
    with meta.write() as c:
        views.add_version(c, id, newer)
    wait_until_fresh(meta, ("v",), running=False)
    meta.close()
