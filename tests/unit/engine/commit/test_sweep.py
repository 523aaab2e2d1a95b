"""The sweep over a home with a real meta and real bases: what it finds, what it spares, and that it goes on."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.backfill.files import FileWriter, scan_label
from headwater.changelog import segment
from headwater.engine.commit import sweep
from headwater.engine.commit.clean import Cleaner
from headwater.engine.commit.sweep import Sweeper
from headwater.meta import connections, intents, relations, runs, spans, tables
from headwater.meta.intents import Fold
from headwater.meta.store import Meta
from headwater.model import DataFile, ScanResult, SpanState
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit
from headwater.relation import base
from headwater.relation.fold import fold_label
from headwater.relation.overlay import Overlays
from headwater.relation.runs import folder as run_folder
from headwater.storage import LocalStorage
from support.based import SCHEMA, Based, _table
from support.defined import add_table
from support.home import change_settings
from support.owned import taken_over

ROWS = {1: 1, 2: 2}


@pytest.fixture
def based(tmp_path: Path) -> Iterator[Based]:
    made = Based(tmp_path / "home", random.Random(5))
    yield made
    made.meta.close()


def permit(based: Based, fence: int = 0) -> Permit:
    """The owner's own, or that of an earlier one."""
    return Permit(Name.server(), fence or based.leases.server.fence)


def write(based: Based, label: str, fence: int = 0) -> DataFile:
    """A task's file beside the base."""
    with FileWriter(based.home.storage, based.relation.base_path, SCHEMA, permit(based, fence), label) as files:
        for batch in _table(ROWS).to_batches():
            files.write(batch)
        (made,) = files.close()
    return made


def put(based: Based, path: str) -> str:
    """Any other file."""
    with based.home.storage.create(path) as f:
        f.write(b"x")
    return path


def there(based: Based, file: DataFile) -> bool:
    return based.home.storage.exists(f"{based.relation.base_path}/{file.path}")


def begin(based: Based) -> int:
    """A span that is being read."""
    with based.meta.write() as c:
        id = spans.pending(c, based.id, 1)[0].id
        spans.set_state(c, id, SpanState.SCANNING)
    return id


def record(based: Based, span_id: int, *files: DataFile) -> None:
    with based.meta.owned(based.leases.server) as c:
        spans.scanned(c, span_id, ScanResult("at 0", "0/1", files, len(ROWS)), 0, "")


def take_over(based: Based) -> None:
    """Another server is the owner from now on."""
    with based.meta.write() as c:
        based.leases = Leases(taken_over(c))
    based.committer = based.new_committer()


def clean(based: Based) -> None:
    Sweeper(based.home, based.leases).sweep()


def test_a_repeated_tasks_files_stay_while_one_of_its_attempts_may_be_recorded_and_go_then(based: Based) -> None:
    span = begin(based)
    lost, kept = (write(based, scan_label(span)) for _ in range(2))
    clean(based)
    assert there(based, lost) and there(based, kept), "either may be the one that ends"
    record(based, span, kept)
    late = write(based, scan_label(span))  # by the worker that Spark has given up
    clean(based)
    assert (there(based, lost), there(based, late), there(based, kept)) == (False, False, True)
    based.cover()
    clean(based)
    assert there(based, kept)


def test_a_scan_that_was_given_up_leaves_nothing(based: Based) -> None:
    span = begin(based)
    left = write(based, scan_label(span))
    with based.meta.write() as c:
        spans.give_up(c, span)
    clean(based)
    assert not there(based, left)


def test_what_an_earlier_owner_recorded_stays_and_what_its_tasks_write_goes_whenever_they_do(based: Based) -> None:
    recorded = begin(based)
    kept = write(based, scan_label(recorded))
    record(based, recorded, kept)
    running = begin(based)
    before, fence = write(based, scan_label(running)), based.leases.server.fence
    take_over(based)
    sweeper = Sweeper(based.home, based.leases)
    change_settings(based.home, history_s=0.0)
    for late in (before, write(based, scan_label(running), fence), write(based, scan_label(recorded), fence)):
        sweeper.sweep()
        assert not there(based, late) and there(based, kept)
    # the span is read again meanwhile: what the earlier owner's task writes is not taken for this one's
    own, late = write(based, scan_label(running)), write(based, scan_label(running), fence)
    sweeper.sweep()
    assert there(based, own) and not there(based, late)


def test_a_file_of_a_later_owner_is_left_alone(based: Based) -> None:
    span = begin(based)
    stale = based.leases
    take_over(based)
    file = write(based, scan_label(span))
    with based.meta.write() as c:
        spans.give_up(c, span)
    Sweeper(based.home, stale).sweep()
    assert there(based, file)


