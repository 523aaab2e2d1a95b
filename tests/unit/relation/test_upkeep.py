"""What a base needs, decided from its files alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.relation.upkeep import (
    PURGE_ROWS,
    PURGE_SHARE,
    SMALL_BYTES,
    STEP_BYTES,
    TARGET_BYTES,
    BaseFile,
    Way,
    checkpoint_due,
    due,
    retention_hours,
    vacuum_due,
)

MANY = 16
LARGE = [BaseFile(TARGET_BYTES, 1_000_000, 0, i * 1000, i * 1000 + 999) for i in range(8)]  # more than one step


def small(low: int, high: int, deleted: int = 0) -> BaseFile:
    return BaseFile(1 << 20, 1000, deleted, low, high)


def test_a_tidy_base_is_left_alone() -> None:
    assert due([], many=MANY) is None
    assert due(LARGE, many=MANY) is None
    assert due([*LARGE, *(small(i, i) for i in range(MANY - 1))], many=MANY) is None
    assert due([BaseFile(100, 10, 9, 0, 9)], many=MANY) is None, "a few marked rows cost nothing"


def test_a_small_base_with_many_files_or_marked_rows_is_rewritten_whole() -> None:
    for low, high in ((0, 9), (None, None)):
        files = [BaseFile(1000, 10, 0, low, high)] * MANY
        found = due(files, many=MANY)
        assert found is not None and (found.way, found.bytes) == (Way.WHOLE, MANY * 1000)
    marked = due([BaseFile(TARGET_BYTES, 4 * PURGE_ROWS, PURGE_ROWS, 0, 9)], many=MANY)
    assert marked is not None and marked.way is Way.WHOLE


def test_small_files_of_one_key_range_of_a_large_base_are_put_in_order_with_what_lies_across_them() -> None:
    narrow = [small(3000 + i, 3000 + i) for i in range(MANY)]
    found = due([*LARGE, *narrow], many=MANY)
    assert found is not None
    assert (found.way, found.low, found.high) == (Way.RANGE, 3000, 3000 + MANY - 1)
    assert found.bytes == TARGET_BYTES + MANY * (1 << 20)


def test_wide_small_files_of_a_large_base_become_one_without_reading_the_rest() -> None:
    wide = [small(0, 7999) for _ in range(MANY)]
    found = due([*LARGE, *wide], many=MANY)
    assert found is not None and (found.way, found.bytes) == (Way.COMPACT, MANY * (1 << 20))


def test_the_file_with_most_marked_rows_is_put_in_order_first() -> None:
    marked = [BaseFile(f.bytes, f.rows, 300_000 + i, f.low, f.high) for i, f in enumerate(LARGE)]
    found = due(marked, many=MANY)
    assert found is not None and (found.way, found.low, found.high) == (Way.RANGE, 7000, 7999)


def test_a_large_base_whose_keys_are_no_numbers_is_left_to_delta() -> None:
    blind = [BaseFile(f.bytes, f.rows, 300_000) for f in LARGE]
    found = due(blind, many=MANY)
    assert found is not None and found.way is Way.PURGE
    found = due([*LARGE, *[BaseFile(1000, 10)] * MANY], many=MANY)
    assert found is not None and found.way is Way.COMPACT


files_of = st.builds(
    lambda bytes, rows, share, low, width: BaseFile(bytes, rows, int(rows * share), low, low + width),
    st.integers(1, 2 * TARGET_BYTES),
    st.integers(1, 1_000_000),
    st.floats(0, 1),
    st.integers(-10_000, 10_000),
    st.integers(0, 20_000),
)


@given(st.lists(files_of, max_size=60), st.integers(2, 20))
def test_upkeep_is_due_only_for_a_reason_reads_a_bounded_part_and_always_gets_on(
    files: list[BaseFile], many: int
) -> None:
    found = due(files, many=many)
    scattered = [f for f in files if f.bytes < SMALL_BYTES]
    deleted = sum(f.deleted for f in files)
    marked = deleted >= PURGE_ROWS and deleted >= PURGE_SHARE * sum(f.rows for f in files)
    assert (found is not None) == (len(scattered) >= many or marked)
    if found is None:
        return
    total = sum(f.bytes for f in files)
    if found.way is Way.WHOLE:
        assert found.bytes == total <= STEP_BYTES
    elif found.way is Way.RANGE:
        assert found.low is not None and found.high is not None
        low, high = found.low, found.high
        inside = [f for f in files if f.low is not None and f.high is not None and low <= f.low and f.high <= high]
        assert found.bytes <= STEP_BYTES
        if len(scattered) >= many:
            assert sum(f.bytes < SMALL_BYTES for f in inside) >= many
        else:
            assert any(f.deleted for f in inside)
    elif found.way is Way.COMPACT:
        assert len(scattered) >= many
    else:
        assert deleted


@pytest.mark.parametrize(
    ("version", "checkpoint", "expected"), [(0, 0, False), (39, 0, False), (40, 0, True), (100, 80, False)]
)
def test_a_checkpoint_is_made_when_the_writers_have_missed_two(version: int, checkpoint: int, expected: bool) -> None:
    assert checkpoint_due(version, checkpoint) is expected


def test_dead_files_go_when_they_are_many_or_as_large_as_the_table() -> None:
    assert not vacuum_due(MANY - 1, 1 << 20, 1 << 40, many=MANY)
    assert vacuum_due(MANY, 1, 1 << 40, many=MANY)
    assert vacuum_due(1, 1 << 30, 1 << 30, many=MANY) and not vacuum_due(1, 1 << 20, 10, many=MANY)
    assert not vacuum_due(0, 0, 0, many=1)


@given(now=st.floats(1e9, 2e9), keep=st.integers(0, 100_000), age=st.floats(0, 1e6))
def test_no_file_that_was_removed_after_a_needed_version_is_old_enough_for_vacuum(
    now: float, keep: int, age: float
) -> None:
    committed_at = now - age
    hours = retention_hours(now, keep, committed_at)
    assert now - hours * 3600 < committed_at and hours >= 1
    assert keep <= retention_hours(now, keep, None) * 3600 < keep + 3600
