"""Planning into meta, on a real table: each key in one span; an interrupted plan goes on where it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.backfill.read_span import scan_table
from headwater.engine.fill import planner, scanner
from headwater.meta import connections, relations, spans
from headwater.model import RelationInfo, ScanResult, SpanState, TableState
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.connected import upstream_of
from support.lake import definitions
from support.owned import acquired

ROWS = 250  # five spans of 60 rows at most, and what lies beyond


class Planned:
    """A home whose table is to be planned."""

    def __init__(self, hw: Any) -> None:
        self.home = hw._home
        with self.home.meta.write() as c:
            lease = acquired(c)
            relation = relations.find(c, "t")
            assert lease is not None and relation is not None
            made = upstream_of(self.home.meta, 1)
        self.lease, self.id = lease, relation.id
        ready = made.prepare(lambda who: None)
        with self.home.meta.write() as c:
            connections.prepared(
                c, 1, identity=ready.identity, position=ready.position, txn=ready.txn, server_life=ready.life
            )
            relations.set_state(c, self.id, TableState.FILLING)
            relations.set_base_version(c, self.id, 0)

    @property
    def relation(self) -> RelationInfo:
        with self.home.meta.read() as c:
            return relations.get(c, self.id)

    def plan(self, stopping: Callable[[], bool] = lambda: False) -> None:
        planner.plan_relation(self.home, self.lease, self.relation, lambda: None, stopping)

    def spans(self) -> list[Any]:
        with self.home.meta.read() as c:
            return spans.all(c, self.id)

    def complete(self) -> bool:
        with self.home.meta.read() as c:
            return relations.planned(c, self.id)


@pytest.fixture
def t(database: Any, tmp_path: Path) -> Iterator[Planned]:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute(f"INSERT INTO t SELECT i * i, i FROM generate_series(1, {ROWS}) i")
    with headwater.open(tmp_path / "home") as hw:
        hw.sql(definitions(database, ["t"]))
        yield Planned(hw)


def test_rows_of_a_span_are_the_tables_own_or_those_of_the_settings(t: Planned) -> None:
    assert scanner.wanted_rows(t.relation, DEFAULTS) == (60, True)
    bare = dataclasses.replace(t.relation, options={})
    assert scanner.wanted_rows(bare, Settings(rows_per_span=10)) == (10, False)
    plan = planner._plan(
        bare, upstream_of(t.home.meta, 1).reach.read_extent(scan_table(bare)), Settings(rows_per_span=10, span_bytes=1)
    )
    assert plan.step == 10


def is_one_map(found: list[Any]) -> bool:
    ends = [(s.span.lo, s.span.hi) for s in found]
    return ends[0][0] is None and ends[-1][1] is None and all(a[1] == b[0] is not None for a, b in pairwise(ends))


def test_a_plan_is_one_map_and_what_lies_beyond_counts_as_read(t: Planned) -> None:
    t.plan()
    found = t.spans()
    assert is_one_map(found) and t.complete() and len(found) > ROWS // 60
    *inside, beyond = found
    assert all(s.state is SpanState.PENDING for s in inside)
    assert beyond.state is SpanState.SCANNED and beyond.rows == 0 and beyond.saw and beyond.high
    assert beyond.span.lo.key == (str(ROWS * ROWS),)


def test_a_plan_that_was_stopped_continues_where_it_ended_with_the_end_it_began_with(
    t: Planned, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FLUSH_S", -1.0)  # each span is written down at once
    t.plan(stopping=lambda: True)
    first = t.spans()
    assert not t.complete() and len(first) == 2, "one span, and what lies beyond"
    database.execute(f"INSERT INTO t VALUES ({ROWS * ROWS + 5}, 0)")  # belongs to what lies beyond, and stays there
    t.plan()
    found = t.spans()
    assert is_one_map(found) and t.complete()
    assert (found[0], found[-1]) == (first[0], first[-1])


def test_leaving_the_rest_counts_it_as_read_and_empty_but_not_what_is_read_again(
    t: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FLUSH_S", -1.0)
    t.plan(stopping=lambda: True)
    planner.leave_rest(t.home, t.lease, t.relation, lambda: None)
    found = t.spans()
    assert is_one_map(found) and t.complete()
    assert all(s.state is SpanState.SCANNED and s.rows == 0 for s in found)
    with t.home.meta.write() as c:
        spans.read_all_again(c, t.id)
    planner.leave_rest(t.home, t.lease, t.relation, lambda: None)
    assert [s.state for s in t.spans()] == [SpanState.PENDING]


def test_a_scan_is_recorded_with_what_could_not_be_kept_and_an_empty_log(t: Planned) -> None:
    t.plan()
    first = t.spans()[0]
    with t.home.meta.write() as c:
        result = ScanResult("700:700:", "0/1", (), 7, {"v": 3})
        scanner.record(c, t.relation, first, result, "life")
        (notice,) = relations.notices(c, t.id)
    assert "column v" in notice.text
    now = t.spans()[0]
    assert (now.state, now.saw, now.rows, now.log_index) == (SpanState.SCANNED, "700:700:", 7, 0)
