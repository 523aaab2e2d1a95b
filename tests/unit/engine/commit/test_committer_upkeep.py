"""Between folds: upkeep shows what it rewrote, an idle table moves on, and the first error of a table counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from headwater.engine.commit import committer
from headwater.engine.commit.holes import scan_again
from headwater.engine.guard import Guard
from headwater.errors import DataError
from headwater.meta import intents, relations, tables
from headwater.model import TableState
from support.commits import TABLE, TWO, Commits, Dies, covered, dying_at, intents_of


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    return Commits.make(tmp_path, TWO)


def test_upkeep_leaves_a_base_alone_whose_cover_is_not_recorded(b: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is all that says that the files of its scans are in the base."""
    b.scan(0, [1, 2], high=10)
    b.idle(50)
    with monkeypatch.context() as patch:
        dying_at("cover.added", patch)
        with pytest.raises(Dies):
            b.committer.cover(b.relation_id)
    rewritten: list[int] = []
    assert b.committer.upkeep(b.relation_id, lambda r: rewritten.append(r.id)) is None
    assert not rewritten and intents_of(b) == [intents.Cover] and b.layout() is None
    assert b.cover() is not None and b.ids() == [1, 2]


def test_upkeep_shows_what_it_committed_and_waits_for_what_was_decided_before_it(b: Commits) -> None:
    covered(b)
    with b.home.meta.write() as c:
        left = intents.add(c, b.relation_id, intents.Fold(3, 1, ()), "")
    assert b.committer.upkeep(b.relation_id, lambda r: None) is None
    with b.home.meta.write() as c:
        intents.done(c, left.id)
    assert b.committer.upkeep(b.relation_id, lambda r: None) is None, "it committed nothing"

    def rewrite(relation: Any) -> None:
        committer.base.add_files(b.home.storage, relation.base_path, [b.file([])], "upkeep", 1)

    shown = b.committer.upkeep(b.relation_id, rewrite)
    layout = b.layout()
    assert shown is not None and layout is not None and layout.base_version == b.delta_version()
    assert not intents_of(b)


def test_an_idle_table_moves_on_without_a_fold_but_never_over_changes_that_are_gone(b: Commits) -> None:
    b.scan(0, [1], high=10)
    b.scan(1, [11], high=10)
    b.idle(10)
    assert b.cover() is not None
    for position in (20, 30, 40):
        b.log(2, position, table=TABLE + 1)
    b.publish()
    version = b.delta_version()
    moved = b.committer.advance([b.relation_id])
    assert moved is not None and b.layout().indexes == {1: 6} and b.delta_version() == version  # type: ignore[union-attr]
    assert b.committer.advance([b.relation_id]) is None, "there is nothing left to move over"
    for position in (50, 60):
        b.log(2, position, table=TABLE + 1)
    b.publish()
    with b.home.meta.write() as c:
        c.execute(sa.delete(tables.segment).where(tables.segment.c.last_index <= 8))
    assert b.committer.advance([b.relation_id]) is None
    assert b.layout().indexes == {1: 6}, "what is not kept is not known to be no change"  # type: ignore[union-attr]


def test_an_idle_table_moves_on_although_the_record_of_its_upkeep_failed_once(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would hold back the changelog, and in the end the capture of every table, until a restart."""
    b.scan(0, [1], high=10)
    b.scan(1, [11], high=10)
    b.idle(10)
    assert b.cover() is not None

    def rewrite(relation: Any) -> None:
        committer.base.add_files(b.home.storage, relation.base_path, [b.file([])], "upkeep", 1)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(committer.commits, "make_durable", full)
        with pytest.raises(OSError, match="No space"):
            b.committer.upkeep(b.relation_id, rewrite)
    assert intents_of(b) == [intents.Maintain]
    b.log(2, 90, table=TABLE + 1)
    b.publish()
    assert b.committer.advance([b.relation_id]) is not None
    layout = b.layout()
    assert layout is not None and layout.base_version == b.delta_version() and not intents_of(b)


def test_the_first_error_of_a_table_counts_and_how_far_it_is_whole_stands_with_it(b: Commits) -> None:
    guard = Guard(b.home, b.leases)
    guard.stop(b.relation_id, DataError("data.rewritten", "first"))
    with b.home.meta.write() as c:
        relations.set_stopped(c, b.relation_id, 7)
    guard.stop(b.relation_id, DataError("data.base_damaged", "second"))
    assert b.relation.stopped_at == 7 and (b.relation.error or {})["code"] == "data.rewritten"
    assert not scan_again(b.home, b.leases.server, b.relation, pa.table({"id": [1]}))
    assert b.relation.state is TableState.FAILED, "keys that are to be read again do not wake it"
