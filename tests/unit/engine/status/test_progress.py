"""Rates, estimates and lags: what is said of a backfill while it runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headwater.engine.live import Lag
from headwater.engine.status.progress import (
    RATE_WINDOW_S,
    SAMPLES,
    STALE_S,
    Ahead,
    Rate,
    about,
    estimated_rows,
    seconds_left,
)
from headwater.meta.progress import Progress
from headwater.model import SpanState


def passed(position: str, end: str) -> bool:
    return int(position) >= int(end)


def rate_of(looks: list[tuple[float, int]]) -> Rate:
    rate = Rate()
    for at, count in looks:
        rate = rate.saw(count, at)
    return rate


def progress(scanned: int, total: int, rows: int, estimate: int = -1, planned: bool = True) -> Progress:
    counts = {SpanState.COVERED: scanned, SpanState.PENDING: total - scanned}
    return Progress(counts, rows, None, planned, estimate)


def test_a_rate_needs_two_looks_and_is_taken_over_the_window_only() -> None:
    assert Rate().per_second() == rate_of([(1.0, 500)]).per_second() == 0.0
    assert rate_of([(0.0, 0), (10.0, 500)]).per_second() == 50.0
    fast_then_still = [(0.0, 0), (1.0, 1_000_000), *((float(t), 1_000_000) for t in range(2, 100))]
    assert rate_of(fast_then_still).per_second() == 0.0
    assert len(rate_of(fast_then_still).seen) <= RATE_WINDOW_S + 2


def test_rows_that_are_to_be_read_again_do_not_make_a_negative_rate() -> None:
    assert rate_of([(0.0, 1000), (1.0, 2000), (2.0, 500)]).per_second() == 0.0
    assert rate_of([(0.0, 1000), (2.0, 500), (4.0, 700)]).per_second() == 100.0


@given(some.lists(some.tuples(some.floats(0.1, 40), some.integers(0, 10**6)), min_size=2, max_size=60))
def test_a_rate_lies_between_the_slowest_and_the_fastest_moment(steps: list[tuple[float, int]]) -> None:
    at, count, looks = 0.0, 0, [(0.0, 0)]
    for pause, more in steps:
        at, count = at + pause, count + more
        looks.append((at, count))
    speeds = [more / pause for pause, more in steps]
    assert min(speeds) * 0.999 <= rate_of(looks).per_second() <= max(speeds) * 1.001


def test_rows_in_all_are_the_upstreams_estimate_until_more_were_read() -> None:
    assert estimated_rows(progress(2, 5, 2000, estimate=9000)) == 9000
    assert estimated_rows(progress(3, 5, 2000, estimate=1500)) == 4000  # two of four spans with rows had 2,000
    assert estimated_rows(progress(3, 5, 2000, estimate=-1)) == 4000
    assert estimated_rows(progress(5, 5, 7777, estimate=9000)) == 7777
    assert estimated_rows(progress(1, 1, 0, estimate=0)) == 0
    assert estimated_rows(progress(1, 5, 0)) is None
    assert estimated_rows(progress(3, 5, 2000, estimate=-1, planned=False)) is None
    assert estimated_rows(Progress()) is None


def test_the_time_left_is_reported_only_where_it_can_be_estimated() -> None:
    assert seconds_left(progress(2, 5, 2000, estimate=9000), 100.0) == 70.0
    assert seconds_left(progress(2, 5, 2000, estimate=9000), 0.0) is None
    assert seconds_left(progress(5, 5, 2000, estimate=9000), 100.0) is None
    assert seconds_left(progress(1, 5, 0), 100.0) is None


@given(some.integers(0, 50), some.integers(0, 50), some.integers(0, 10**9), some.integers(-1, 10**9), some.booleans())
def test_an_estimate_is_never_below_what_was_read(scanned: int, more: int, rows: int, guess: int, all: bool) -> None:
    p = progress(scanned, scanned + more, rows, guess, all)
    assert (estimated_rows(p) or rows) >= rows
    assert (seconds_left(p, 10.0) or 0.0) >= 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0.2, "1 s"), (89, "89 s"), (91, "2 min"), (180, "3 min"), (5399, "90 min"), (7800, "2 h 10 min")),
        *((7200, "2 h"), (86400, "24 h"), (400_000, "5 days")),
    ],
)
def test_an_estimated_duration_says_that_it_is_one(seconds: float, words: str) -> None:
    assert about(seconds) == f"≈ {words}"


def test_an_upstream_that_is_not_ahead_has_no_lag_however_old_its_last_change_is() -> None:
    ahead = Ahead().saw("100", 0, 10.0, "100", passed)
    ahead = ahead.saw("100", 0, 1000.0, "100", passed)
    assert ahead.lag("100", passed, 1001.0) == Lag(0, 0.0)


def test_lag_is_since_when_the_upstream_has_what_the_changelog_has_not() -> None:
    ahead = Ahead()
    for at, end in [(10.0, "100"), (12.0, "200"), (14.0, "300"), (16.0, "300")]:
        ahead = ahead.saw(end, int(end) - 100, at, "100", passed)
    assert ahead.lag("100", passed, 17.0) == Lag(200, 5.0)
    assert ahead.lag("250", passed, 17.0) == Lag(200, 3.0)
    assert ahead.lag("300", passed, 17.0) == Lag(0, 0.0)
    assert ahead.saw("400", 100, 18.0, "300", passed).ends == ((14.0, "300"), (18.0, "400")), "the rest was passed"


def test_an_upstream_that_nobody_asked_lately_may_be_anywhere() -> None:
    assert Ahead().lag("100", passed, 5.0) is None
    ahead = Ahead().saw("100", 100, 10.0, "0", passed)
    assert ahead.lag("0", passed, 10.0 + STALE_S) is not None
    assert ahead.lag("0", passed, 10.1 + STALE_S) is None


def test_a_changelog_that_is_far_behind_for_days_costs_no_memory_and_keeps_its_first_moment() -> None:
    ahead = Ahead()
    for i in range(20_000):
        ahead = ahead.saw(str(i + 1), i + 1, float(i), "0", passed)
    assert len(ahead.ends) <= SAMPLES
    assert ahead.lag("0", passed, 20_000.0) == Lag(20_000, 20_000.0)
