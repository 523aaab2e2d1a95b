"""Whether a view is recomputed: by what past refreshes cost."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.view.cost import predicted, why_full


@dataclass
class Past:
    strategy: str
    rows_read: int
    ms: float


def test_without_experience_a_tenth_of_the_rows_is_the_limit() -> None:
    assert why_full([], 99, 1000) == ""
    assert "10%" in why_full([], 101, 1000)


def test_a_line_through_past_refreshes_predicts_the_next() -> None:
    past = [Past("rows", 100, 50.0), Past("groups", 300, 90.0)]
    assert predicted(past, 500) == 130.0
    assert predicted(past, 0) == 30.0


def test_one_measured_size_is_not_taken_for_every_size() -> None:
    past = [Past("rows", 100, 100.0), Past("rows", 100, 100.0)]
    assert predicted(past, 50) == 100.0
    assert predicted(past, 10_000) > 1000.0


def test_recomputing_is_chosen_only_if_it_is_clearly_faster() -> None:
    past = [Past("rows", 1000, 100.0), Past("rows", 3000, 300.0), Past("full", 9000, 200.0)]
    assert why_full(past, 2300, 9000) == ""
    assert "recomputing took 200 ms" in why_full(past, 2500, 9000)
    assert why_full(past, 10, 9000) == ""


def test_what_was_measured_says_nothing_about_much_larger_changes() -> None:
    past = [Past("rows", 10, 100.0), Past("rows", 12, 100.0), Past("full", 9000, 90.0)]
    assert why_full(past, 11, 9000) == ""
    assert why_full(past, 800, 9000) == "", "tried, to learn what it costs"
    assert "10%" in why_full(past, 1000, 9000)


def test_recomputing_is_tried_once_where_its_cost_is_worth_knowing() -> None:
    past = [Past("rows", 300, 100.0), Past("rows", 400, 100.0)]
    assert why_full(past, 50, 9000) == ""
    assert "learn" in why_full(past, 300, 9000)
    assert why_full([*past, Past("full", 9000, 300.0)], 300, 9000) == ""


def test_time_never_falls_with_more_rows() -> None:
    assert predicted([Past("rows", 100, 90.0), Past("rows", 200, 30.0)], 1_000_000) == 60.0


def test_one_slow_recomputation_does_not_make_all_of_them_slow() -> None:
    past = [Past("rows", 1000, 100.0), Past("rows", 3000, 300.0), Past("full", 9000, 9000.0), Past("full", 9000, 200.0)]
    assert "recomputing took 200 ms" in why_full(past, 2500, 9000)
