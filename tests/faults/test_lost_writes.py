"""Power losses: whatever was not synced may be dropped, torn or reordered, and the home opens again, exactly.

A server works under a recorder of everything that it, its captures, Spark's JVM and workers, SQLite and delta-rs do to
files. From one recording the disk after a power loss at any moment is computed, many times: all that meta relies on
must be there. Then the server is killed, the power is lost, and the next start must end with the upstream's rows.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable

from headwater.engine.commit.committer import Committer
from headwater.engine.home import Home
from headwater.errors import HeadwaterError
from headwater.meta import epochs, merged, relations, runs
from headwater.model import RelationInfo
from headwater.ownership.lease import Leases, acquire
from headwater.ownership.names import Name
from headwater.rundir import LOCK
from headwater.rundir.lock import owner
from support import power, upstreams
from support.based import decided_before
from support.lake import Lake, assert_equal, definitions
from support.power import Disk, Op, Record
from support.scan_files import scan_files
from support.wait import wait_for

ROWS = 300
POINTS, SOAK_POINTS = 20, 200  # moments at which the power is lost; as many again right after meta has committed
ROUNDS = 8
SOON = {"HEADWATER_SEGMENT_AGE_S": "1", "HEADWATER_BASE_FILES": "3"}  # upkeep is due as soon as a table is filled


class Powered:
    """A lake over a small table whose server is recorded, and whose power is lost."""

    def __init__(self, database: Any, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.seed = upstreams.new_seed()
        self.rng = random.Random(self.seed)
        self.recorder = power.compiled(folder)
        self.recording = folder / "recording"
        self.disk: Disk | None = None
        (folder / "home").mkdir()
        database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, note text)")
        database.execute(f"INSERT INTO t SELECT i, i % 10, 'x' FROM generate_series(1, {ROWS}) i")
        self.lake = Lake(folder / "home", definitions(database, ["t"]))

    def start(self, **settings: str) -> None:
        self.recording.unlink(missing_ok=True)
        self.disk = Disk(self.lake.home)
        self.lake.start(**SOON, **power.environment(self.recorder, self.lake.home, self.recording), **settings)
        self.lake.wait_live()

    def change(self, turn: int) -> None:
        for _ in range(4):
            residue, gone, new = self.rng.randrange(7), self.rng.randrange(ROWS), 1000 + self.rng.randrange(10**8)
            self.database.execute(f"UPDATE t SET n = n + 1, note = repeat('y', {turn}) WHERE id % 7 = {residue}")
            self.database.execute(f"DELETE FROM t WHERE id = {gone}")
            self.database.execute(f"INSERT INTO t VALUES ({new}, 1, 'new') ON CONFLICT DO NOTHING")

    def merges(self) -> bool:
        """Makes one more small segment; whether they have been merged."""
        self.database.execute("UPDATE t SET n = n + 1 WHERE id = 1")
        return bool(list((self.lake.home / "changelog").rglob("merged-*")))

    def kill(self) -> None:
        """kill -9 of the server; then of nothing else, but all of it ends."""
        assert self.lake.process is not None
        started = psutil.Process(self.lake.process.pid).children(recursive=True)
        self.lake.kill()
        psutil.wait_procs(started, 60)

    def lose_power(self, points: int) -> int:
        """Looks at what is left after losses at many moments, then leaves what one at the end does.

        Gives how many times meta relied on a file.
        """
        assert self.disk is not None
        found, lost = list(power.records(self.recording)), self.folder / "lost"
        committed = commits(found)
        chosen = {self.rng.randrange(len(found)) for _ in range(points)}
        chosen |= set(self.rng.sample(committed, min(points, len(committed))))
        checked = 0
        for number, record in enumerate(found):
            self.disk.apply(record)
            if number in chosen:
                self.disk.lose_power(self.rng, lost)
                checked += relied_on(lost, self.disk, f"seed {self.seed}, record {number} of {len(found)}")
        assert_recorded_whole(self.disk, self.lake.home)
        self.disk.lose_power(self.rng, lost)
        shutil.rmtree(self.lake.home)
        shutil.move(lost, self.lake.home)
        home = Home.open(self.lake.home)
        decided_before(home.meta)
        home.meta.close()
        return checked


@pytest.fixture
def powered(database: Any, tmp_path: Path) -> Iterator[Powered]:
    made = Powered(database, tmp_path)
    yield made
    if made.lake.process is not None and made.lake.process.poll() is None:
        made.lake.kill()


def test_after_a_power_loss_at_any_moment_all_that_meta_relies_on_is_there(powered: Powered) -> None:
    """A table is filled, folded and rewritten, runs are made, segments merged; then the power is lost."""
    lake = powered.lake
    powered.start(HEADWATER_REPLACED_BYTES="0")  # a fold that writes the base anew would mark no row
    for turn in range(1, 3):
        powered.change(turn)
        lake.remote().ask("FOLD TABLE t")
    wait_for(powered.merges, "segments are merged")
    wait_for(lambda: "rewritten relation=" in _said(lake), "the base is rewritten")
    powered.change(3)
    wait_for(lambda: list((lake.home / "runs").rglob("*.parquet")), "a run is made")
    powered.kill()
    assert list((lake.home / "warehouse").rglob("deletion_vector_*")), "a fold has marked rows"
    assert powered.lose_power(POINTS) > 200, "meta relied on something"
    lake.start(**SOON)
    lake.wait_live()
    assert_equal(lake.verify())
    lake.stop()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_home_that_loses_its_power_again_and_again_is_exact(powered: Powered) -> None:
    for turn in range(1, ROUNDS + 1):
        powered.start()
        assert_equal(powered.lake.verify())
        for _ in range(powered.rng.randrange(1, 5)):
            powered.change(turn)
        if powered.rng.random() < 0.8:
            threading.Thread(target=_fold, args=(powered.lake,), daemon=True).start()
        time.sleep(powered.rng.random() * 6)  # whatever is going on then is interrupted
        powered.kill()
        powered.lose_power(SOAK_POINTS)
    powered.start()
    assert_equal(powered.lake.verify())
    powered.lake.stop()


def _fold(lake: Lake) -> None:
    with contextlib.suppress(HeadwaterError, AssertionError):  # it is killed meanwhile
        lake.remote().ask("FOLD TABLE t")


def _said(lake: Lake) -> str:
    log = lake.home / "logs" / "server.log"
    return log.read_text(errors="replace") if log.exists() else ""


WRITES = """
import os, sys
from pathlib import Path
from headwater.rundir import usable_home
from headwater.storage import LocalStorage
home = Path(sys.argv[1])
usable_home(home)
with LocalStorage(home).create("new/folder/certain") as f:
    f.write(b"whole")
