"""A home of the version before: its bases have two application ids, its intents no numbers of their own. It goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.engine.commit import numbers
from headwater.meta import intents, spans
from headwater.meta.intents import Cover, Fold, Intent
from headwater.model import TableState
from headwater.relation import base
from support.commits import Commits, span

TWO = [span(None, 10), span(10, None)]


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    """A table of which that version has added the first span."""
    made = Commits.make(tmp_path, TWO)
    made.scan(0, [1], high=10)
    made.idle(50)
    intent, files = decided_cover(made)
    add(made, intent, files)
    made.restart().recover()
    assert (made.ids(), made.states[0]) == ([1], "settled")
    return made


def decided_cover(b: Commits, again: tuple[Any, ...] = ()) -> tuple[Intent, tuple[Any, ...]]:
    with b.home.meta.write() as c:
        ready = spans.uncovered(c, b.relation_id)
        files = tuple(f for s in ready for f in s.files)
        work = Cover(tuple(s.id for s in ready), files, again)
        return intents.add(c, b.relation_id, work, b.home.storage.life()), files


def add(b: Commits, intent: Intent, files: Any) -> int:
    app_id = f"headwater-{intent.work.kind}-{b.relation_id}"
    return base.add_files(b.home.storage, b.relation.base_path, files, app_id, intent.id)


def kinds(b: Commits) -> list[type]:
    with b.home.meta.read() as c:
        return [type(i.work) for i in intents.all(c)]


def log_of(b: Commits) -> tuple[int | None, ...]:
    """The last number under each id."""
    table = base._open(b.home.storage, b.relation.base_path)
    return tuple(table.transaction_version(app_id) for app_id in numbers.app_ids(b.relation_id))


def test_the_names_are_those_of_the_version_before(b: Commits) -> None:
    one, cover, fold = numbers.app_ids(b.relation_id)
    assert (one, cover, fold) == ("headwater-1", "headwater-cover-1", "headwater-fold-1")
    assert log_of(b) == (None, 1, None)


def test_it_continues_under_one_id(b: Commits) -> None:
    b.scan(1, [11], high=10)
    b.log(2, position=60)
    assert b.restart().recover() is None and b.cover() is not None
    b.publish()
    assert b.committer.fold(b.relation_id) is not None
    assert b.ids() == [1, 11] and b.states == ["settled"] and b.relation.state is TableState.LIVE
    last, cover, fold = log_of(b)
    assert cover == 1 and fold is None and last is not None and last >= 4


@pytest.mark.parametrize("made", [False, True])
def test_a_cover_that_it_left_is_made_once(b: Commits, made: bool) -> None:
    b.scan(1, [11], high=10)
    intent, files = decided_cover(b)
    if made:
        add(b, intent, files)
    b.restart().recover()
    assert b.ids() == [1, 11] and kinds(b) == [] and b.relation.state is TableState.LIVE
    assert b.relation.base_version == b.delta_version()
    assert log_of(b)[:2] == ((None, intent.id) if made else (2 * intent.id + 1, 1))


def test_a_cover_of_spans_that_were_read_again_is_made_once(b: Commits) -> None:
    with b.home.meta.write() as c:
        spans.read_all_again(c, b.relation_id)
    b.scan(0, [2, 3], high=10)
    intent, files = decided_cover(b, (span(None, None),))
    b.remove(b.relation, [span(None, None)], "", 0)  # its DELETE had no number
    for done in (False, True):
        if done:
            add(b, intent, files)
        b.restart().recover()
        assert kinds(b) == [Cover], "it may need Spark"
    assert b.cover() is not None and b.ids() == [2, 3] and kinds(b) == []


@pytest.mark.parametrize("made", [False, True])
def test_a_fold_that_it_left_is_recorded_if_it_was_made_and_given_up_if_not(b: Commits, made: bool) -> None:
    b.scan(1, [11], high=10, log_index=0)
    b.log(2, position=60)
    assert b.cover() is not None
    covered = tuple(s.id for s in b.spans)
    with b.home.meta.write() as c:
        newest = b.epoch()
        assert newest is not None
        left = intents.add(c, b.relation_id, Fold(2, newest.id, covered), b.home.storage.life())
    if made:
        add(b, left, [b.file([])])
    before = b.states
    b.restart().recover()
    assert kinds(b) == [] and b.ids() == [1, 11] and b.relation.base_version == b.delta_version()
    assert b.states == (["settled"] if made else before)


def test_a_cover_that_it_left_before_a_fold_is_made_though_the_fold_came_first(b: Commits) -> None:
    """It numbered them apart, and did not wait."""
    b.log(2, position=60)
    b.publish()
    b.scan(1, [11], high=10, log_index=2)
    intent, _ = decided_cover(b)
    newest = b.epoch()
    assert newest is not None
    with b.home.meta.write() as c:
        work = Fold(2, newest.id, (b.spans[0].id,))
        left = intents.add(c, b.relation_id, work, b.home.storage.life())
    add(b, left, [b.file([])])
    b.restart().recover()
    assert kinds(b) == [] and b.ids() == [1, 11] and b.relation.base_version == b.delta_version()
    assert b.relation.state is TableState.LIVE and intent.id < left.id


@pytest.mark.parametrize("next_comes", ["cover", "upkeep"])
def test_a_fold_that_came_after_it_was_given_up_is_made_again_before_anything_is_built_on_it(
    b: Commits, next_comes: str
) -> None:
    b.scan(1, [11], high=10, log_index=0)
    b.log(2, position=60)
    assert b.cover() is not None
    with b.home.meta.write() as c:
        given_up = intents.add(c, b.relation_id, Fold(2, 1, ()), b.home.storage.life())
        intents.done(c, given_up.id)
    before = b.relation.base_version
    add(b, given_up, [b.file([])])
    b.restart()
    if next_comes == "cover":
        with b.home.meta.write() as c:
            spans.add(c, b.relation_id, [span(10, 10)], 50.0)
        b.scan(len(b.spans) - 1, [10], high=20)
        assert b.cover() is not None
    else:
        b.committer.upkeep(b.relation_id, lambda r: None)
    layout = b.layout()
    assert layout is not None and layout.base_version == b.delta_version() > before
    assert {s.log_index for s in layout.spans} >= {2} and [index for index, _ in b.merged] == [2]
