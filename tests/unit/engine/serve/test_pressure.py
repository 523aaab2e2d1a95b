"""A capture waits when its changelog is too far ahead of what folds can work off, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.engine.failures import Who
from headwater.engine.serve.pressure import EASED, Pressure
from headwater.engine.serve.supervisor import Supervisor
from headwater.errors import DataError, MachineError
from headwater.meta import connections, epochs, relations, segments
from headwater.model import Bound, Column, CoveredSpan, EpochEntry, Layout, Span, TableState, UpstreamType
from support.defined import add_table
from support.home import change_settings
from support.log import Log
from support.messages import begin, commit, relation, row

COLUMNS = (Column("a", "STRING", UpstreamType("text", 25, ordered=True)),)


class Told(Supervisor):
    """A supervisor without captures that remembers which of them should wait."""

    paused: set[int] = frozenset()  # type: ignore[assignment]

    def pause(self, connection_ids: set[int]) -> None:
        self.paused = set(connection_ids)


class Lake:
    """A changelog of ten changes, one segment each."""

    def __init__(self, path: Path) -> None:
        self.log = Log(path)
        for n in range(10):
            self.log.write(begin(101 + n), relation(1, "a"), row("I", 1), commit(200 + n))
        self.supervisor = Told(self.log.home, lambda: None)
        self.pressure = Pressure(self.log.home, self.supervisor)
        with self.log.home.meta.read() as c:
            sizes = [s.bytes for s in segments.in_range(c, self.log.id, 0, 10)]
        self.size = sum(sizes)

    def folded(self, name: str, index: int, state: TableState = TableState.LIVE) -> int:
        """A table whose base holds the changelog up to an index; the newest epoch holds all of it."""
        with self.log.home.meta.write() as c:
            found = relations.find(c, name)
            id = found.id if found else add_table(c, name, COLUMNS, ("a",), connection_id=self.log.id)
            relations.set_state(c, id, state)
            layout = Layout(id, 0, (CoveredSpan(Span(None, None), index, index),), True)
            epochs.publish(c, [EpochEntry(self.log.id, 10, "0/1")], {id: layout})
        return id

    def look(self, limit: int) -> bool:
        change_settings(self.log.home, changelog_ahead_bytes=limit)
        self.pressure.look()
        return self.log.id in self.supervisor.paused


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home")
    yield made
    made.log.home.meta.close()


def test_it_waits_for_the_table_that_is_folded_least(lake: Lake) -> None:
    lake.folded("first", 9)
    lake.folded("second", 4)
    part = sum_after(lake, 4)
    assert not lake.look(part)
    assert lake.pressure.ahead_bytes == {lake.log.id: part}
    assert lake.look(part - 1)
    (job, error) = lake.log.home.live.failures.of(connection=lake.log.id)[0]
    assert (job, error.code) == ("pause", "changelog.ahead")


def test_it_continues_once_folds_have_worked_off_enough(lake: Lake) -> None:
    lake.folded("t", 0)
    assert lake.look(lake.size - 1)
    lake.folded("t", 1)
    limit = lake.size - 1
    assert sum_after(lake, 1) >= EASED * limit, "less, but not enough"
    assert lake.look(limit)
    lake.folded("t", 5)
    assert not lake.look(limit)
    assert lake.log.home.live.failures.of(connection=lake.log.id) == []


def test_without_a_limit_no_capture_waits(lake: Lake) -> None:
    lake.folded("t", 0)
    assert lake.look(1)
    assert not lake.look(0)


def test_what_no_fold_can_work_off_does_not_count(lake: Lake) -> None:
    failed = lake.folded("failed", 0, TableState.FAILED)
    broken = lake.folded("broken", 0)
    full = MachineError("home.disk_full", "no space left", "Free some.")
    lake.log.home.live.failures.failed(Who("fold", table=broken), full)
    lake.folded("good", 10)
    with lake.log.home.meta.write() as c:
        add_table(c, "not_read_yet", COLUMNS, ("a",), connection_id=lake.log.id)
        error = DataError("data.schema_changed", "it changed", "RESYNC TABLE")
        relations.set_state(c, failed, TableState.FAILED, error)
    assert not lake.look(1)
    assert lake.pressure.ahead_bytes == {lake.log.id: 0}


def test_a_table_that_is_being_filled_does_not_count(lake: Lake) -> None:
    """Its spans are covered only if the capture goes on."""
    lake.folded("good", 10)
    filling = lake.folded("filling", 0)
    for covered in ((), (CoveredSpan(Span(None, Bound(("m",))), 0, 0),)):
        with lake.log.home.meta.write() as c:
            epochs.publish(c, [EpochEntry(lake.log.id, 10, "0/1")], {filling: Layout(filling, 0, covered, False)})
        assert not lake.look(1)
        assert lake.pressure.ahead_bytes == {lake.log.id: 0}


def test_a_dropped_connection_is_not_held_any_more(lake: Lake) -> None:
    id = lake.folded("t", 0)
    assert lake.look(1)
    with lake.log.home.meta.write() as c:
        relations.remove(c, id)
        connections.remove(c, lake.log.id)
    assert not lake.look(1)
    assert lake.pressure.paused == set()


def sum_after(lake: Lake, index: int) -> int:
    with lake.log.home.meta.read() as c:
        return sum(s.bytes for s in segments.in_range(c, lake.log.id, index, 10))
