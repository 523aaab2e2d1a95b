"""What the next step of a view is, by what meta knows of its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.view.refresh import Step, plan_step, stand_still
from headwater.errors import JobError, Retry
from headwater.meta import epochs, relations, views
from headwater.model import TableState
from support.defined import add_table, home_with
from support.followed import followed, layout
from support.owned import serving


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


def step(c: Connection, view: int, last: int, target: int) -> Step | None:
    return plan_step(c, relations.get(c, view), last, target)


def test_a_table_that_was_read_again_has_changed_although_its_log_has_no_change(home: Home) -> None:
    with home.meta.write() as c:
        table, view, last = followed(c)
        still = epochs.publish(c, [], {}).id
        epochs.publish(c, [], {table: layout(table, 3, complete=False)})
        target = epochs.publish(c, [], {table: layout(table, 3)}).id
        quiet, moved = step(c, view, last, still), step(c, view, last, target)
    assert quiet is not None and quiet.quiet
    assert moved is not None and not moved.quiet and moved.obstacle == "part of t was read again"


def test_a_view_goes_nowhere_over_a_table_that_has_failed(home: Home) -> None:
    with home.meta.write() as c:
        table, view, last = followed(c)
        target = epochs.publish(c, [], {}).id
        assert step(c, view, last, target) is not None
        relations.set_state(c, table, TableState.FAILED, JobError("view.failed", "it failed", "", Retry.AUTO))
        assert step(c, view, last, target) is None


def test_a_table_of_a_block_that_is_not_complete_is_not_read_by_a_view(home: Home) -> None:
    with home.meta.write() as c:
        _, view, last = followed(c, block=7)
        assert step(c, view, last, epochs.publish(c, [], {}).id) is None


def test_a_view_without_changes_gets_no_version_at_a_barrier_that_was_pruned_meanwhile(home: Home) -> None:
    with home.meta.write() as c:
        leases, (_, view, last) = serving(c), followed(c)
        pruned, kept = (epochs.publish(c, [], {}).id for _ in range(2))
        views.add_barrier(c, kept)
        steps = [step(c, view, last, target) for target in (pruned, kept)]
    for found in steps:
        assert found is not None and found.quiet
        stand_still(home, leases, [found], {})
        with home.meta.read() as c:
            wanted = last if found.target.id == pruned else kept
            assert views.last_version(c, view) == wanted, "its last version is where its next step begins"


def test_a_view_that_moved_meanwhile_does_not_stand_still(home: Home) -> None:
    with home.meta.write() as c:
        leases, (_, view, last) = serving(c), followed(c)
        other = add_table(c, "other", connection_id=0)
        views.add(c, other, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=None)
        chosen, moved = (epochs.publish(c, [], {}).id for _ in range(2))
        for epoch, stopped in ((chosen, other), (moved, view)):
            views.add_barrier(c, epoch)
            views.add_version(c, stopped, epoch)
        found = step(c, view, last, chosen)
    assert found is not None and found.quiet
    stand_still(home, leases, [found], {})
    with home.meta.read() as c:
        assert views.versions_of(c, other) == {chosen}
        assert chosen not in views.versions_of(c, view), "its changes between go to where it moved"


def test_a_failed_view_whose_inputs_are_as_they_were_is_live_again(home: Home) -> None:
    """What made it fail has been undone, so nothing changed since its last version."""
    with home.meta.write() as c:
        leases, (_, view, last) = serving(c), followed(c)
        target = epochs.publish(c, [], {}).id
        views.add_barrier(c, target)
        relations.set_state(c, view, TableState.FAILED, JobError("view.failed", "it failed", "", Retry.AUTO))
        found = step(c, view, last, target)
    assert found is not None and found.quiet
    stand_still(home, leases, [found], {})
    with home.meta.read() as c:
        assert relations.get(c, view).state is TableState.LIVE and views.last_version(c, view) == target
