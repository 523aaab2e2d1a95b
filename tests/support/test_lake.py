"""The tests' own oracle: what it accepts as equal, and how property tests choose."""

from __future__ import annotations

import pytest
from hypothesis import core, settings

from headwater.engine.results import Verified
from support.lake import assert_equal

EQUAL = Verified("a", True)
OTHER = Verified("a", False, differences=1)
SKIPPED = Verified("b", False, skipped="nothing of it can be read yet")


def test_nothing_compared_is_never_equal() -> None:
    for found in ([], [SKIPPED], [SKIPPED, SKIPPED]):
        for filling in (False, True):
            with pytest.raises(AssertionError, match="nothing was compared"):
                assert_equal(found, filling=filling)


def test_only_while_tables_are_filled_may_some_be_left_out() -> None:
    assert_equal([EQUAL])
    assert_equal([EQUAL, SKIPPED], filling=True)
    for found, filling in (([EQUAL, SKIPPED], False), ([EQUAL, OTHER], False), ([EQUAL, OTHER], True)):
        with pytest.raises(AssertionError):
            assert_equal(found, filling=filling)


def test_property_tests_have_no_deadline_choose_again_and_can_be_repeated(request: pytest.FixtureRequest) -> None:
    used = settings()
    assert used.deadline is None and not used.derandomize and used.print_blob
    assert core.global_force_seed == int(request.config.option.hypothesis_seed)
