"""How far a view is: its epoch, how long its inputs have been ahead, what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.status.status import status_of
from headwater.engine.status.views import ViewProgress, progress_of
from headwater.meta import epochs, relations, views
from headwater.meta.views import Refresh
from headwater.model import Column, Control, TableState, UpstreamType
from headwater.sql import listing
from headwater.sql.parse import parse
from support.defined import add_connection, add_table

A = Column("a", "INT", UpstreamType("", 0))
HIDDEN = Column("__k0", "INT", UpstreamType("", 0))


class Server:
    """A running server that knows nothing about views."""

    pid = 1

    def waiting_for(self, relation_id: int) -> str:
        return ""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened = Home.open(tmp_path / "home")
    with opened.meta.write() as c:
        add_connection(c)
        add_table(c, "t", (A,), ("a",))
        add_view(c, "v", [1])
    yield opened
    opened.meta.close()


def add_view(c: Connection, name: str, inputs: list[int]) -> int:
    id = add_table(c, name, (A, HIDDEN), ("__k0",), connection_id=0, upstream_id=0)
    views.add(c, id, query="SELECT a FROM t", inputs=inputs, uses={}, visible=1, order=[], limit=None)
    return id


def progress(home: Home, server: Any = None) -> ViewProgress:
    with home.meta.read() as c:
        return progress_of(c, relations.all(c), server)[2]


def test_a_view_that_was_never_filled_says_what_it_waits_for(home: Home) -> None:
    found = progress(home)
    assert (found.epoch, found.lag_s, found.last) == (0, None, None)
    assert found.waiting_for == "a server: start `headwater run`"
    assert progress(home, Server()).waiting_for == "t (defined)"
    with home.meta.write() as c:
        relations.set_state(c, 1, TableState.LIVE)
        relations.set_state(c, 2, TableState.FILLING)
    assert progress(home, Server()).waiting_for == ""
    with home.meta.write() as c:
        relations.set_control(c, 2, Control.PAUSED)
    assert progress(home, Server()).waiting_for == "RESUME MATERIALIZED VIEW v"


def test_a_view_lags_from_the_first_barrier_that_it_has_not_reached(home: Home) -> None:
    with home.meta.write() as c:
        first, second = (epochs.publish(c, [], {}).id for _ in range(2))
        views.add_barrier(c, first)
        views.add_version(c, 2, first)
        relations.set_state(c, 2, TableState.LIVE)
        views.record(c, 2, Refresh(0, first, "rows", "", 10, 3, 12.345))
    found = progress(home)
    assert (found.epoch, found.lag_s, found.waiting_for) == (first, 0.0, "")
    assert found.last is not None and found.last.rows_changed == 3
    with home.meta.write() as c:
        views.add_barrier(c, second)
    lag_s = progress(home).lag_s
    assert lag_s is not None and lag_s > 0
    (statement,) = parse("SHOW MATERIALIZED VIEWS")
    shown = listing.run(home, statement).rows
    assert shown is not None
    (row,) = shown.to_pylist()
    assert (row["name"], row["state"], row["epoch"], row["strategy"]) == ("v", "live", first, "rows")
    assert (row["reason"], row["rows_read"], row["rows_changed"], row["milliseconds"]) == (None, 10, 3, 12.3)


def test_the_status_has_views_and_describe_only_what_readers_see(home: Home) -> None:
    assert [(t.name, t.state) for t in status_of(home, None).tables] == [("t", "defined"), ("v", "defined")]
    (statement,) = parse("DESCRIBE v")
    shown = listing.run(home, statement).rows
    assert shown is not None and shown["column"].to_pylist() == ["a"]