def test_files_of_scans_are_known_whatever_version_wrote_them(based: Based) -> None:
    span = begin(based)
    names = [f"{based.relation.base_path}/scan-{span}-{'0123456789abcdef' * 2}.parquet"]
    names.append(f"{based.relation.base_path}/fold-{'0123456789abcdef' * 2}.parquet")
    for name in names:
        put(based, name)
    clean(based)
    assert not any(based.home.storage.exists(name) for name in names), "no server of an earlier version is left"


def test_what_was_ever_part_of_a_base_is_vacuum_s(based: Based) -> None:
    """A version that nobody here reads may be read by another engine at this moment."""
    based.fill()
    storage, path = based.home.storage, based.relation.base_path
    old = base.files(storage, path, based.relation.base_version)
    for _ in range(2):
        based.change()
        based.committer.fold(based.id)
    based.committer.upkeep(based.id, based.rewrite)
    with based.meta.write() as c:  # no epoch is left that reads an older version
        newest = relations.get(c, based.id).base_version
        c.execute(sa.delete(tables.layout).where(~tables.layout.c.body.contains(f'"base_version": {newest}')))
    assert not old & base.files(storage, path, newest)
    sweeper = Sweeper(based.home, based.leases)
    for _ in range(2):
        sweeper.sweep()
    assert all(storage.exists(f"{path}/{name}") for name in old)


def test_a_version_that_can_be_read_is_looked_up_where_the_log_does_not_tell(based: Based) -> None:
    based.fill()
    storage, path, version = based.home.storage, based.relation.base_path, based.relation.base_version
    needed = base.files(storage, path, version)
    based.change()
    based.committer.fold(based.id)
    span = based.id * 1000
    stray = write(based, scan_label(span))
    sweeper = Sweeper(based.home, based.leases)
    sweeper._known[based.id] = sweep._Known(version=10**6)  # as if what was removed were not in the log
    sweeper.sweep()
    assert not there(based, stray) and all(storage.exists(f"{path}/{name}") for name in needed)


def test_a_folds_files_stay_until_it_is_known_that_it_is_never_made(based: Based) -> None:
    based.fill()
    with based.meta.write() as c:
        intent = intents.add(c, based.id, Fold(0, 1, ()), based.home.storage.life())
    file = write(based, fold_label(2 * intent.id))
    take_over(based)
    clean(based)
    assert there(based, file), "the earlier owner may be about to commit it"
    based.committer.recover()
    clean(based)
    assert not there(based, file) and based.intents() == []


def run_name(based: Based, first: int, fence: int = 0) -> str:
    return f"{run_folder(based.id)}/{permit(based, fence).new_file(f'{first:020d}-{first + 4:020d}', 'parquet')}"


def record_run(c: sa.Connection, based: Based, path: str) -> None:
    runs.add(
        c,
        based.id,
        first_index=1,
        last_index=5,
        path=path,
        rows=1,
        bytes=1,
        missing=False,
        schema_version=1,
        base_index=0,
    )


