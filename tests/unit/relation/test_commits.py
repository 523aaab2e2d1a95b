"""Commits to a base: synced, then recorded, once; taken back after a power loss; and meta never goes backwards."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from headwater.errors import DataError
from headwater.meta import connections, epochs, intents, relations, settle, spans, tables
from headwater.meta.intents import Fold, Maintain
from headwater.model import Epoch
from headwater.relation import base, commits, rewrite
from headwater.storage import LocalStorage, local
from support.based import Based


@pytest.fixture
def based(tmp_path: Path) -> Iterator[Based]:
    made = Based(tmp_path / "home", random.Random(5))
    yield made
    made.meta.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What is synced from now on."""
    found: list[Path] = []
    real = local.fsync

    def fsync(path: Path) -> None:
        real(path)
        found.append(path)

    monkeypatch.setattr(local, "fsync", fsync)
    return found


def left_in_delta(based: Based) -> int:
    """A fold that is committed and not recorded, as after a kill; gives its version."""
    based.fill()
    based.change()
    based.fails_after_commit, based.failure = 1.0, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        based.committer.fold(based.id)
    based.fails_after_commit = 0.0
    assert [type(i.work) for i in based.intents()] == [Fold]
    return base.current_version(based.home.storage, based.relation.base_path)


def test_a_fold_that_fails_after_its_commit_is_recorded_at_once(based: Based) -> None:
    based.fill()
    based.change()
    based.fails_after_commit = 1.0
    assert isinstance(based.committer.fold(based.id), Epoch)
    based.assert_exact()
    assert based.layout is not None and based.layout.indexes == {1: len(based.states) - 1}
    assert based.intents() == []
    rewritten: list[str] = []
    based.committer.upkeep(based.id, lambda relation: rewritten.append(relation.name))
    assert rewritten == ["t"], "nothing blocks upkeep"


def test_a_fold_that_fails_before_its_commit_is_given_up_by_the_next(based: Based) -> None:
    based.fill()
    based.change()
    before = based.relation.base_version
    never_made(based)
    assert [type(i.work) for i in based.intents()] == [Fold] and based.relation.base_version == before
    assert based.committer.fold(based.id) is not None
    assert based.intents() == [] and based.relation.base_version == before + 2
    based.assert_exact()


@pytest.mark.parametrize("then", ["cover", "fold", "upkeep"])
def test_whatever_comes_next_first_records_a_fold_that_was_left(based: Based, then: str) -> None:
    version = left_in_delta(based)
    work = {
        "cover": lambda: based.committer.cover(based.id),
        "fold": lambda: based.committer.fold(based.id),
        "upkeep": lambda: based.committer.upkeep(based.id, lambda relation: None),
    }
    based.committer._rest_until.clear()
    work[then]()
    assert based.intents() == [] and based.relation.base_version == version
    assert based.layout is not None and based.layout.indexes == {1: len(based.states) - 1}
    based.assert_exact()


