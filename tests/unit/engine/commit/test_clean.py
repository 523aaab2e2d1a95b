"""What of a changelog, of epochs and of files may go, and what somebody still needs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.changelog import retention
from headwater.engine.commit import claims
from headwater.engine.commit.clean import Cleaner
from headwater.errors import FencedError
from headwater.meta import connections, epochs, relations, runs, segments, tables
from headwater.model import TableState
from headwater.relation.overlay import Overlays
from support.commits import Commits, span
from support.home import change_settings
from support.owned import taken_over


def needed(b: Commits) -> int:
    with b.home.meta.read() as c:
        return claims.enforce(c, connections.get(c, b.connection_id)).needed


@pytest.fixture
def b(tmp_path: Path) -> Commits:
    made = Commits.make(tmp_path, [span(None, 10), span(10, None)])
    made.log(20, position=20)
    with made.home.meta.write() as c:
        relations.set_begin(c, made.relation_id, 7)
    return made


def test_a_table_that_is_not_complete_needs_everything_from_its_beginning_on(b: Commits) -> None:
    """Its pending spans' logs begin somewhere after that, and nobody knows yet where."""
    assert needed(b) == 7
    b.scan(0, [1], high=20, log_index=15)
    assert b.committer.cover(b.relation_id) is not None
    assert needed(b) == 7, "one span is covered at 15, but the other one is still to be read"
    b.scan(1, [11], high=20, log_index=12)
    assert b.restart().cover(b.relation_id) is not None
    assert b.relation.state is TableState.LIVE
    assert needed(b) == 7, "an epoch that can still be read shows it half filled"
    with b.home.meta.write() as c:
        epochs.thin(c, time.time() + 1)
    assert needed(b) == 12
    assert b.committer.fold(b.relation_id) is not None
    with b.home.meta.write() as c:
        epochs.thin(c, time.time() + 1)
    assert needed(b) == 20


def test_a_pinned_epoch_keeps_what_its_layout_reads(b: Commits) -> None:
    b.scan(0, [1], high=20, log_index=9)
    b.scan(1, [11], high=20, log_index=9)
    shown = b.committer.cover(b.relation_id)
    assert shown is not None
    with b.home.meta.write() as c:
        pin = epochs.take_pin(c, shown.id, "reader")
    assert b.committer.fold(b.relation_id) is not None
    for kept in (9, 20):
        with b.home.meta.write() as c:
            epochs.thin(c, time.time() + 1)
        assert needed(b) == kept
        with b.home.meta.write() as c:
            epochs.release_pin(c, pin)


def test_a_changelog_without_tables_is_needed_by_nobody(b: Commits) -> None:
    with b.home.meta.write() as c:
        relations.remove(c, b.relation_id)
    assert needed(b) == 20


@pytest.mark.parametrize(("needed_after", "kept"), [(0, [1, 5, 9]), (3, [1, 5, 9]), (4, [5, 9]), (7, [5, 9]), (8, [9])])
def test_only_segments_that_end_at_or_before_what_is_needed_expire(
    tmp_path: Path, needed_after: int, kept: list[int]
) -> None:
    b = Commits.make(tmp_path, [])
    for i in range(3):
        b.log(4, position=20 + i)

    def left() -> list[int]:
        with b.home.meta.read() as c:
            return [s.first_index for s in segments.in_range(c, b.connection_id, 0, 100)]

    for first in (1, 5, 9):
        (b.home.path / f"s{first}").touch()
    assert retention.expire(b.home.meta, b.home.storage, b.connection_id, needed_after=needed_after, keep_s=3600) == 0
    gone = retention.expire(
        b.home.meta, b.home.storage, b.connection_id, needed_after=needed_after, keep_s=10, now=time.time() + 11
    )
    assert left() == kept and gone == 3 - len(kept)
    assert [first for first in (1, 5, 9) if b.home.storage.exists(f"s{first}")] == kept


def test_pieces_of_an_open_transaction_never_expire(tmp_path: Path) -> None:
    b = Commits.make(tmp_path, [])
    b.log(4, position=20)
    b.log(4, position=20)
    with b.home.meta.write() as c:
        c.execute(sa.update(tables.connection).values(committed_index=4))
    later = time.time() + 1e6
    assert retention.expire(b.home.meta, b.home.storage, b.connection_id, needed_after=99, keep_s=0, now=later) == 1


