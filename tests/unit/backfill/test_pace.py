"""The rate limit of a table's scans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.backfill.pace import QUANTUM_S, Pace


def test_without_a_limit_everything_may_be_read_and_with_zero_nothing() -> None:
    assert Pace().take(None, 5.0) == 0
    assert Pace().take(0, 5.0) is None


@given(
    limit=st.integers(1, 10**6),
    steps=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_over_any_while_no_more_than_the_limit_is_handed_out(limit: int, steps: list[tuple[float, float]]) -> None:
    """Each step waits a while, asks, and reads some share of what it gets; the rest is given back."""
    pace, now, read = Pace(), 0.0, 0.0
    for wait, share in steps:
        now += wait
        rows = pace.take(limit, now)
        if rows is not None:
            used = int(rows * share)
            pace.give_back(limit, rows - used)
            read += used
    assert read <= limit * now + max(1, limit * QUANTUM_S) + 1


@given(limit=st.integers(1, 10**6), wait=st.floats(0.01, 1))
def test_who_asks_often_enough_gets_about_the_limit(limit: int, wait: float) -> None:
    pace, now, read = Pace(), 0.0, 0
    while now < 60:
        read += pace.take(limit, now) or 0
        now += wait
    assert read >= limit * 60 * QUANTUM_S / (QUANTUM_S + 2 * wait) * 0.5


def test_a_new_limit_takes_effect_within_a_quantum() -> None:
    pace = Pace()
    assert pace.take(10, 0.0) == 20
    assert pace.take(1000, 1.0) is None
    assert pace.take(1000, QUANTUM_S) == 2000