@pytest.mark.parametrize("by", ["cover", "fold", "give up", "upkeep"])
def test_a_commit_is_synced_before_meta_has_its_version(
    based: Based, by: str, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert based.scan()
    based.cover()
    assert based.scan()
    based.change()
    if by == "give up":
        never_made(based)
    log, recorded = based.log_entry(0).parent, list[int]()
    record = relations.set_base_version

    def recording(c: sa.Connection, id: int, version: int) -> None:
        assert log / f"{version:020d}.json" in synced
        recorded.append(version)
        record(c, id, version)

    monkeypatch.setattr(relations, "set_base_version", recording)
    del synced[:]
    work = {
        "cover": based.cover,
        "fold": lambda: based.committer.fold(based.id),
        "give up": lambda: based.new_committer().recover(),
        "upkeep": lambda: based.committer.upkeep(based.id, lambda relation: compacted(based)),
    }
    work[by]()
    assert recorded == [based.relation.base_version] and based.home.live.failures.of(table=based.id) == []


def never_made(based: Based) -> None:
    """A fold that is decided and was not committed."""

    def fails() -> None:
        raise RuntimeError("no memory")

    based.while_merging = fails
    with pytest.raises(RuntimeError, match="no memory"):
        based.committer.fold(based.id)
    based.while_merging = lambda: None


def compacted(based: Based) -> None:
    """A commit that changes no row."""
    path = based.relation.base_path
    base.add_files(based.home.storage, path, [], "upkeep", base.current_version(based.home.storage, path) + 1)


def test_what_upkeep_could_not_record_is_recorded_by_the_next(based: Based, monkeypatch: pytest.MonkeyPatch) -> None:
    """An intent that stayed for ever would keep the base from being vacuumed."""
    based.fill()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(commits, "make_durable", full)
        with pytest.raises(OSError, match="No space"):
            based.committer.upkeep(based.id, lambda relation: compacted(based))
    assert [type(i.work) for i in based.intents()] == [Maintain]
    assert based.committer.upkeep(based.id, lambda relation: None) is not None
    assert based.intents() == []
    assert based.relation.base_version == base.current_version(based.home.storage, based.relation.base_path)


def test_after_a_kill_a_committed_fold_is_recorded_and_synced(based: Based, synced: list[Path]) -> None:
    version = left_in_delta(based)
    del synced[:]
    based.new_committer().recover()
    assert based.intents() == [] and based.relation.base_version == version
    assert based.log_entry(version) in synced
    based.assert_exact()


def test_after_a_power_loss_a_commit_that_nobody_recorded_is_taken_back_and_made_again(based: Based) -> None:
    version = left_in_delta(based)
    whole = based.log_entry(version).read_bytes()
    based.log_entry(version).write_bytes(whole[: len(whole) // 2])  # torn
    based.reboot()
    based.new_committer().recover()
    assert based.intents() == []
    based.assert_exact()
    based.committer.fold(based.id)
    assert based.layout is not None and based.layout.indexes == {1: len(based.states) - 1}
    based.assert_exact()


def test_where_the_system_does_not_name_its_boots_every_recovery_follows_a_power_loss(
    based: Based, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "life", lambda _: "")
    version = left_in_delta(based)
    whole = based.log_entry(version).read_bytes()
    based.log_entry(version).write_bytes(whole[: len(whole) // 2])  # torn
    based.new_committer().recover()
    assert based.intents() == []
    assert based.relation.base_version == base.current_version(based.home.storage, based.relation.base_path)
    based.assert_exact()


def test_a_recovery_records_what_a_fold_made_before_it_takes_up_a_rewrite(based: Based) -> None:
    """A rewrite is recorded by taking the newest version for what meta has, so no fold may be hidden in that."""
    based.fill()
    with based.meta.write() as c:
        intents.add(c, based.id, Maintain(), based.home.storage.life())
    based.change()
    based.fails_after_commit, based.failure = 1.0, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        based.committer.fold(based.id)
    assert [type(i.work) for i in based.intents()] == [Maintain, Fold]
    based.new_committer().recover()
    assert based.intents() == []
    with based.meta.read() as c:
        newest = epochs.newest(c)
        assert newest is not None
        shown = {epochs.layout_at(c, based.id, id) for id in range(1, newest.id + 1)} - {None}
    for layout in shown:
        based.assert_exact(layout)


def test_a_base_whose_commits_cannot_be_taken_back_is_left_alone_until_they_can(
    based: Based, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is its table's failure: the start goes on, and nothing is built on a commit that cannot be trusted."""
    version = left_in_delta(based)
    whole = based.log_entry(version).read_bytes()
    based.log_entry(version).write_bytes(whole[: len(whole) // 2])  # torn
    based.reboot()
    listed = based.home.storage.list

    def unreadable(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(type(based.home.storage), "list", lambda _, path: unreadable(path))
    based.committer = based.new_committer()
    based.committer.recover()
    ((job, error),) = based.home.live.failures.of(table=based.id)
    assert (job, error.code) == ("recover", "home.unusable")
    for work in (based.committer.cover, based.committer.fold):
        with pytest.raises(PermissionError):
            work(based.id)
    assert based.relation.base_version == version - 1 and len(based.intents()) == 1
    monkeypatch.setattr(type(based.home.storage), "list", lambda _, path: listed(path))
    based.committer.fold(based.id)
    assert based.intents() == [] and based.home.live.failures.of(table=based.id) == []
    based.assert_exact()


@pytest.mark.parametrize("removed", range(4))
def test_a_log_that_is_taken_back_has_no_gap_wherever_that_is_interrupted(
    based: Based, removed: int, synced: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that finds a later entry without an earlier one takes the base for damaged."""
    for _ in range(3):
        compacted(based)
    storage, path = based.home.storage, based.relation.base_path
    real, left = LocalStorage.remove, [removed]

    def remove(self: LocalStorage, paths: Iterable[str]) -> None:
        names = list(paths)
        if any(name.endswith(".json") for name in names):
            assert len(names) == 1, "several at once go in any order"
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        real(self, names)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "remove", remove)
        with contextlib.suppress(KeyboardInterrupt):
            commits.take_back(storage, path, 0)
    assert base.current_version(storage, path) == 3 - removed
    entries = [p for p in storage.list(f"{path}/_delta_log") if p.endswith(".json")]
    assert entries == [f"{path}/_delta_log/{v:020d}.json" for v in range(4 - removed)]
    commits.take_back(storage, path, 0)
    assert base.current_version(storage, path) == 0
    assert based.log_entry(0).parent in synced, "what is gone does not come back with the next power loss"


def test_after_a_power_loss_a_cover_is_made_again_with_the_files_of_its_scans(based: Based) -> None:
    while based.scan():
        continue
    with based.meta.write() as c:
        intent, _ = based.committer._decide_cover(c, based.id)
    assert intent is not None
    based.log_entry(based.relation.base_version + 1).write_bytes(b"")  # torn
    based.reboot()
    based.new_committer().recover()
    assert based.intents() == []
    based.assert_exact()
    assert based.layout is not None and based.layout.complete


def test_a_recovery_of_a_fold_that_was_never_made_moves_nothing_back(based: Based) -> None:
    """A later fold's number in Delta's log does not say that an earlier one was made."""
    based.fill()
    based.change()
    with based.meta.write() as c:
        covered = [s.id for s in spans.all(c, based.id)]
        old = intents.add(c, based.id, Fold(0, 1, tuple(covered)), "")
        intents.done(c, old.id)
    based.committer.fold(based.id)
    before = based.relation.base_version, based.layout
    with based.meta.write() as c:
        again = {"id": old.id, "relation_id": based.id, "kind": Fold.kind, "created_at": 0.0}
        c.execute(sa.insert(tables.intent).values(body='{"index": 0, "epoch": 1, "spans": [1, 2, 3, 4]}', **again))
    based.new_committer().recover()
    assert (based.relation.base_version, based.layout) == before
    assert based.intents() == []


def test_meta_refuses_to_go_back(based: Based) -> None:
    based.fill()
    with based.meta.write() as c:
        relations.set_base_version(c, based.id, 7)
        relations.set_base_version(c, based.id, 7)
        settle.move(c, based.id, [s.id for s in spans.all(c, based.id)], 9)
    with pytest.raises(DataError, match="cannot go back"), based.meta.write() as c:
        relations.set_base_version(c, based.id, 6)
    with based.meta.write() as c:
        settle.move(c, based.id, [s.id for s in spans.all(c, based.id)], 8)
        assert {s.log_index for s in spans.all(c, based.id)} == {9}


def test_nothing_else_commits_to_a_base_while_it_is_folded(based: Based) -> None:
    """A MERGE fails, or overwrites, when another writer adds files meanwhile."""
    assert based.scan()
    based.committer.cover(based.id)
    assert based.scan()
    based.change()
    tried: list[Epoch | None] = []

    def cover() -> None:
        based.committer._rest_until.clear()
        other = threading.Thread(
            target=lambda: tried.extend(
                [based.committer.cover(based.id), based.committer.upkeep(based.id, based.rewrite)]
            )
        )
        other.start()
        other.join(60)

    based.while_merging = cover
    before = based.relation.base_version
    assert based.committer.fold(based.id) is not None
    assert tried == [None, None]
    assert based.relation.base_version == before + 1
    assert based.committer.cover(based.id) is not None, "and it is covered afterwards"
    based.assert_exact()


def test_delta_does_not_refuse_a_transaction_twice_so_the_committer_looks_first(based: Based) -> None:
    while based.scan():
        continue
    storage, path = based.home.storage, based.relation.base_path
    with based.meta.read() as c:
        files = [f for s in spans.uncovered(c, based.id) for f in s.files]
    rows = sum(f.rows for f in files)
    first = base.add_files(storage, path, files, "app", 1)
    assert base.add_files(storage, path, files, "app", 1) == first == base.current_version(storage, path)
    assert DeltaTable(storage.address(path)).count() == rows
    table = DeltaTable(storage.address(path))
    twice = [AddAction(f"{f.path}?copy", f.bytes, {}, 0, True, f.stats) for f in files]
    properties = CommitProperties(app_transactions=[Transaction("app", 1)])
    table.create_write_transaction(twice, "append", table.schema(), commit_properties=properties)
    assert DeltaTable(storage.address(path)).version() == first + 1, "delta-rs itself takes it a second time"


def test_a_cover_that_was_committed_keeps_its_own_scans_whatever_the_upstream_does_since(based: Based) -> None:
    """Rows of one scan must not be paired with what another one saw."""
    while based.scan():
        continue
    with based.meta.write() as c:
        intent, _ = based.committer._decide_cover(c, based.id)
    assert intent is not None
    based.change()
    with based.meta.write() as c:
        connections.set_server_life(c, based.log.id, "another")
    based.committer.cover(based.id)
    based.assert_exact()
    assert based.layout is not None and based.layout.complete


def test_what_is_synced_depends_on_the_commit_and_not_on_the_base(based: Based, synced: list[Path]) -> None:
    based.fill()
    for _ in range(3):
        based.change()
        based.committer.fold(based.id)
    based.change()
    before = set((based.home.path / based.relation.base_path).glob("*.parquet"))
    del synced[:]
    based.committer.fold(based.id)
    new = set((based.home.path / based.relation.base_path).glob("*.parquet")) - before
    assert new and {p for p in synced if p.suffix == ".parquet"} == new
    assert based.log_entry(based.relation.base_version) in synced
    assert {based.log_entry(0).parent, based.home.path / based.relation.base_path} <= set(synced)


def test_where_the_log_has_lost_what_a_commit_added_all_of_the_base_is_synced(based: Based, synced: list[Path]) -> None:
    based.fill()
    storage, path, version = based.home.storage, based.relation.base_path, based.relation.base_version
    rewrite.checkpoint(storage, based.relation)
    based.log_entry(1).unlink()
    del synced[:]
    commits.make_durable(storage, path, 0, version)
    assert {based.home.path / name for name in storage.list(path)} <= set(synced)


def test_a_checkpoint_is_synced_and_the_log_before_it_goes_when_it_is_old(based: Based, synced: list[Path]) -> None:
    based.fill()
    for _ in range(3):
        based.change()
        based.committer.fold(based.id)
    storage, path, version = based.home.storage, based.relation.base_path, based.relation.base_version
    based.committer.upkeep(based.id, lambda relation: rewrite.checkpoint(storage, relation), checkpoint=True)
    log = based.log_entry(0).parent
    assert {log / f"{version:020d}.checkpoint.parquet", log / "_last_checkpoint", log} <= set(synced)
    now = time.time()
    assert commits.trim(storage, path, version, now - 60) == 0, "nothing is old"
    assert commits.trim(storage, path, version - 1, now + 60) == 0, "a version before the checkpoint is read"
    based.change()
    based.committer.fold(based.id)
    checkpoint = log / f"{version:020d}.checkpoint.parquet"
    aside = checkpoint.rename(log / "aside")
    assert commits.trim(storage, path, based.relation.base_version, now + 60) == 0, "the checkpoint is not there"
    aside.rename(checkpoint)
    assert commits.trim(storage, path, based.relation.base_version, now + 60) == version
    assert not based.log_entry(version - 1).exists()
    based.assert_exact()
    assert DeltaTable(storage.address(path), version=version).version() == version


def test_a_checkpoint_that_was_being_written_when_the_power_was_lost_is_not_read(based: Based) -> None:
    based.fill()
    based.change()
    based.committer.fold(based.id)
    storage, version = based.home.storage, based.relation.base_version

    rewrite.checkpoint(storage, based.relation)
    torn = based.log_entry(0).parent / f"{version:020d}.checkpoint.parquet"
    torn.write_bytes(bytes(torn.stat().st_size))
    with based.meta.write() as c:
        intents.add(c, based.id, Maintain(True), "before")
    based.new_committer().recover()
    assert based.intents() == []
    based.assert_exact()
    based.change()
    based.committer.fold(based.id)
    based.assert_exact()


def test_the_name_of_a_deletion_vector_is_read_as_delta_writes_it() -> None:
    """The example of Delta's protocol."""
    add = {"deletionVector": {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}}
    assert commits._vector_files(add) == ["ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"]
    inline = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91"}
    assert commits._vector_files({"deletionVector": inline}) == []
    assert commits._vector_files({}) == []


def test_a_file_that_exists_is_never_written_to(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with storage.create("a/b") as f:
        f.write(b"first")
    with pytest.raises(FileExistsError), storage.create("a/b") as f:
        f.write(b"second")
    assert (tmp_path / "a/b").read_bytes() == b"first"


def test_a_folder_that_was_removed_and_made_again_is_synced_again(tmp_path: Path, synced: list[Path]) -> None:
    storage = LocalStorage(tmp_path)
    for _ in range(2):
        del synced[:]
        with storage.create("a/b/c") as f:
            f.write(b"data")
        assert {tmp_path, tmp_path / "a", tmp_path / "a/b"} <= set(synced)
        storage.remove_folder("a")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_who_meets_anothers_commit_does_not_build_on_it(based: Based, mode: str) -> None:
    """An owner that was stopped past its lease, and goes on between opening the base and its commit."""
    based.fill()
    relation = based.relation
    table = base._open(based.home.storage, relation.base_path)
    version = base.add_files(based.home.storage, relation.base_path, [], "another", 1)
    with pytest.raises(CommitFailedError):
        base._commit(based.home.storage, relation.base_path, table, mode, [], "stopped", 1)
    assert base.current_version(based.home.storage, relation.base_path) == version
