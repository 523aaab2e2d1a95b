"""What every storage of a lake keeps: the suite of the seam `storage.base.Storage`, over each implementation."""

from __future__ import annotations

import errno
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater.errors import MachineError, Retry
from headwater.storage import LocalStorage, Storage

Make = Callable[[Path], Storage]


@pytest.fixture(params=[LocalStorage], ids=["local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    make: Make = request.param
    return make(tmp_path / "lake")


def put(storage: Storage, path: str, data: bytes = b"data") -> None:
    with storage.create(path) as file:
        file.write(data)


def test_a_created_file_is_read_whole_and_in_ranges(storage: Storage) -> None:
    put(storage, "a/b/file", b"0123456789")
    assert storage.read("a/b/file") == b"0123456789"
    assert storage.read("a/b/file", 3) == b"3456789"
    assert storage.read("a/b/file", 3, 4) == b"3456"
    with storage.open("a/b/file") as file:
        assert (file.size(), bytes(file.read_at(2, 8))) == (10, b"89")


def test_a_file_that_exists_is_never_written_over(storage: Storage) -> None:
    put(storage, "a", b"first")
    for begin in (storage.create, storage.write):
        with pytest.raises(FileExistsError), begin("a") as file:
            file.write(b"second")
    assert storage.read("a") == b"first"


@pytest.mark.parametrize("way", ["create", "write"])
def test_a_file_whose_writer_failed_is_not_there(storage: Storage, way: str) -> None:
    with pytest.raises(RuntimeError, match="half"), getattr(storage, way)("a") as file:
        file.write(b"half")
        raise RuntimeError("half")
    assert storage.stat("a") is None and list(storage.list("")) == []
    put(storage, "a", b"again")
    assert storage.read("a") == b"again"


def test_a_file_that_there_is_no_space_for_is_not_there_and_its_writer_may_retry(storage: Storage) -> None:
    with pytest.raises(MachineError) as e, storage.create("a") as file:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (e.value.code, e.value.retry) == ("home.disk_full", Retry.AUTO)
    assert storage.stat("a") is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_storage_that_is_full_says_so_whatever_its_limit_is(storage: Storage, number: int) -> None:
    with pytest.raises(MachineError) as e, storage.create("a") as file:
        file.write(b"half")
        raise OSError(number, "full")
    assert e.value.code == "home.disk_full" and storage.stat("a") is None
    with pytest.raises(OSError, match="broken"), storage.create("a") as file:
        raise OSError(errno.EIO, "broken")


def test_of_two_writers_of_one_name_one_wins_and_the_other_is_told(storage: Storage) -> None:
    won = []
    with storage.create("a") as file:
        file.write(b"1")
        try:
            put(storage, "a", b"2")
            won.append(b"2")
        except FileExistsError:
            won.append(b"1")
    assert storage.read("a") == won[0]


def test_what_is_not_there_is_reported(storage: Storage) -> None:
    assert storage.stat("nothing") is None and not storage.exists("nothing")
    assert list(storage.list("nothing")) == [] and list(storage.folders("nothing")) == []
    storage.remove(["nothing", "no/thing"])
    storage.remove_folder("nothing")
    with pytest.raises(FileNotFoundError):
        storage.open("nothing")
    with pytest.raises(FileNotFoundError):
        storage.size("nothing")
    with pytest.raises(FileNotFoundError):
        storage.sync(["nothing"])


def test_files_are_listed_by_folder_in_order(storage: Storage) -> None:
    names = ["log/1/b", "log/1/a", "log/2/c", "logs/d"]
    for name in names:
        put(storage, name)
    assert list(storage.list("log")) == ["log/1/a", "log/1/b", "log/2/c"]
    assert list(storage.list("log/1")) == ["log/1/a", "log/1/b"]
    assert list(storage.folders("log")) == ["1", "2"]


def test_files_may_go_while_they_are_listed(storage: Storage) -> None:
    for i in range(20):
        put(storage, f"f/{i:02}")
    seen = []
    for path in storage.list("f"):
        seen.append(path)
        storage.remove([path])
    assert len(seen) == 20 and list(storage.list("f")) == []


def test_many_files_go_at_once_and_a_folder_goes_whole(storage: Storage) -> None:
    for name in ("f/1", "f/2", "f/deep/3", "g/4"):
        put(storage, name)
    storage.remove(name for name in ("f/2", "f/2", "f/1"))
    assert list(storage.list("f")) == ["f/deep/3"]
    storage.remove_folder("f")
    assert list(storage.list("f")) == [] and storage.exists("g/4")
    put(storage, "f/deep/3", b"new")
    assert storage.read("f/deep/3") == b"new"


def test_size_and_time_are_known(storage: Storage) -> None:
    put(storage, "a", b"12345")
    put(storage, "b")
    a, b = storage.stat("a"), storage.stat("b")
    assert a is not None and b is not None
    assert a.size == storage.size("a") == 5 and 0 < a.modified_at <= b.modified_at


def test_a_storage_travels_to_another_process(storage: Storage) -> None:
    put(storage, "a", b"from here")
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer).read('a').decode())"
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(storage), capture_output=True, check=True)
    assert done.stdout == b"from here\n"


KILLED = """
import os, pickle, signal, sys
storage = pickle.load(sys.stdin.buffer)
with storage.create("log/whole") as file:
    file.write(b"whole")
with storage.create("log/half") as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_created_is_there_after_a_kill_of_its_writer(storage: Storage) -> None:
    """A file that was not finished is a stray: it was never published, and its name is not used again."""
    done = subprocess.run([sys.executable, "-c", KILLED], input=pickle.dumps(storage), check=False)
    assert done.returncode == -signal.SIGKILL
    assert storage.read("log/whole") == b"whole"
    assert set(storage.list("log")) <= {"log/whole", "log/half"}
    storage.remove(["log/half"])
    assert list(storage.list("log")) == ["log/whole"]


def test_delta_reads_and_writes_at_its_addresses(storage: Storage) -> None:
    rows = pa.table({"id": [1, 2, 3]})
    write_deltalake(storage.address("base/1"), rows, storage_options=storage.options or None)
    written = list(storage.list("base/1"))
    storage.sync(written)
    storage.sync_folder("base/1/_delta_log")
    assert any(p.endswith(".parquet") for p in written)
    again = DeltaTable(storage.address("base/1"), storage_options=storage.options or None)
    assert again.to_pyarrow_table().num_rows == 3


def test_within_one_life_its_name_stays(storage: Storage) -> None:
    assert storage.life() == storage.life() != ""
