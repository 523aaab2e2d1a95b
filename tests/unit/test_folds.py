"""When overlays are folded: the largest that is due, within a budget, and one table's failure is its own."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.commit.folds import UNSETTLED_CHANGES, UNSETTLED_SPANS, Folds, Unfolded
from headwater.engine.guard import Guard
from headwater.errors import DataError
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

    def make_run(self, *_: Any) -> bool:
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
    return Folds(b.home, b.held, b.committer, reader, reader, Guard(b.home, b.held)), reader  # type: ignore[arg-type]


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
