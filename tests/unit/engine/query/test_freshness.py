"""How old an answer is said to be: the lag where somebody knows it, else how long the changelog has not moved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headwater.engine.home import Home
from headwater.engine.live import Lag
from headwater.engine.query.freshness import behind, worth_saying
from headwater.engine.results import Behind, Result
from headwater.errors import SourceError
from headwater.meta import changes, connections, epochs, relations, views
from headwater.meta.tables import connection, relation, view
from headwater.model import ConnectionState, EpochEntry
from support.defined import add_connection, add_table

MINUTE = 60.0


@dataclass
class Serving:
    """A server that knows a lag, or does not."""

    known: float | None

    def lag(self, connection_id: int, position: str) -> Lag | None:
        return None if self.known is None else Lag(1, self.known)

    def paused(self, connection_id: int) -> bool:
        return False


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A connection whose changelog moved twelve minutes ago."""
    opened = Home.open(tmp_path / "home")
    with opened.meta.write() as c:
        for name in ("shop", "other"):
            add_connection(c, name)
        connections.set_state(c, 1, ConnectionState.RUNNING)
        c.execute(sa.update(connection).values(position_at=time.time() - 12 * MINUTE))
    yield opened
    opened.meta.close()


def said(home: Home, server: Any, **asked: Any) -> list[str]:
    with home.meta.read() as c:
        return [str(b) for b in worth_saying(behind(c, server, asked.get("ids", {1}), asked.get("names", ())))]


def fail(home: Home, state: ConnectionState) -> None:
    with home.meta.write() as c:
        connections.set_state(c, 1, state, SourceError("source.unreachable", "gone", "Start it."))


def test_without_a_server_the_silence_is_reported(home: Home) -> None:
    assert said(home, None) == ["shop: 12 min behind: no server is running"]
    assert said(home, None, ids=(), names=("OTHER",)) == ["other: 12 min behind: no server is running"]
    assert said(home, None, ids=()) == []


@pytest.mark.parametrize("state", [ConnectionState.RETRYING, ConnectionState.FAILED])
def test_an_upstream_that_is_away_is_reported_with_the_reason(home: Home, state: ConnectionState) -> None:
    fail(home, state)
    # an old lag that the server remembers is no comfort
    assert said(home, Serving(0.0)) == said(home, None) == ["shop: 12 min behind: source.unreachable"]


def test_a_lag_is_reported_when_it_is_long_enough(home: Home) -> None:
    assert said(home, Serving(0.0)) == said(home, Serving(3.0)) == []
    assert said(home, Serving(200.0)) == ["shop: 3 min behind: catching up"]


def test_a_capture_that_runs_and_is_not_heard_from_is_reported(home: Home) -> None:
    assert said(home, Serving(None)) == ["shop: 12 min behind: nothing has been heard from the upstream"]
    moved(home, 20.0)
    assert said(home, Serving(None)) == [], "two heartbeats may be late"
    assert said(home, None) == ["shop: 20 s behind: no server is running"]
    with home.meta.write() as c:
        connections.advance(c, 1, "0/20")
    assert said(home, Serving(None)) == []


def moved(home: Home, seconds_ago: float) -> None:
    with home.meta.write() as c:
        c.execute(sa.update(connection).values(position_at=time.time() - seconds_ago))


def test_nothing_is_reported_about_a_connection_without_a_changelog(home: Home) -> None:
    with home.meta.write() as c:
        c.execute(sa.update(connection).values(position=""))
    assert said(home, None) == []


def test_changes_that_no_epoch_shows_are_reported(home: Home) -> None:
    with home.meta.write() as c:
        epoch = epochs.publish(c, [EpochEntry(1, 5, "0/8")], {})
        c.execute(sa.update(connection).where(connection.c.id == 1).values(committed_index=9))
    with home.meta.read() as c:
        late = behind(c, Serving(0.0), {1}, now=epoch.created_at + 20)  # type: ignore[arg-type]
        assert [(b.reason, b.seconds) for b in late] == [("its newest changes have not been published yet", 20.0)]
        assert behind(c, Serving(0.0), {1}, now=epoch.created_at + 1)[0].seconds == 0.0  # type: ignore[arg-type]
    with home.meta.write() as c:
        epoch = epochs.publish(c, [EpochEntry(1, 9, "0/9")], {})
    with home.meta.read() as c:
        assert behind(c, Serving(0.0), {1}, now=epoch.created_at + 20)[0].seconds == 0.0, "all is shown"  # type: ignore[arg-type]


def test_it_travels_with_the_result() -> None:
    result = Result(message="m", behind=(Behind("shop", 720.0, "source.unreachable"),))
    assert Result.of(result.header(), None) == result


def test_a_view_is_as_old_as_the_connections_of_all_tables_below_it(home: Home) -> None:
    with home.meta.write() as c:
        tables = [add_table(c, name, connection_id=id) for name, id in (("t", 1), ("u", 2))]
        below, above, new = (add_table(c, name, connection_id=0) for name in ("below", "above", "new"))
        for id, inputs in ((below, tables[:1]), (above, [below, tables[1]]), (new, [below])):
            views.add(c, id, query="SELECT 1", inputs=inputs, uses={}, visible=0, order=[], limit=None)
        found = [relations.get(c, id) for id in (below, above)]
        assert [changes.connections_of(c, [r]) for r in found] == [{1}, {1, 2}]
        c.execute(sa.update(view).where(view.c.relation_id == below).values(inputs="[]"))
        c.execute(sa.update(relation).where(relation.c.id == below).values(replaced_by=new))
        c.execute(sa.update(view).where(view.c.relation_id == new).values(inputs=f"[{tables[0]}]"))
        assert changes.connections_of(c, [relations.get(c, below)]) == {1}, "it has handed its inputs over"
