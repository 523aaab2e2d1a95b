"""When overlays are folded: the largest that is due, within a budget, and one table's failure is its own."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.commit.ahead import ahead_bytes
from headwater.engine.commit.folds import UNSETTLED_CHANGES, UNSETTLED_SPANS, Folds, Unfolded
from headwater.engine.failures import Who
from headwater.engine.guard import Guard
from headwater.errors import DataError
from headwater.meta import relations
from headwater.model import CoveredSpan, Layout, TableState
from headwater.settings.table import DEFAULTS, Settings
from support.commits import Commits, span
from support.home import change_settings
from support.relation import columns_of, relation_of

NOW = 1e9
SETTLED = Layout(1, 0, (CoveredSpan(span(None, None), 5, 5),), True)
UNSETTLED = Layout(1, 0, (CoveredSpan(span(None, None), 5, 5, ("1:2:",)),), True)
PART = replace(UNSETTLED, complete=False)


def overlay(layout: Layout, changes: int, age_s: float = 0.0) -> Unfolded:
    return Unfolded(relation_of(columns_of(), ("k",)), changes, layout, 9, NOW - age_s)


@pytest.mark.parametrize(
    ("layout", "changes", "age_s", "due", "urgent"),
    [
        (SETTLED, DEFAULTS.fold_changes, 0, True, True),
        (SETTLED, DEFAULTS.fold_changes - 1, 0, False, False),
        (SETTLED, 1, DEFAULTS.fold_age_s, True, False),
        (SETTLED, 1, DEFAULTS.fold_age_s - 1, False, False),
        (SETTLED, 0, 10 * DEFAULTS.fold_age_s, False, False),
        (UNSETTLED, 0, 0, True, False),  # complete and not settled: one fold forgets what every scan saw
        (PART, 0, 0, False, False),
        (PART, UNSETTLED_CHANGES, 0, True, True),
        (PART, UNSETTLED_CHANGES - 1, 0, False, False),
    ],
)
def test_an_overlay_is_due_by_size_by_age_or_to_settle(
    layout: Layout, changes: int, age_s: float, due: bool, urgent: bool
) -> None:
    found = overlay(layout, changes, age_s)
    assert (found.due(NOW), found.urgent()) == (due, urgent)


def test_the_age_and_the_size_at_which_an_overlay_is_due_are_settings() -> None:
    old, large = overlay(SETTLED, 1, 60), overlay(SETTLED, 100)
    assert not old.due(NOW) and not large.due(NOW)
    assert replace(old, settings=Settings(fold_age_s=60)).due(NOW)
    assert replace(large, settings=Settings(fold_changes=100)).urgent()


def test_folds_rest_as_long_as_their_budget_says(b: Commits) -> None:
    change_settings(b.home, fold_budget=0.01)
    tended, _ = folds(b)
    began = time.monotonic()
    tended.tick()
    took = time.monotonic() - began
    assert b.merged and tended._rest_until - time.monotonic() > 10 * took


@pytest.mark.parametrize(("parts", "due"), [(UNSETTLED_SPANS - 1, False), (UNSETTLED_SPANS, True)])
def test_many_spans_that_are_judged_each_for_itself_are_folded(parts: int, due: bool) -> None:
    many = replace(PART, spans=tuple(CoveredSpan(span(i, i + 1), 5, 5, ("1:2:",)) for i in range(parts)))
    assert overlay(many, 0).due(NOW) is due


class NoRuns:
    """Where the reader would look for holes and make runs."""

    def __init__(self) -> None:
        self.refuses: DataError | None = None

    def holes(self, relation: Any, layout: Layout, index: int) -> Any:
        return _Nothing()

    def make_runs(self, *_: Any) -> bool:
        if self.refuses is not None:
            raise self.refuses
        return False


class _Nothing:
    num_rows = 0


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    made = Commits.make(tmp_path, [span(None, None)])
    made.log(4, position=20)
    made.scan(0, [1], high=20, log_index=0)
    assert made.committer.cover(made.relation_id) is not None
    return made


def folds(b: Commits) -> tuple[Folds, NoRuns]:
    reader = NoRuns()
    return Folds(b.home, b.leases, b.committer, reader, reader, Guard(b.home, b.leases)), reader  # type: ignore[arg-type]


def test_a_complete_table_is_settled_by_one_fold_and_then_left_alone(b: Commits) -> None:
    tended, _ = folds(b)
    tended.tick()
    assert tended.changes == {b.relation_id: 4}
    assert len(b.merged) == 1 and b.states == ["settled"]
    tended.tick()
    assert len(b.merged) == 1 and tended.changes == {b.relation_id: 0}


def test_the_budget_holds_back_all_but_urgent_folds(b: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    tended, _ = folds(b)
    tended._rest_until = time.monotonic() + 1000
    tended.tick()
    assert not b.merged
    monkeypatch.setattr("headwater.engine.commit.folds.UNSETTLED_CHANGES", 4)
    tended.tick()
    assert len(b.merged) == 1


def test_a_table_whose_changes_cannot_be_read_stops_and_is_tended_no_more(b: Commits) -> None:
    tended, reader = folds(b)
    tended.tick()
    b.log(1, position=30)
    b.publish()
    reader.refuses = DataError("data.rewritten", "a change cannot be decoded", "RESYNC TABLE t;")
    tended.tick()
    assert b.relation.state is TableState.FAILED
    assert b.relation.error is not None and b.relation.error["code"] == "data.rewritten"
    tended.tick()
    assert tended.changes == {}


@pytest.mark.parametrize("changes", [0, 1])
def test_a_quiet_table_does_not_hold_back_the_changelog_of_a_busy_one(tmp_path: Path, changes: int) -> None:
    b, quiet_oid = Commits.make(tmp_path / "home", [span(None, None)]), 4712
    busy, quiet = b.relation_id, b.add_relation("quiet", [span(None, None)])
    with b.home.meta.write() as c:
        c.exec_driver_sql(f"UPDATE relation SET upstream_id = {quiet_oid} WHERE id = {quiet}")
    for id in (busy, quiet):
        b.relation_id = id
        b.idle(20)
        b.scan(0, [1], high=20, log_index=0)
        assert b.cover() is not None
    b.relation_id = busy
    change_settings(b.home, changelog_ahead_bytes=6, fold_changes=10)  # a segment has one byte here
    tended, _ = folds(b)
    with b.home.meta.write() as c:
        for id in (busy, quiet):
            relations.set_folded(c, id)  # just now: neither is old enough to be folded
    if changes:
        b.log(changes, 30, table=quiet_oid)
    furthest = 0
    for position in range(40, 200, 10):
        b.log(12, position)
        b.publish()
        for _ in range(3):
            tended.tick()
        with b.home.meta.read() as c:
            furthest = max(furthest, *ahead_bytes(c, b.home.live.failures).values())
    assert furthest <= 6, "a capture would have waited"


def test_what_is_being_filled_or_cannot_be_folded_does_not_count(tmp_path: Path) -> None:
    b = Commits.make(tmp_path, [span(None, 5), span(5, None)])
    b.log(4, position=20)
    b.log(3, position=30)

    def ahead() -> dict[int, int]:
        b.publish()
        with b.home.meta.read() as c:
            return ahead_bytes(c, b.home.live.failures)

    counts = []
    for ordinal in range(2):
        b.scan(ordinal, [1 + 6 * ordinal], high=20, log_index=0)
        assert b.cover() is not None
        counts.append(ahead())
    assert counts == [{}, {b.connection_id: 2}]
    b.home.live.failures.failed(Who("fold", table=b.relation_id), DataError("data.rewritten", "x", "y"))
    assert ahead() == {}
