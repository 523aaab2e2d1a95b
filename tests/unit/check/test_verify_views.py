"""Which views are compared with their queries, as far as that needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from headwater.check.views import verify_views
from headwater.engine.home import Home
from headwater.engine.query.meet import meet
from headwater.engine.view import barriers
from headwater.meta import epochs, relations, views
from headwater.model import CoveredSpan, Layout, Span, TableState
from support.defined import add_table, home_with


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


class Meets:
    """A reader as far as verification needs one before it reads rows: it finds epoch and relation."""

    def __init__(self, home: Home) -> None:
        self._home = home

    @contextmanager
    def at_epoch(self, names: Set[str]) -> Iterator[tuple[Any, list[Any]]]:
        with self._home.meta.read() as c:
            known = relations.named(c)
            met = meet(c, known, names)
            assert met is not None
            (found,) = (r for r in known if r.name in names)
        yield met.epoch, [SimpleNamespace(relation=met.instead.get(found.id, found))]


class Unread:
    """Trees of views, which a view that is not compared does not need."""

    def of(self, relation: object) -> object:
        raise AssertionError("analysed")


def layout(id: int, index: int) -> Layout:
    return Layout(id, 0, (CoveredSpan(Span(None, None), index, index),), True)


def version(c: Connection, *view: int) -> int:
    epoch = epochs.publish(c, [], {id: layout(id, 1) for id in view}).id
    views.add_barrier(c, epoch)
    for id in view:
        views.add_version(c, id, epoch)
    return epoch


def view(c: Connection, name: str, *inputs: int, replaces: int = 0) -> int:
    id = add_table(c, name, connection_id=0, replaces=replaces)
    views.add(c, id, query="SELECT x FROM t", inputs=inputs, uses={}, visible=0, order=[], limit=None)
    relations.set_state(c, id, TableState.LIVE)
    return id


def test_a_view_that_was_just_refreshed_is_not_blamed_for_inputs_that_it_has_no_more(home: Home) -> None:
    with home.meta.write() as c:
        t = add_table(c, "t", connection_id=1)
        old = view(c, "v", t)
        first = version(c, old)
        new = view(c, f"{relations.BESIDE}v", t, replaces=old)
        version(c, old)  # while the copy is filled
        views.add_version(c, new, first)
        relations.take_place(c, new)
        barriers.prune(c, {})
    (found,) = verify_views(home, Meets(home), Unread())  # type: ignore[arg-type]
    assert found.skipped and not found.error, found


def test_a_view_whose_input_was_resynced_since_is_compared_once_it_has_followed(home: Home) -> None:
    with home.meta.write() as c:
        t = add_table(c, "t", connection_id=1)
        version(c, view(c, "v", t))  # the table has no rows at that epoch
    (found,) = verify_views(home, Meets(home), Unread())  # type: ignore[arg-type]
    assert found.skipped and not found.error, found