def test_files_of_a_dropped_table_go_when_no_statement_runs_that_began_before(
    b: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_settings(b.home, history_s=0.0)
    b.scan(0, [1], high=20)
    shown = b.committer.cover(b.relation_id)
    assert shown is not None
    with b.home.meta.write() as c:
        pin = epochs.take_pin(c, shown.id, "reader")
        relations.remove(c, b.relation_id)
    overlays = Overlays(b.home.storage, b.home.meta)
    cleaner, forgotten = Cleaner(b.home, b.leases, overlays), list[int]()
    monkeypatch.setattr(overlays.changes, "forget", forgotten.append)
    folder = b.home.path / "warehouse" / str(b.relation_id)
    cleaner.clean()
    assert folder.exists(), "a statement that began before the drop may still read it"
    with b.home.meta.write() as c:
        epochs.release_pin(c, pin)
    cleaner.clean()
    assert not folder.exists() and forgotten == [b.relation_id], "nor do its changes stay in memory"


def retired(b: Commits) -> str:
    """The file of a run that is no longer part of an overlay."""
    path = f"runs/{b.relation_id}/{b.leases.server.permit.new_file('run', 'parquet')}"
    with b.home.storage.create(path) as f:
        f.write(b"x")
    with b.home.meta.write() as c:
        known = {"path": path, "rows": 1, "bytes": 1, "missing": False, "schema_version": 1, "base_index": 0}
        runs.retire(c, [runs.add(c, b.relation_id, first_index=1, last_index=5, **known)])  # type: ignore[arg-type]
    return path


def test_a_retired_run_goes_when_no_statement_is_left_that_may_have_chosen_it(b: Commits) -> None:
    change_settings(b.home, history_s=0.0)
    b.scan(0, [1], high=20)
    shown = b.committer.cover(b.relation_id)
    assert shown is not None
    with b.home.meta.write() as c:
        pin = epochs.take_pin(c, shown.id, "reader")
    path = retired(b)
    cleaner = Cleaner(b.home, b.leases, Overlays(b.home.storage, b.home.meta))
    cleaner.clean()
    assert b.home.storage.exists(path), "a statement that began before may still open it"
    with b.home.meta.write() as c:
        epochs.release_pin(c, pin)
    cleaner.clean()
    assert not b.home.storage.exists(path)


def test_a_folded_run_stays_while_an_epoch_is_kept_whose_layout_needs_it(b: Commits) -> None:
    b.scan(0, [1], high=20)
    assert b.committer.cover(b.relation_id) is not None
    path = retired(b)
    with b.home.meta.write() as c:
        c.execute(sa.update(tables.run).values(retired_at=time.time() - 3600, folded=1, last_index=1 << 40))
    cleaner = Cleaner(b.home, b.leases, Overlays(b.home.storage, b.home.meta))
    cleaner.clean()
    assert b.home.storage.exists(path), "a reader at that epoch would have to decode its changes again"
    with b.home.meta.write() as c:
        c.execute(sa.update(tables.run).values(last_index=epochs.lowest_index(c, b.relation_id)))
    cleaner.clean()
    assert not b.home.storage.exists(path), "every kept layout's base holds it"


def test_a_retired_run_is_kept_for_whoever_has_just_chosen_it(b: Commits) -> None:
    path = retired(b)
    cleaner = Cleaner(b.home, b.leases, Overlays(b.home.storage, b.home.meta))
    cleaner.clean()
    assert b.home.storage.exists(path)
    with b.home.meta.write() as c:
        c.execute(sa.update(tables.run).values(retired_at=time.time() - 3600))
    cleaner.clean()
    assert not b.home.storage.exists(path)


def test_a_segment_that_a_filling_table_needs_outlives_its_retention(b: Commits) -> None:
    """The whole round: the connection keeps nothing for its own sake, the table's beginning keeps the rest."""
    b.log(3, position=30)
    with b.home.meta.write() as c:
        c.execute(sa.update(tables.segment).values(created_at=0.0))
        c.execute(sa.update(tables.connection).values(options='{"retention.hours": "0"}'))
    Cleaner(b.home, b.leases, Overlays(b.home.storage, b.home.meta)).clean()
    with b.home.meta.read() as c:
        assert [s.first_index for s in segments.in_range(c, b.connection_id, 0, 100)] == [1, 21]
    with b.home.meta.write() as c:
        relations.set_begin(c, b.relation_id, 20)
    Cleaner(b.home, b.leases, Overlays(b.home.storage, b.home.meta)).clean()
    with b.home.meta.read() as c:
        assert [s.first_index for s in segments.in_range(c, b.connection_id, 0, 100)] == [21]
        assert connections.get(c, b.connection_id).committed_index == 23


def test_a_cleaner_that_lost_its_lease_removes_nothing(b: Commits) -> None:
    with b.home.meta.write() as c:
        relations.remove(c, b.relation_id)
        taken_over(c)
    with pytest.raises(FencedError):
        Cleaner(b.home, b.leases, Overlays(b.home.storage, b.home.meta)).clean()
    assert (b.home.path / "warehouse" / str(b.relation_id)).exists()
