"""Which runs make up a change, and how long those stay that a fold has put into the base."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.meta import epochs, runs, views
from headwater.meta.store import Meta
from headwater.model import CoveredSpan, Layout, Span
from support.defined import add_table


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def run(c: Connection, view: int, first: int, last: int, *replaces: int) -> int:
    return runs.add(
        c,
        view,
        first_index=first,
        last_index=last,
        path=f"{first}-{last}",
        rows=1,
        bytes=1,
        missing=False,
        schema_version=1,
        base_index=-1,
        replaces=replaces,
        before_path=f"{first}-{last}-before",
    )


def layout(view: int, index: int) -> Layout:
    return Layout(view, 0, (CoveredSpan(Span(None, None), index, index),), True)


def test_a_views_change_has_the_runs_that_were_folded_since_and_none_that_another_contains(c: Connection) -> None:
    view = add_table(c, "v", connection_id=0)
    run(c, view, 1, 2)
    parts = [run(c, view, 3, 4), run(c, view, 5, 6)]
    run(c, view, 3, 6, *parts)
    run(c, view, 7, 8)
    runs.retire_folded(c, view, 6)
    found = runs.live(c, view, 2, 8)
    assert [(r.first_index, r.last_index) for r in found] == [(3, 6), (7, 8)]


def test_a_folded_run_stays_while_an_epoch_reads_it_over_an_older_base(c: Connection) -> None:
    view = add_table(c, "v", connection_id=0)
    older = epochs.publish(c, [], {view: layout(view, 2)}).id
    epochs.take_pin(c, older, "a reader")
    run(c, view, 3, 4)
    runs.retire_folded(c, view, 4)
    epochs.publish(c, [], {view: layout(view, 4)})
    assert runs.remove_retired(c, time.time() + 1) == [] and len(runs.live(c, view, 2, 4)) == 1
    epochs.put_layout(c, layout(view, 4), older)
    assert runs.remove_retired(c, time.time() + 1) == ["3-4", "3-4-before"]


def versions(c: Connection, view: int, count: int) -> None:
    """A view that is filled at epoch 1 and has moved to each of the next ones."""
    epochs.publish(c, [], {view: layout(view, 1)})
    views.add_version(c, view, 1)
    for id in range(2, count + 1):
        assert epochs.publish(c, [], {}).id == id
        run(c, view, id, id)
        views.add_version(c, view, id)


def ranges(c: Connection, view: int, after: int, upto: int) -> list[tuple[int, int]]:
    return [(r.first_index, r.last_index) for r in runs.live(c, view, after, upto)]


def test_a_view_can_be_read_and_asked_for_changes_at_versions_inside_a_merged_run(c: Connection) -> None:
    view = add_table(c, "v", connection_id=0)
    versions(c, view, 9)
    merged = run(c, view, 2, 5, *(r.id for r in runs.live(c, view, 1, 5)))
    run(c, view, 2, 7, merged, *(r.id for r in runs.live(c, view, 5, 7)))
    assert ranges(c, view, 1, 9) == [(2, 7), (8, 8), (9, 9)]
    assert ranges(c, view, 1, 6) == [(2, 5), (6, 6)]
    assert ranges(c, view, 1, 4) == [(2, 2), (3, 3), (4, 4)]
    assert ranges(c, view, 3, 8) == [(4, 4), (5, 5), (6, 6), (7, 7), (8, 8)], "not the changes up to 3 once more"


def test_merged_runs_of_a_view_stay_until_no_version_inside_the_merged_one_can_be_read(c: Connection) -> None:
    view = add_table(c, "v", connection_id=0)
    versions(c, view, 6)
    run(c, view, 2, 5, *(r.id for r in runs.live(c, view, 1, 5)))
    later = time.time() + 1
    assert runs.remove_retired(c, later) == []
    views.add_barrier(c, 4)  # which keeps its epoch when older ones are forgotten
    epochs.thin(c, later)
    assert views.versions_of(c, view) == {4, 6}
    assert runs.remove_retired(c, later) == [], "the version at 4 is inside the merged run"
    assert ranges(c, view, 1, 4) == [(2, 2), (3, 3), (4, 4)]
    views.keep_barriers(c, [])
    assert views.is_exact(c, view, 4), "a version stays while its epoch does"
    epochs.thin(c, later)
    assert views.versions_of(c, view) == {6}
    gone = runs.remove_retired(c, later)
    assert sorted(gone) == sorted(f"{i}-{i}{kind}" for i in range(2, 6) for kind in ("", "-before"))
    assert ranges(c, view, 1, 6) == [(2, 5), (6, 6)]
