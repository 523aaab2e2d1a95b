"""Which runs make up a change, and how long those stay that a fold has put into the base."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.meta import epochs, runs
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
    found = runs.ending_in(c, view, 2, 8)
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
