"""Pauses between tries double up to the last one, and begin anew after something has lasted."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.backoff import Backoff

SECONDS = st.floats(0.001, 100.0)
BACKOFFS = st.builds(lambda first, more: Backoff(first, first + more), SECONDS, SECONDS)


def pauses(backoff: Backoff, count: int) -> list[float]:
    found = [backoff.after()]
    while len(found) < count:
        found.append(backoff.after(found[-1]))
    return found


def test_pauses_double_and_end_at_the_last() -> None:
    assert pauses(Backoff(0.5, 30.0), 9) == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


@given(BACKOFFS, st.integers(2, 60))
def test_every_pause_is_twice_the_one_before_or_the_last(backoff: Backoff, count: int) -> None:
    found = pauses(backoff, count)
    assert found[0] == backoff.first_s
    assert all(after in (2 * before, backoff.last_s) for before, after in pairwise(found))
    assert found == sorted(found) and found[-1] <= backoff.last_s


@given(BACKOFFS, st.integers(1, 60), SECONDS)
def test_only_what_lasted_longer_than_any_pause_begins_again(backoff: Backoff, count: int, lasted_s: float) -> None:
    before = pauses(backoff, count)[-1]
    anew = lasted_s > backoff.last_s
    assert backoff.after(before, lasted_s) == (backoff.first_s if anew else backoff.after(before))


def test_tries_that_need_no_pause_have_none() -> None:
    assert pauses(Backoff(0.0, 30.0), 4) == [0.0] * 4
