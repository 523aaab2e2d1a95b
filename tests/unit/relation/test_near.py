"""Ranges near keys hold every key, and miss only files that have none of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.relation.near import _touched, ranges

PLACES = st.lists(st.integers(-50, 50), max_size=12)


@given(places=PLACES, most=st.integers(1, 6))
def test_every_place_is_in_one_of_a_few_ranges(places: list[int], most: int) -> None:
    lows, highs = ranges(np.array(places, np.int64), most)
    assert len(lows) == len(highs) <= most
    assert all(any(a <= p <= b for a, b in zip(lows, highs, strict=True)) for p in places)
    assert set(lows) | set(highs) <= set(places)
    assert all(highs[i] < lows[i + 1] for i in range(len(lows) - 1))


def test_ranges_are_apart_where_the_gaps_are_widest() -> None:
    lows, highs = ranges(np.array([1, 2, 50, 52, 1000, 1001]), 3)
    assert list(zip(lows.tolist(), highs.tolist(), strict=True)) == [(1, 2), (50, 52), (1000, 1001)]


@given(places=PLACES, files=st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 20)), min_size=1, max_size=6))
def test_a_file_is_skipped_only_if_no_range_meets_it(places: list[int], files: list[tuple[int, int]]) -> None:
    lows, highs = ranges(np.array(places, np.int64), 4)
    first, last = np.array([f[0] for f in files]), np.array([f[0] + f[1] for f in files])
    expected = [any(a <= f[0] + f[1] and f[0] <= b for a, b in zip(lows, highs, strict=True)) for f in files]
    assert _touched(lows, highs, first, last).tolist() == expected
