"""A table is checked again before it is published: a publication without a usable identity stops the application."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headwater
from headwater import crash
from headwater.engine.fill.backfill import Backfill
from headwater.engine.guard import Guard
from headwater.errors import DataError
from headwater.meta import connections, relations
from headwater.model import ConnectionState, RelationInfo, TableState
from headwater.ownership.lease import Leases
from headwater.source.connected import upstream_of
from support.lake import definitions
from support.owned import serving

SPOILED = (
    "ALTER TABLE t REPLICA IDENTITY NOTHING",
    "ALTER TABLE t DROP CONSTRAINT t_pkey",
    "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t ADD PRIMARY KEY (id) DEFERRABLE",
)
UPDATE = "UPDATE t SET v = v + 1"


def no_spark() -> Any:
    raise AssertionError("nothing of a table that cannot be published is made")


@pytest.fixture
def hw(database: Any, tmp_path: Path) -> Iterator[Any]:
    """A home that has defined the table, and whose connection runs; no server has begun with the table."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    with headwater.open(tmp_path / "home") as hw:
        hw.sql(definitions(database, ["t"]))
        upstream_of(hw._home.meta, 1).prepare(lambda who: None)  # slot and publication, as the server makes them
        with hw._home.meta.write() as c:
            connections.set_state(c, 1, ConnectionState.RUNNING)
        yield hw


def owner(hw: Any) -> Leases:
    with hw._home.meta.write() as c:
        return serving(c)


def begun(hw: Any, leases: Leases) -> RelationInfo:
    """The table after a server has begun with it."""
    backfill = Backfill(hw._home, leases, no_spark, lambda: None)
    try:
        backfill.tick()
    finally:
        backfill.stop()
    with hw._home.meta.read() as c:
        relation = relations.find(c, "t")
    assert relation is not None
    return relation


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_table_that_lost_its_identity_is_not_published_and_can_still_be_updated(
    hw: Any, database: Any, spoil: str
) -> None:
    database.execute(spoil)
    relation = begun(hw, owner(hw))
    assert relation.state is TableState.FAILED
    assert relation.error is not None and relation.error["code"].startswith("table.")
    published = "SELECT count(*) FROM pg_publication_tables WHERE tablename = 't'"
    assert database.execute(published) == [(0,)]
    database.execute(UPDATE)
    # what the order saves the application from
    database.execute("CREATE PUBLICATION blind FOR TABLE t")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        database.execute(UPDATE)


def test_a_table_as_it_was_defined_is_published_and_waits(hw: Any, database: Any) -> None:
    relation = begun(hw, owner(hw))
    assert relation.state is TableState.WAITING
    assert database.execute("SELECT count(*) FROM pg_publication_tables WHERE tablename = 't'") == [(1,)]
    database.execute(UPDATE)


def test_a_table_that_is_stopped_while_it_is_published_stays_stopped(hw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leases = owner(hw)
    error = DataError("data.rewritten", "its rows changed", "RESYNC TABLE t")
    reached = []

    def watcher_is_faster(point: str) -> None:
        if point == "publication.altered":
            with hw._home.meta.read() as c:
                (relation,) = relations.named(c)
            Guard(hw._home, leases).stop(relation.id, error)
            reached.append(point)

    monkeypatch.setattr(crash, "here", watcher_is_faster)
    assert begun(hw, leases).state is TableState.FAILED and reached
