"""What ownership promises, whatever database meta is: one owner at a time, and an earlier one does no harm."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError

from headwater.backfill.files import scan_label
from headwater.engine.commit import committer
from headwater.engine.commit.sweep import Sweeper
from headwater.engine.home import Home
from headwater.engine.serve import server
from headwater.engine.serve.server import Server
from headwater.errors import DataError, FencedError, MachineError
from headwater.meta import connections, epochs, intents, segments, spans
from headwater.meta.store import Meta
from headwater.model import ScanResult, Segment, SpanState
from headwater.ownership import lease
from headwater.ownership.lease import Lease, Leases, Owner, acquire, clock, release
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit, written
from headwater.relation import base
from headwater.rundir.lock import owner
from support.commits import Commits, span
from support.owned import acquired, taken_over
from support.wait import wait_for

SHORT_S = 3.0  # a lease that runs out while a test waits, and not while a busy machine renews it
HERE, THERE = Owner("here", "a:1"), Owner("there", "b:1")
THING = Name.relation(7)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("database").dsn)
    return f"sqlite:///{tmp_path / 'meta.db'}"


@pytest.fixture
def meta(url: str) -> Iterator[Meta]:
    store = Meta(url)
    yield store
    store.close()


@pytest.fixture
def b(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commits]:
    if not url.startswith("sqlite"):
        monkeypatch.setenv("HEADWATER_META", url)
    made = Commits.make(tmp_path, [span(None, 10), span(10, None)])
    yield made
    made.home.meta.close()


def take(meta: Meta, what: Name = THING, by: Owner = HERE, **options: Any) -> Lease | None:
    with meta.write() as c:
        return acquire(c, what, by, **options)


def taken(meta: Meta, what: Name = THING, by: Owner = HERE, **options: Any) -> Lease:
    lease = take(meta, what, by, **options)
    assert lease is not None
    return lease


def renewed(meta: Meta, lease: Lease) -> bool:
    with contextlib.suppress(FencedError), meta.owned(lease):
        return True
    return False


def test_what_is_owned_has_a_name_of_its_own() -> None:
    names = [Name.server(), Name.connection(3), Name.relation(3), Name.relation(7)]
    assert [str(n) for n in names] == ["server", "connection:3", "relation:3", "relation:7"]
    assert len(set(names)) == 4


def test_what_is_free_is_acquired_and_what_is_held_is_not(meta: Meta) -> None:
    lease = taken(meta)
    assert (lease.name, lease.owner, lease.fence) == (THING, HERE, 1)
    assert take(meta, by=THERE) is None
    assert take(meta, by=Owner("here", "a:2")) is None, "another process of the same place, as far as anybody knows"
    assert taken(meta, Name.relation(8), THERE).fence == 1, "every name is owned for itself"
    assert renewed(meta, lease)


def test_each_acquisition_has_a_later_fence_than_the_one_before(meta: Meta) -> None:
    fences = [taken(meta).fence]
    for _ in range(2):
        fences.append(taken(meta).fence)  # by the same owner, which has begun anew
    lease = taken(meta)
    with meta.write() as c:
        release(c, lease)
    fences += [lease.fence, taken(meta, by=THERE).fence]
    assert fences == sorted(set(fences))


def test_of_many_who_try_at_once_one_wins(url: str) -> None:
    Meta(url).close()
    won: list[Lease] = []
    barrier = threading.Barrier(6)

    def run(n: int) -> None:
        store = Meta(url)
        barrier.wait(60)
        if (lease := take(store, by=Owner(f"place {n}", "x:1"))) is not None:
            won.append(lease)
        store.close()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(won) == 1


@pytest.mark.parametrize("renewals", [0, 1])
def test_a_lease_that_has_expired_is_free_and_by_then_its_owner_has_stopped_by_its_own_clock(
    meta: Meta, renewals: int
) -> None:
    lease = taken(meta, lasts_s=SHORT_S)
    for _ in range(renewals):
        assert renewed(meta, lease)
    lease.ensure()

    def expired() -> Lease | None:
        new = take(meta, by=THERE)
        if new is not None:
            with pytest.raises(MachineError) as e:
                lease.ensure()
            assert (e.value.code, e.value.retry) == ("meta.unreachable", "auto")
        return new

    new = wait_for(expired, "it runs out", 30)
    assert new.fence == lease.fence + 1 and not renewed(meta, lease)


def test_an_owner_that_could_not_renew_continues_if_nobody_has_come_meanwhile(meta: Meta) -> None:
    """A meta that was away for a while costs a pause, and no restart."""
    lease = taken(meta, lasts_s=SHORT_S)

    def stopped() -> bool:
        with contextlib.suppress(MachineError):
            lease.ensure()
            return False
        return True

    wait_for(stopped, "its own clock says that it ran out", 30)
    assert renewed(meta, lease)
    lease.ensure()
    assert take(meta, by=THERE) is None


def test_an_owner_whose_lease_has_expired_commits_nothing_until_it_is_renewed(b: Commits) -> None:
    """Meta cannot refuse a commit to a base: the owner's own clock does."""
    b.scan(0, [1], high=10)
    b.idle(50)
    with b.home.meta.write() as c:
        lease = acquire(c, Name.server(), b.leases.server.owner, lasts_s=SHORT_S)
    assert lease is not None
    b.leases = Leases(lease)
    with b.home.meta.owned(lease) as c:
        b.restart()._decide_cover(c, b.relation_id)
    wait_for(lambda: clock() > lease._validity.until, "it expires", 30)
    before = b.delta_version()
    b.committer.recover()
    ((job, error),) = b.home.live.failures.of(table=b.relation_id)
    assert (job, error.code, b.delta_version()) == ("recover", "meta.unreachable", before)
    assert renewed(b.home.meta, lease) and b.cover() is not None and b.ids() == [1]


