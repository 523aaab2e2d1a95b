"""Which runs of a view are merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.view.merge import FEWEST, mergeable, read_between
from headwater.model import RunInfo
from headwater.relation.runs import MERGED_ROWS


def run(id: int, rows: int, first: int, last: int) -> RunInfo:
    return RunInfo(id, 1, first, last, f"r{id}", rows, rows * 10, False)


def chain(sizes: list[int]) -> list[RunInfo]:
    return [run(i, rows, 10 * i + 1, 10 * i + 10) for i, rows in enumerate(sizes)]


def test_a_few_small_runs_stay_as_they_are_and_many_become_one() -> None:
    assert mergeable(chain([5, 5, 5]), []) == []
    assert [r.id for r in mergeable(chain([5, 5, 5, 5]), [])] == [0, 1, 2, 3]


def test_runs_between_which_the_view_is_read_stay_apart() -> None:
    runs = chain([5] * 8)
    found = mergeable(runs, [40])
    assert found and not read_between(found, [40])
    assert mergeable(runs, [10, 20, 30, 40, 50, 60, 70]) == []


def test_a_large_run_is_not_written_again_for_a_few_rows() -> None:
    assert [r.id for r in mergeable(chain([1000, 5, 5, 5, 5]), [])] == [1, 2, 3, 4]


@given(st.lists(st.integers(1, MERGED_ROWS + 1), max_size=12), st.sets(st.integers(0, 130), max_size=6))
def test_what_is_merged_is_contiguous_bounded_and_not_read_inside(sizes: list[int], kept: set[int]) -> None:
    runs = chain(sizes)
    found = mergeable(runs, kept)
    assert not found or len(found) >= FEWEST
    assert [r.id for r in found] == list(range(found[0].id, found[-1].id + 1)) if found else True
    assert sum(r.rows for r in found) <= MERGED_ROWS
    assert not read_between(found, kept)
