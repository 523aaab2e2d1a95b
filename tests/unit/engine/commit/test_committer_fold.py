"""Folds: what one takes and settles, that one that was given up is never made, and that a base has one writer."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake.exceptions import CommitFailedError

from headwater.engine.commit import numbers
from headwater.errors import DataError
from headwater.meta import intents, runs, spans, tables
from headwater.meta.intents import Fold
from headwater.model import SpanState
from headwater.relation import base
from support.commits import TABLE, TWO, Commits, Dies, Held, covered, dying_at, intents_of, span


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    return Commits.make(tmp_path, TWO)


def test_a_fold_takes_everything_up_to_the_newest_epoch_and_settles_what_it_took(b: Commits) -> None:
    covered(b)
    b.log(2, position=30)
    assert b.publish() is not None
    folded = b.committer.fold(b.relation_id)
    assert folded is not None and [i for i, _ in b.merged] == [5]
    (one,) = b.spans
    assert (one.state, one.log_index, one.saw, one.span) == (SpanState.SETTLED, 5, None, span(None, None))
    layout = b.layout()
    assert layout is not None and layout.settled and layout.base_version == b.delta_version()
    assert b.committer.fold(b.relation_id) is None, "nothing came since"
    b.log(1, position=40, table=1)
    b.publish()
    assert b.committer.fold(b.relation_id) is None, "what came is another table's"


def test_a_fold_retires_the_runs_that_it_took_and_no_later_one(b: Commits) -> None:
    covered(b)
    b.log(2, position=30)
    b.publish()
    known = {"rows": 1, "bytes": 1, "missing": False, "schema_version": 1, "base_index": 2}
    with b.home.meta.write() as c:
        for first, last in ((3, 4), (5, 5)):
            runs.add(c, b.relation_id, first_index=first, last_index=last, path=f"run{first}", **known)  # type: ignore[arg-type]
    assert b.committer.fold(b.relation_id, upto=4) is not None
    with b.home.meta.read() as c:
        assert [r.path for r in runs.live(c, b.relation_id, 4, 10)] == ["run5"]
        assert [r.path for r in runs.live(c, b.relation_id, 2, 10)] == ["run3", "run5"], "for readers from before it"
        retired = sa.select(tables.run.c.path).where(tables.run.c.retired_at.is_not(None))
        assert c.execute(retired).scalars().all() == ["run3"]


def test_a_fold_up_to_an_index_takes_nothing_that_came_after_it(b: Commits) -> None:
    """A table that has stopped is folded to where it stopped, and no further."""
    covered(b)
    b.log(2, position=30)
    b.publish()
    assert b.committer.fold(b.relation_id, upto=4) is not None
    assert [i for i, _ in b.merged] == [4] and b.layout().indexes == {1: 4}  # type: ignore[union-attr]


def test_a_fold_over_changes_that_are_gone_is_an_error_and_not_a_fold_of_none(b: Commits) -> None:
    covered(b)
    with b.home.meta.write() as c:
        c.execute(sa.delete(tables.part))
        c.execute(sa.delete(tables.segment))
    with pytest.raises(DataError) as e:
        b.committer.fold(b.relation_id)
    assert e.value.code == "data.history_missing" and b.states == ["covered", "covered"]


def test_a_cover_that_was_left_is_recorded_before_a_fold_is_decided(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers in Delta's log must grow: a commit whose number has been passed can never be made."""
    b.scan(0, [1], high=10)
    b.idle(50)
    assert b.cover() is not None
    b.scan(1, [11], high=10)
    for point in ("cover.decided", "cover.added"):
        with monkeypatch.context() as patch:
            dying_at(point, patch)
            with pytest.raises(Dies):
                b.cover() if point == "cover.decided" else b.committer.fold(b.relation_id)
    b.log(2, position=60)
    b.publish()
    assert b.restart().fold(b.relation_id) is not None
    assert not intents_of(b) and b.relation.base_version == b.delta_version() and b.ids() == [1, 11]
    assert b.cover() is None, "nothing is left of it"