def test_a_run_whose_record_comes_while_it_is_looked_up_stays(based: Based, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response to a COMMIT may be lost and the COMMIT be on its way: only a write transaction waits for it."""
    path, gone = (put(based, run_name(based, n)) for n in (1, 6))
    owned = type(based.meta).owned

    def late(self: Meta, lease: Lease) -> AbstractContextManager[sa.Connection]:
        with monkeypatch.context() as patch:
            patch.setattr(type(based.meta), "owned", owned)
            with based.meta.owned(lease) as c:
                record_run(c, based, path)
        return owned(self, lease)

    with monkeypatch.context() as patch:
        patch.setattr(type(based.meta), "owned", late)
        clean(based)
    with based.meta.read() as c:
        assert runs.paths(c, relation_id=based.id) == {path}, "it was recorded meanwhile"
    assert based.home.storage.exists(path) and not based.home.storage.exists(gone)
    assert based.home.live.failures.of(table=based.id) == []


def test_a_table_that_is_dropped_while_its_files_are_listed_is_no_failure(
    based: Based, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, id = based.relation.base_path, based.id
    write(based, scan_label(7))
    real, dropped = type(based.home.storage).list, list[str]()

    def listed(self: LocalStorage, folder: str) -> Iterable[str]:
        found = list(real(self, folder))
        if folder == path and not dropped:
            dropped.append(folder)
            with based.meta.write() as c:
                relations.remove(c, id)
            self.remove_folder(folder)
        return found

    monkeypatch.setattr(type(based.home.storage), "list", listed)
    clean(based)
    assert dropped and based.home.live.failures.of(table=id) == []


def test_runs_and_merged_segments_that_nobody_recorded_go_unless_they_are_being_written(based: Based) -> None:
    span = f"merged-{1:020d}-{9:020d}"
    merged = put(based, f"{segment.folder(based.log.id)}/{permit(based).new_file(span, 'arrow')}")
    captured = put(based, segment.new_path(based.log.id, 99, based.log.lease.permit))
    recorded, unrecorded = (put(based, run_name(based, n)) for n in (1, 6))
    with based.meta.write() as c:
        record_run(c, based, recorded)
    lease = based.leases.server
    with lease.under_way.writing(run_folder(based.id)), lease.under_way.writing(segment.folder(based.log.id)):
        clean(based)
        assert all(based.home.storage.exists(p) for p in (merged, captured, recorded, unrecorded))
    clean(based)
    found = {p: based.home.storage.exists(p) for p in (merged, captured, recorded, unrecorded)}
    assert found == {merged: False, captured: True, recorded: True, unrecorded: False}


def test_a_base_that_is_damaged_does_not_stop_the_others_from_being_checked(based: Based) -> None:
    span = begin(based)
    left = write(based, scan_label(span))
    with based.meta.write() as c:
        spans.give_up(c, span)
        bad = add_table(c, "bad", based.relation.columns, ("id",), connection_id=based.log.id)
        relations.set_base_version(c, bad, 0)
        path = relations.get(c, bad).base_path
    put(based, f"{path}/{permit(based).new_file(scan_label(7), 'parquet')}")
    clean(based)
    assert not there(based, left)
    ((job, error),) = based.home.live.failures.of(table=bad)
    assert (job, error.code) == (sweep.JOB, "data.base_damaged")


def test_a_round_does_not_grow_with_the_number_of_tables_and_each_has_its_turn(
    based: Based, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MOST", 2)
    looked: list[int] = []
    monkeypatch.setattr(Sweeper, "_relation", lambda self, relation: looked.append(relation.id))
    monkeypatch.setattr(Sweeper, "_changelog", lambda self, id: looked.append(-id))
    with based.meta.write() as c:
        for n in range(5):
            connections.add(c, name=f"c{n}", type="postgres-cdc", options={}, secret=None)
    change_settings(based.home, history_s=0.0)
    sweeper = Sweeper(based.home, based.leases)
    for _ in range(4):
        before = len(looked)
        sweeper.sweep()
        assert len(looked) == before + 2
    assert len(set(looked[:7])) == 7, "nobody twice before everybody once"


def test_what_was_just_looked_at_is_not_looked_at_again_for_a_while(
    based: Based, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(Sweeper, "_relation", lambda self, relation: looked.append(relation.id))
    sweeper = Sweeper(based.home, based.leases)
    sweeper.sweep()
    sweeper.sweep()
    assert looked == [based.id]


def test_folders_of_what_was_dropped_go_again_when_somebody_late_has_written_there(based: Based) -> None:
    cleaner = Cleaner(based.home, based.leases, Overlays(based.home.storage, based.meta))
    folders = [based.relation.base_path, run_folder(based.id), segment.folder(based.log.id), f"aside/{based.log.id}"]
    based.home.storage.remove_folder(segment.folder(based.log.id))
    with based.meta.write() as c:
        relations.remove(c, based.id)
        connections.remove(c, based.log.id)
    for _ in range(2):
        for folder in folders:
            put(based, f"{folder}/late")
        cleaner.clean()
        assert not any(based.home.storage.exists(f"{folder}/late") for folder in folders)


def test_a_table_that_is_made_while_folders_are_listed_keeps_its_base(
    based: Based, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of tables is read after the folders: a base is made after its table is known."""
    cleaner = Cleaner(based.home, based.leases, Overlays(based.home.storage, based.meta))
    made: list[str] = []
    real = type(based.home.storage).folders

    def folders(self: object, folder: str) -> object:
        if not made:
            with based.meta.write() as c:
                id = add_table(c, "new", based.relation.columns, ("id",), connection_id=based.log.id)
                made.append(put(based, f"{relations.get(c, id).base_path}/file"))
        return real(self, folder)  # type: ignore[arg-type]

    monkeypatch.setattr(type(based.home.storage), "folders", folders)
    cleaner.clean()
    assert based.home.storage.exists(made[0])
