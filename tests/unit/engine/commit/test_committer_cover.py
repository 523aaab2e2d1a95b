"""Covers: when a span may be shown, and that its files enter the base once, whatever dies in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.engine.commit import committer
from headwater.errors import DataError, FencedError
from headwater.meta import connections, intents, relations, spans
from headwater.model import SpanState, TableState
from support.commits import TABLE, TWO, Commits, Dies, dying_at, intents_of, span
from support.owned import taken_over


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    return Commits.make(tmp_path, TWO)


def test_a_span_is_shown_once_the_log_has_passed_what_its_scan_may_have_seen(b: Commits) -> None:
    b.scan(0, [1, 2], high=100)
    b.scan(1, [11], high=200)
    b.log(1, position=99)
    assert b.committer.cover(b.relation_id) is None
    assert (b.states, b.layout(), b.ids()) == (["scanned", "scanned"], None, [])
    b.idle(100)
    shown = b.committer.cover(b.relation_id)
    assert shown is not None and shown.index_of(b.connection_id) == 1
    assert b.states[1] == "scanned" and b.ids() == [1, 2]
    layout = b.layout()
    assert layout is not None and [s.span for s in layout.spans] == [TWO[0]] and not layout.complete
    b.restart().cover(b.relation_id)
    assert b.states[1] == "scanned", "100 is not past 200"
    b.idle(200)
    assert b.restart().cover(b.relation_id) is not None
    assert b.ids() == [1, 2, 11] and b.relation.state is TableState.LIVE


def test_nothing_is_covered_before_the_log_has_told_any_position(b: Commits) -> None:
    b.scan(0, [1], high=0)
    with b.home.meta.write() as c:
        connections.advance(c, b.connection_id, "")
    assert b.committer.cover(b.relation_id) is None


def test_what_a_scan_saw_of_another_life_of_the_server_is_read_again(b: Commits) -> None:
    old = b.scan(0, [1], high=10, life="0")
    b.scan(1, [11], high=10)
    b.idle(1000)
    assert b.committer.cover(b.relation_id) is not None
    first, second = b.spans
    assert first.state is SpanState.PENDING and (first.saw, first.log_index, first.rows) == (None, None, 0)
    assert second.cover_index is not None and b.ids() == [11]
    assert not b.home.storage.exists(f"{b.relation.base_path}/{old}")


@pytest.mark.parametrize("point", ["cover.decided", "cover.added", "cover.recorded"])
def test_a_cover_that_died_anywhere_is_brought_to_its_end_once(
    b: Commits, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    b.scan(0, [1, 2], high=10)
    b.idle(50)
    with monkeypatch.context() as patch:
        dying_at(point, patch)
        with pytest.raises(Dies):
            b.committer.cover(b.relation_id)
    b.scan(1, [11], high=10)  # meanwhile another span is ready: it is no part of what was decided
    for _ in range(2):
        b.restart().recover()
        assert b.ids() == [1, 2] and not intents_of(b)
        assert b.spans[0].cover_index is not None and b.states[1] == "scanned"
        assert b.relation.base_version == b.delta_version() == 1
    assert b.restart().cover(b.relation_id) is not None and b.ids() == [1, 2, 11]


def test_a_retried_cover_commits_the_same_files_with_the_same_number(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The intent is the request: nothing of it is made again, whatever has become ready since."""
    sent: list[Any] = []
    add_files = committer.base.add_files

    def failing(storage: Any, path: str, files: Any, app_id: str, version: int) -> int:
        sent.append((path, tuple(files), app_id, version))
        if len(sent) < 3:
            raise OSError("the disk is away")
        return add_files(storage, path, files, app_id, version)

    monkeypatch.setattr(committer.base, "add_files", failing)
    b.scan(0, [1, 2], high=10)
    b.idle(50)
    for attempt in range(3):
        if attempt == 1:
            b.scan(1, [11], high=10)
        if attempt < 2:
            with pytest.raises(OSError, match="away"):
                b.restart().cover(b.relation_id)
    assert b.restart().cover(b.relation_id) is not None
    assert len(sent) == 3 and len(set(sent)) == 1
    assert b.ids() == [1, 2]


@pytest.mark.parametrize("point", ["cover.decided", "cover.added"])
def test_what_a_cover_read_again_and_added_is_not_removed_by_whoever_ends_it(
    b: Commits, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the old rows of its spans out first; once its own rows are in the base these would go with them."""
    b.scan(0, [1, 2], high=10)
    b.idle(50)
    assert b.cover() is not None
    with b.home.meta.write() as c:
        spans.read_all_again(c, b.relation_id)
    b.scan(0, [2, 3], high=60)
    b.idle(70)
    with monkeypatch.context() as patch:
        dying_at(point, patch)
        with pytest.raises(Dies):
            b.cover()
    b.restart().recover()
    assert intents_of(b) == [intents.Cover], "it may need Spark, which runs later"
    assert b.cover() is not None
    assert b.ids() == [2, 3] and len(b.emptied) == 1 and not intents_of(b)


def test_a_missing_file_is_an_error_and_no_smaller_table(b: Commits) -> None:
    gone = b.scan(0, [1, 2], high=10)
    b.home.storage.remove([f"{b.relation.base_path}/{gone}"])
    b.idle(50)
    with pytest.raises(DataError, match="missing"):
        b.committer.cover(b.relation_id)
    assert b.layout() is None


def test_an_owner_that_lost_its_lease_decides_and_records_nothing(b: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    b.scan(0, [1], high=10)
    b.idle(50)
    with b.home.meta.write() as c:
        taken_over(c)
    with pytest.raises(FencedError):
        b.committer.cover(b.relation_id)
    assert not intents_of(b) and b.layout() is None


def test_spans_without_an_order_are_emptied_and_forgotten_together(tmp_path: Path) -> None:
    b = Commits.make(tmp_path, [span(None, None)], ordered=False)
    b.scan(0, [1, 2], high=10)
    b.idle(50)
    assert b.committer.cover(b.relation_id) is not None and b.states == ["covered"]
    with b.home.meta.write() as c:
        spans.read_all_again(c, b.relation_id)
        relations.set_state(c, b.relation_id, TableState.FILLING)
    b.scan(0, [2, 3], high=60)
    b.idle(70)
    assert b.restart().cover(b.relation_id) is not None
    assert b.ids() == [2, 3] and b.emptied == [[span(None, None)]]
    assert not b.spans[0].again


# What a table's last change is, relative to where each span's log begins, decides what settles without a fold.
@pytest.mark.parametrize(("log_index", "settles"), [(0, False), (3, False), (4, True), (5, True)])
def test_a_covered_span_settles_at_once_only_if_no_change_came_after_its_log_began(
    b: Commits, log_index: int, settles: bool
) -> None:
    b.log(4, position=20)  # the table's last change is 4
    b.log(3, position=30, table=TABLE + 1)
    b.scan(0, [1], high=20, log_index=log_index)
    assert b.committer.cover(b.relation_id) is not None
    first = b.spans[0]
    assert (first.state is SpanState.SETTLED) == settles
    assert (first.log_index, first.saw) == ((7, None) if settles else (log_index, "5:5:"))