def test_a_fold_that_died_after_its_merge_is_recorded_and_one_that_died_before_is_given_up(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    covered(b)
    for point in ("fold.decided", "fold.merged"):
        with monkeypatch.context() as patch:
            dying_at(point, patch)
            with pytest.raises(Dies):
                b.restart().fold(b.relation_id)
        before = b.delta_version()
        b.restart().recover()
        assert not intents_of(b) and b.ids() == [1, 11]
        assert b.delta_version() == (before + 1 if point == "fold.decided" else before)
        assert b.states == (["covered", "covered"] if point == "fold.decided" else ["settled"])
        assert b.relation.base_version == b.delta_version()
    assert len(b.merged) == 1


@pytest.mark.parametrize("end", ["recover", "cover", "fold", "upkeep"])
def test_a_fold_that_was_given_up_is_never_made(b: Commits, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an owner that was stopped in the middle of it, or a JVM that went on when its answer was lost."""
    covered(b)
    given_up: list[tuple[str, int]] = []

    def lost(relation: Any, layout: Any, index: int, app_id: str, number: int) -> int:
        given_up.append((app_id, number))
        raise ConnectionError("the answer was lost")

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(b, "fold", lost)
        b.committer.fold(b.relation_id)
    assert intents_of(b) == [intents.Fold], "it may be under way"
    opened = base._open(b.home.storage, b.relation.base_path)
    next_comes = {
        "recover": lambda: b.restart().recover(),
        "cover": b.cover,
        "fold": lambda: b.committer.fold(b.relation_id),
        "upkeep": lambda: b.committer.upkeep(b.relation_id, lambda r: None),
    }
    next_comes[end]()
    assert not intents_of(b) and b.relation.base_version == b.delta_version()
    version = b.delta_version()
    with pytest.raises(CommitFailedError):  # it had begun
        base._commit(b.home.storage, b.relation.base_path, opened, "append", [b.file([5])], *given_up[0])
    with pytest.raises(DataError, match="later commit"):  # it begins now
        base.add_files(b.home.storage, b.relation.base_path, [b.file([5])], *given_up[0])
    assert (b.delta_version(), b.ids()) == (version, [1, 11])


def test_a_fold_whose_answer_was_lost_is_recorded_if_it_was_made_meanwhile(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    covered(b)
    late: list[Any] = []

    def lost(*given: Any) -> int:
        late.extend(given)
        raise ConnectionError("the answer was lost")

    with monkeypatch.context() as patch, pytest.raises(ConnectionError):
        patch.setattr(b, "fold", lost)
        b.committer.fold(b.relation_id)
    b.fold(*late)
    assert b.committer.fold(b.relation_id) is None, "nothing is left to fold"
    assert b.states == ["settled"] and len(b.merged) == 1 and b.relation.base_version == b.delta_version()


def test_a_fold_that_is_committed_while_it_is_being_given_up_is_recorded(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    covered(b)
    assert b.committer.fold(b.relation_id) is not None
    b.log(3, position=60)
    b.publish()
    dying_at("fold.decided", monkeypatch)
    with pytest.raises(Dies):
        b.committer.fold(b.relation_id)
    monkeypatch.undo()
    with b.home.meta.read() as c:
        (left,) = intents.all(c)
    assert isinstance(left.work, Fold)
    layout, pass_number, index = b.layout(), base.pass_number, left.work.index

    def late(*given: Any, **named: Any) -> int | None:
        """An owner that was suspended in its merge wakes up."""
        monkeypatch.undo()
        b.fold(b.relation, layout, index, *numbers.first(left))
        return pass_number(*given, **named)

    monkeypatch.setattr(base, "pass_number", late)
    b.restart().recover()
    assert intents_of(b) == []
    made = base.transaction_commit(b.home.storage, b.relation.base_path, *numbers.first(left))
    assert (b.layout().base_version, b.layout().spans[0].log_index) == (made, index)


def test_giving_up_a_fold_may_itself_die_and_is_not_taken_for_the_fold(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    covered(b)
    for point, work in (
        ("fold.decided", lambda: b.restart().fold(b.relation_id)),
        ("fold.given_up", b.restart().recover),
    ):
        with monkeypatch.context() as patch:
            dying_at(point, patch)
            with pytest.raises(Dies):
                work()
    version = b.delta_version()
    assert intents_of(b) == [intents.Fold] and b.relation.base_version == version - 1
    b.restart().recover()
    assert not intents_of(b) and b.states == ["covered", "covered"]
    assert b.relation.base_version == b.delta_version() == version, "and it is not given up twice"


def test_a_merge_that_fails_leaves_no_intent_and_can_be_retried(b: Commits) -> None:
    covered(b)

    def refused() -> None:
        raise DataError("data.base_damaged", "a file is gone", "RESYNC TABLE t;")

    b.merging = refused
    with pytest.raises(DataError):
        b.committer.fold(b.relation_id)
    assert not intents_of(b) and b.states == ["covered", "covered"]
    b.merging = lambda: None
    assert b.committer.fold(b.relation_id) is not None


def test_a_base_has_one_writer_at_a_time_and_other_bases_do_not_wait_for_it(b: Commits) -> None:
    """A MERGE that skips files by key ranges fails when files are added beside it, so none are."""
    covered(b)
    other = b.add_relation("u", [span(None, None)])
    b.merging = Held()
    fold = threading.Thread(target=b.committer.fold, args=(b.relation_id,))
    fold.start()
    assert b.merging.reached.wait(60)
    version = b.delta_version()
    with b.home.meta.write() as c:
        spans.add(c, b.relation_id, [span(10, 10)], 50.0)
        info = spans.all(c, b.relation_id)[-1]
    b.scan([s.id for s in b.spans].index(info.id), [10], high=20)
    assert b.cover() is None, "a cover leaves a base alone that is being folded"
    rewritten: list[int] = []
    assert b.committer.upkeep(b.relation_id, lambda r: rewritten.append(r.id)) is None and not rewritten
    second = threading.Thread(target=b.committer.fold, args=(b.relation_id,))
    second.start()
    first_id, b.relation_id = b.relation_id, other
    b.scan(0, [7], high=20)
    assert b.cover() is not None and b.ids() == [7], "another table's base is free"
    b.relation_id = first_id
    assert b.delta_version() == version and len(b.merged) == 0
    b.merging.free.set()
    for thread in (fold, second):
        thread.join(60)
    assert len(b.merged) == 1, "the second fold found nothing left to do"
    assert b.cover() is not None and 10 in b.ids()


@pytest.mark.parametrize("by", ["fold", "advance"])
def test_what_a_scan_did_not_see_still_counts_after_other_spans_have_moved_on(b: Commits, by: str) -> None:
    """A span that is read and not shown yet begins where its scan did: no fold has taken its changes in."""
    b.scan(0, [1], high=20, log_index=4)
    b.scan(1, [11], high=900, log_index=2)
    b.log(4, position=20)
    assert b.cover() is not None and b.states == ["settled", "scanned"]
    b.log(3, position=30, table=TABLE if by == "fold" else TABLE + 1)
    b.publish()
    moved = b.committer.fold(b.relation_id) if by == "fold" else b.committer.advance([b.relation_id])
    assert (moved is not None) == (by == "fold"), "a table that is not whole cannot be moved over the log"
    assert b.spans[1].log_index == 2
    b.idle(900)
    assert b.cover() is not None and b.states[1] == "covered"
    assert b.layout().indexes == {1: 2}  # type: ignore[union-attr]
