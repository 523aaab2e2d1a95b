"""What a framing sets aside: found again by who needs it, never by the wrong batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.changelog.memory import HomeMemory
from headwater.engine.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    it = Home.open(tmp_path / "home")
    yield it
    it.meta.close()


def memory(home: Home, resumed: int = 0) -> HomeMemory:
    return HomeMemory(home.meta, home.storage, 1, resumed)


def files(home: Home) -> int:
    return len(list(home.storage.list("aside")))


def test_parts_are_given_back_in_order_and_go_once_the_batch_is_published(home: Home) -> None:
    kept = memory(home)
    kept.begin(10)
    kept.put("x", 0, b"a")
    kept.published()
    kept.begin(10)  # the same transaction goes on: no commit has moved the position
    kept.put("x", 1, b"b")
    kept.published()
    kept.begin(20)
    assert kept.get("x") == b"ab" and kept.get("y") is None
    kept.remove("x")
    assert kept.get("x") == b"ab", "the batch may have to be framed again"
    kept.published()
    assert kept.get("x") is None and files(home) == 0


def test_a_batch_that_is_framed_again_finds_what_it_found_the_first_time(home: Home) -> None:
    kept = memory(home)
    kept.begin(10)
    kept.put("x", 0, b"old")
    kept.published()
    for _ in range(2):
        kept.begin(20)
        assert kept.get("x") == b"old"
        kept.remove("x")
        kept.put("x", 0, b"new")  # the same name begins anew within the batch
        assert kept.get("x") == b"new"
    kept.published()
    assert kept.get("x") == b"new" and files(home) == 1


def test_what_an_unpublished_batch_left_at_a_crash_is_not_found(home: Home) -> None:
    kept = memory(home)
    kept.begin(10)
    kept.put("x", 0, b"old")
    kept.published()
    kept.begin(20)
    kept.remove("x")
    kept.put("x", 0, b"new")  # killed before it was published: the log comes again from 20
    assert memory(home, resumed=20).get("x") == b"old"
    assert files(home) == 1


def test_what_was_published_survives_a_crash(home: Home) -> None:
    kept = memory(home)
    kept.begin(10)
    kept.put("x", 0, b"rows")
    assert memory(home, resumed=30).get("x") == b"rows"


def test_one_that_begins_again_leaves_nothing_of_the_one_before(home: Home) -> None:
    kept = memory(home)
    kept.begin(10)
    for part, data in enumerate([b"a", b"b", b"c"]):
        kept.put("x", part, data)
    kept.put("x", 0, b"z")
    assert kept.get("x") == b"z"
    kept.published()
    assert kept.get("x") == b"z" and files(home) == 1


def test_what_a_published_batch_made_superfluous_goes_even_if_it_was_killed_right_after(home: Home) -> None:
    kept = memory(home)
    kept.begin(10)
    kept.put("x", 0, b"old")
    kept.put("y", 0, b"old")
    kept.published()
    kept.begin(20)
    kept.remove("x")
    kept.remove("y")
    kept.put("y", 0, b"new")
    kept.put("z", 0, b"at once")
    kept.remove("z")  # published, and killed before anything was removed
    later = memory(home, resumed=30)
    assert (later.get("x"), later.get("y"), later.get("z")) == (None, b"new", None)
    assert files(home) == 1