def test_a_renewal_counts_from_before_it_was_asked_for(meta: Meta) -> None:
    """Meta counts from some moment during the write, so the owner must count from an earlier one."""
    held = taken(meta, lasts_s=60.0)
    with meta.owned(held):
        began = clock()
        time.sleep(0.05)
    assert held._validity.until <= began + 60.0
    last = held._validity.until
    held.renewed(began - 30.0)
    assert held._validity.until == last, "an older answer takes nothing away"


def test_every_write_of_an_owner_renews(meta: Meta) -> None:
    lease, began = taken(meta, lasts_s=2.0), clock()
    while clock() < began + 5.0:
        assert renewed(meta, lease) and take(meta, by=THERE) is None
        lease.ensure()


def test_the_databases_clock_decides_whether_a_lease_has_run_out(
    meta: Meta, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose clock is an hour ahead takes nothing away. A file's clock is that of its one machine."""
    own = taken(meta)
    real = lease.time.time
    monkeypatch.setattr(lease.time, "time", lambda: real() + 3600)
    assert (take(meta, by=THERE) is None) is not url.startswith("sqlite")
    assert renewed(meta, own) is not url.startswith("sqlite")


def test_a_restart_on_the_same_machine_need_not_wait_and_one_elsewhere_must(meta: Meta) -> None:
    """Whoever holds the lock of the run directory knows that no other process of that place owns anything."""
    old = taken(meta)
    assert take(meta, by=THERE, alone=True) is None, "its lock says nothing of another place"
    new = taken(meta, by=Owner(HERE.run_directory, "a:2"), alone=True)
    assert new.fence == old.fence + 1 and not renewed(meta, old) and renewed(meta, new)


def test_a_fenced_owner_writes_nothing(meta: Meta) -> None:
    stale = taken(meta)
    with meta.write() as c:
        id = connections.add(c, name="shop", type="postgres-cdc", options={}, secret=None, position="0/10")
    taken(meta, by=Owner(HERE.run_directory, "a:2"), alone=True)
    new = Segment(id, 1, 5, 5, "s1", 10, 700, 710, ())
    with pytest.raises(FencedError) as e, meta.owned(stale) as c:
        segments.publish(c, new, resume_position="0/20", position="0/20", last_txn=710)
    assert str(THING) in e.value.message
    with meta.read() as c:
        assert connections.get(c, id).last_index == 0


def test_a_released_lease_is_free_at_once_and_of_no_use_to_its_last_owner(meta: Meta) -> None:
    lease = taken(meta)
    with meta.write() as c:
        release(c, lease)
    assert not renewed(meta, lease)
    new = taken(meta, by=THERE)
    assert new.fence > lease.fence + 1, "a fence is never used twice"
    with meta.write() as c:
        release(c, lease)
    assert renewed(meta, new), "a late release is not the new owner's"


def test_a_connection_that_is_dropped_has_no_owner_any_more(meta: Meta) -> None:
    with meta.write() as c:
        id = connections.add(c, name="shop", type="postgres-cdc", options={}, secret=None, position="0/10")
        lease = acquired(c, Name.connection(id))
    with meta.write() as c:
        connections.remove(c, id)
    assert not renewed(meta, lease)


OWNER = """
import sys
from headwater.errors import FencedError, HeadwaterError
from headwater.meta.store import Meta
from headwater.ownership.lease import Owner, acquire
from headwater.ownership.names import Name
meta = Meta(sys.argv[1])
with meta.write() as c:
    lease = acquire(c, Name.relation(7), Owner("here", "a:1"), lasts_s=float(sys.argv[2]))
print("owns", lease.fence, flush=True)
sys.stdin.readline()
try:
    lease.ensure()
    print("is sure", flush=True)
except HeadwaterError as e:
    print("stops", e.code, flush=True)
try:
    with meta.owned(lease):
        print("writes", flush=True)
except FencedError as e:
    print("fenced", e.code, flush=True)
"""


def test_an_owner_that_was_stopped_past_its_lease_knows_it_when_it_wakes_up(meta: Meta, url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, url, "1.0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        assert process.stdout.readline() == "owns 1\n"
        process.send_signal(signal.SIGSTOP)
        new = wait_for(lambda: take(meta, by=THERE), "its lease runs out", 30)
        process.stdin.write("go on\n")
        process.stdin.flush()
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=60)
        assert said.splitlines() == ["stops meta.unreachable", "fenced job.fenced"]
        assert renewed(meta, new)
    finally:
        process.kill()
        process.wait(30)


TASK = """
import sys, pickle
import pyarrow as pa
from headwater.backfill.files import FileWriter
from headwater.storage import LocalStorage
permit, label = pickle.loads(bytes.fromhex(sys.argv[3]))
table = pa.table({"id": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32())})
with FileWriter(LocalStorage(sys.argv[1]), sys.argv[2], table.schema, permit, label, row_group_bytes=1) as files:
    files.write(table.to_batches()[0])
    print("writes", flush=True)
    sys.stdin.readline()
    print(files.close()[0].path, flush=True)
"""


def start_task(home: Home, base_path: str, permit: Permit, label: str) -> subprocess.Popen[str]:
    """A scan's task as a process of its own, in the middle of its file."""
    sent = pickle.dumps((permit, label)).hex()
    command = [sys.executable, "-c", TASK, str(home.path), base_path, sent]
    task = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert task.stdout is not None and task.stdout.readline() == "writes\n"
    return task


def test_a_task_that_outlives_its_owner_leaves_no_file_and_the_next_owner_does_not_wait_for_it(b: Commits) -> None:
    storage, path = b.home.storage, b.relation.base_path
    with b.home.meta.write() as c:
        first, second = spans.all(c, b.relation_id)
        spans.set_state(c, first.id, SpanState.SCANNING)
    old = b.leases
    late = start_task(b.home, path, old.server.permit, scan_label(first.id))
    with b.home.meta.write() as c:
        b.leases = Leases(taken_over(c))
        spans.back_to_pending(c, first.id)  # as the next server does at its start
        spans.set_state(c, second.id, SpanState.SCANNING)
    own = start_task(b.home, path, b.leases.server.permit, scan_label(second.id))
    files = [p for p in storage.list(path) if written(p)]
    assert len(files) == 2
    Sweeper(b.home, b.leases).sweep()
    left = [p for p in storage.list(path) if written(p)]
    assert [written(p).fence for p in left] == [b.leases.server.fence], "the earlier owner's goes while it is written"  # type: ignore[union-attr]
    again = start_task(b.home, path, old.server.permit, scan_label(second.id))  # a worker that was cut off till now
    names = [task.communicate("\n", timeout=60)[0].strip() for task in (own, again)]
    late.communicate("\n", timeout=60)
    kept = storage.size(f"{path}/{names[0]}")
    with pytest.raises(FencedError), b.home.meta.owned(old.server) as c:
        spans.scanned(c, second.id, ScanResult("5:5:", "0/1", (), 1), 0, "1")
    Sweeper(b.home, b.leases).sweep()
    assert [p for p in storage.list(path) if written(p)] == [f"{path}/{names[0]}"]
    assert storage.size(f"{path}/{names[0]}") == kept


class Stopped(BaseException):
    """Stands for SIGSTOP: the owner goes on later, where it was."""


@pytest.mark.parametrize("point", ["cover.decided", "cover.added"])
def test_a_commit_that_an_owner_had_begun_is_made_once_whoever_makes_it(
    b: Commits, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    b.scan(0, [1, 2], high=10)
    b.idle(50)
    stale = b.committer

    def here(name: str) -> None:
        if name == point:
            raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(committer.crash, "here", here)
        stale.cover(b.relation_id)
    with b.home.meta.read() as c:
        (intent,) = intents.all(c, b.relation_id)
    opened = base._open(b.home.storage, b.relation.base_path)
    with b.home.meta.write() as c:
        b.leases = Leases(taken_over(c))
    b.restart().recover()
    b.scan(1, [11], high=10)
    assert b.cover() is not None and b.ids() == [1, 2, 11]
    version, shown = b.delta_version(), b.epoch()
    with pytest.raises(FencedError):
        stale._finish(intent, new=True)  # where it was stopped
    with pytest.raises(CommitFailedError):  # or further on, with the base open
        number = committer.numbers.last(intent)
        base._commit(b.home.storage, b.relation.base_path, opened, "append", [b.file([9])], *number)
    with pytest.raises(FencedError):
        stale.fold(b.relation_id)
    assert (b.delta_version(), b.ids(), b.epoch()) == (version, [1, 2, 11], shown)


def test_what_an_earlier_owner_was_to_take_out_is_not_taken_out_once_the_next_has_added_rows(b: Commits) -> None:
    b.scan(0, [1, 2], high=10)
    b.scan(1, [], high=10)
    b.idle(50)
    assert b.cover() is not None
    with b.home.meta.write() as c:
        spans.read_all_again(c, b.relation_id)
    b.scan(0, [2, 3], high=60)
    b.idle(70)
    with b.home.meta.owned(b.leases.server) as c:
        intent, _ = b.committer._decide_cover(c, b.relation_id)
    assert intent is not None
    stale, stale_leases = b.committer, b.leases
    with b.home.meta.write() as c:
        b.leases = Leases(taken_over(c))
    assert b.restart().cover(b.relation_id) is not None and b.ids() == [2, 3]
    b.remove(b.relation, [span(None, None)], *committer.numbers.first(intent))  # by Spark, on another machine
    with pytest.raises(FencedError):
        stale._finish(intent)
    assert b.ids() == [2, 3] and len(b.emptied) == 1 and stale_leases.server.fence < b.leases.server.fence


def test_a_fold_that_an_earlier_owner_was_making_is_never_made(b: Commits) -> None:
    b.log(3, position=20)
    b.scan(0, [1], high=20, log_index=0)
    b.scan(1, [11], high=20, log_index=2)
    assert b.committer.cover(b.relation_id) is not None
    stale = b.committer

    def overtaken() -> None:
        """While the fold runs, its owner is taken for gone; another one gives the fold up and goes on."""
        with b.home.meta.write() as c:
            b.leases = Leases(taken_over(c))
        b.merging = lambda: None
        b.restart().recover()

    b.merging = overtaken
    with pytest.raises((DataError, FencedError)):
        stale.fold(b.relation_id)
    with b.home.meta.read() as c:
        assert intents.all(c, b.relation_id) == []
        newest = epochs.newest(c)
    assert b.ids() == [1, 11] and b.states == ["covered", "covered"] and newest is not None
    assert b.committer.fold(b.relation_id) is not None and b.states == ["settled"]


def test_a_server_takes_over_from_its_own_earlier_one_at_once_and_waits_for_that_of_another_machine(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not url.startswith("sqlite"):
        monkeypatch.setenv("HEADWATER_META", url)
    home = Home.open(tmp_path / "home")
    killed = taken(home.meta, Name.server(), Owner(owner(home.path).run_directory, "host:1"), lasts_s=3600)
    began = clock()
    assert Server(home)._acquire().fence == killed.fence + 1 and clock() - began < 10
    elsewhere = Owner("elsewhere", "other:1")
    with home.meta.write() as c:
        lease.forget(c, Name.server())
    gone = taken(home.meta, Name.server(), elsewhere, lasts_s=SHORT_S)
    assert Server(home)._acquire().fence == gone.fence + 1, "once its lease has run out"
    with home.meta.write() as c:
        lease.forget(c, Name.server())
    taken(home.meta, Name.server(), elsewhere, lasts_s=3600)
    monkeypatch.setattr(server, "LEASE_S", SHORT_S)
    with pytest.raises(MachineError) as e:
        Server(home)._acquire()
    assert e.value.code == "home.locked" and "other:1" in e.value.message
    home.meta.close()


def test_a_server_that_lost_its_lease_ends(b: Commits) -> None:
    running = Server(b.home)
    running._leases = b.leases
    running._renew()
    with b.home.meta.write() as c:
        taken_over(c)
    running._repeat(server._Loop("lease", running._renew, 0.001))
    failure: Any = running.failure
    assert failure is not None and failure.code == "job.fenced"
