"""Which files a fold reads: every one in whose range a key of the overlay may lie."""

from __future__ import annotations

import datetime as dt
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.relation.fold import _merged, _touched

FILES = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 6)).map(lambda f: (f[0], f[0] + f[1])), max_size=8)


def table(files: list[tuple[int, int]], type_: pa.DataType) -> pa.Table:
    low, high = ([f[i] for f in files] for i in (0, 1))
    return pa.table({"low": pa.array(low, pa.int32()).cast(type_), "high": pa.array(high, pa.int32()).cast(type_)})


@pytest.mark.parametrize("type_", [pa.int16(), pa.int32(), pa.int64(), pa.date32()], ids=str)
@given(keys=st.lists(st.integers(-22, 28), min_size=1, max_size=6), files=FILES)
def test_a_file_is_read_iff_a_key_lies_between_its_least_and_its_largest_one(
    type_: pa.DataType, keys: list[int], files: list[tuple[int, int]]
) -> None:
    made = table(files, type_)
    found = made.filter(pa.array(_touched([pa.array(keys, pa.int32()).cast(type_)], made)))
    expected = [f for f in files if any(f[0] <= k <= f[1] for k in keys)]
    assert found == table(expected, type_)


@pytest.mark.parametrize("key", [3, 9])
def test_a_files_least_and_largest_key_belong_to_it(key: int) -> None:
    files = table([(-5, 2), (3, 9), (10, 12)], pa.int32())
    hit = _touched([pa.array([key], pa.int32())], files)
    assert files.filter(pa.array(hit)).to_pylist() == [{"low": 3, "high": 9}]


@given(FILES)
def test_merged_ranges_hold_exactly_what_the_files_hold(files: list[tuple[int, int]]) -> None:
    found = _merged(table(files, pa.int64()))
    assert {k for low, high in found for k in range(low, high + 1)} == {k for a, b in files for k in range(a, b + 1)}
    assert all(a[1] < b[0] for a, b in itertools.pairwise(found)), "disjoint and in order"


def test_dates_are_merged_as_dates() -> None:
    days = [dt.date(2024, 2, d) for d in (27, 28, 29)]
    files = pa.table({"low": pa.array(days[:2]), "high": pa.array(days[1:])})
    assert _merged(files) == [(days[0], days[2])]