os.makedirs(home / "by/another")
(home / "by/another/certain").write_bytes(b"whole")
LocalStorage(home).sync(["by/another/certain"])
with open(home / "no_entry", "wb") as f:
    f.write(b"data that is synced under a name that is not")
    f.flush()
    os.fsync(f.fileno())
with open(home / "new/folder/certain_name", "wb") as f:
    f.write(b"a name that is synced and data that is not")
os.fsync(os.open(home / "new/folder", os.O_RDONLY))
os.rename(home / "new/folder/certain", home / "new/folder/renamed")
"""


def test_a_file_is_certain_once_its_data_and_all_names_that_lead_to_it_are_synced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    disk = Disk(home)
    settings = power.environment(power.compiled(tmp_path), home, tmp_path / "recording")
    subprocess.run([sys.executable, "-c", WRITES, str(home)], check=True, env={**os.environ, **settings})
    before: dict[str, bool] = {}
    for record in power.records(tmp_path / "recording"):
        if record.op is Op.RENAME:
            before = {path: disk.certain(path) for path in disk.files() if path != LOCK}
        disk.apply(record)
    assert before == {
        "new/folder/certain": True,
        "by/another/certain": True,
        "no_entry": False,
        "new/folder/certain_name": False,
    }
    assert not disk.certain("new/folder/renamed")
    assert_recorded_whole(disk, home)
    seen = set()
    for seed in range(50):
        disk.lose_power(random.Random(seed), tmp_path / "lost")
        seen.add(tuple(sorted(str(p.relative_to(tmp_path / "lost")) for p in (tmp_path / "lost").rglob("*"))))
        assert (tmp_path / "lost/by/another/certain").read_bytes() == b"whole"
        both = [tmp_path / "lost/new/folder" / name for name in ("certain", "renamed")]
        assert [p.read_bytes() for p in both if p.exists()] == [b"whole"], "a rename is done or not done"
    assert len(seen) > 2, "what is not certain is lost in some way"


def commits(found: list[Record]) -> list[int]:
    """Right after meta has committed: whatever it relies on must have been durable before."""
    wal: set[int] = {r.node for r in found if r.op is Op.CREATE and r.path == "meta.db-wal"}
    return [i for i, r in enumerate(found) if r.op is Op.SYNC and r.node in wal]


def assert_recorded_whole(disk: Disk, home: Path) -> None:
    """The recorder saw everything: replayed without a loss, the home is what it is."""
    there = {
        str(p.relative_to(home)): p
        for p in home.rglob("*")
        if p.is_file() and p.relative_to(home).parts[0] not in power.UNSEEN
    }
    replayed = disk.files()
    assert replayed.keys() == there.keys()
    assert [p for p, path in there.items() if path.read_bytes() != replayed[p]] == []


def relied_on(image: Path, disk: Disk, when: str) -> int:
    """Opens the home as a start after a power loss does, and checks all that meta names; gives the number of files."""
    if not (image / "meta.db").exists():
        return 0
    home = Home.open(image)
    try:
        with home.meta.read() as c:
            assert c.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok", when
        decided_before(home.meta)
        recover(home)
        with home.meta.read() as c:
            named = merged.paths(c) | runs.paths(c)
            known = [r for r in relations.all(c) if r.base_version >= 0]
            for r in known:
                named |= {f"{r.base_path}/{f}" for f in scan_files(c, r.id)}
                named |= files_of_base(home, r, {r.base_version, *epochs.base_versions(c, r.id)}, when)
        wrong = [p for p in named if not home.storage.exists(p) or (image / p).read_bytes() != disk.content(p)]
        assert not wrong, f"{when}: {sorted(wrong)}"
        return len(named)
    finally:
        home.meta.close()


def recover(home: Home) -> None:
    """What a start does before Spark runs."""
    with home.meta.write() as c:
        lease = acquire(c, Name.server(), owner(home.path), alone=True)
    assert lease is not None, "a start after a power loss waits for nobody"
    Committer(home, Leases(lease), NoSpark()).recover()


class NoSpark:
    """A recovery does without it."""

    def fold(self, *_: object) -> int:
        raise AssertionError("folded")

    def remove(self, *_: object) -> int:
        raise AssertionError("removed")


def files_of_base(home: Home, relation: RelationInfo, versions: set[int], when: str) -> set[str]:
    """The files of every version that meta names; another Delta reader opens them, and their deletion vectors."""
    found: set[str] = set()
    path = home.storage.address(relation.base_path)
    for version in sorted(versions):
        try:
            table = DeltaTable(path, version=version)
            found |= {f"{relation.base_path}/{Path(uri).name}" for uri in table.file_uris()}
            for batch in table.deletion_vectors():
                assert batch.num_rows
        except Exception as e:
            raise AssertionError(f"{when}: version {version} of {relation.base_path}: {e}") from e
    assert DeltaTable(path).version() >= relation.base_version, when
    return found
