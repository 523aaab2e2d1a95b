"""One server of a machine on a run directory, and none of what it left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.errors import MachineError
from headwater.rundir import LOCK, lock
from headwater.rundir.files import NAME
from headwater.rundir.lock import ServerLock, owner

WAITS = "print(flush=True); input()  # headwater"  # a process that looks like one of ours


@pytest.fixture
def left(tmp_path: Path) -> subprocess.Popen[str]:
    """What a killed server has left running: its JVM, say."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", WAITS], **pipes)  # type: ignore[call-overload]
    process.stdout.readline()  # until then its command line may still be empty
    (tmp_path / LOCK).write_text(json.dumps([1 << 30, process.pid]))
    return process  # type: ignore[no-any-return]


def test_a_second_server_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    first = ServerLock(tmp_path)
    first.take()
    with pytest.raises(MachineError) as e:
        ServerLock(tmp_path).take()
    assert e.value.code == "home.locked" and f"process {os.getpid()}" in e.value.message
    first.release()
    again = ServerLock(tmp_path)
    again.take()
    again.release()


def test_what_an_earlier_server_left_running_is_waited_for(tmp_path: Path, left: subprocess.Popen[str]) -> None:
    """It may be about to commit, and on a local disk Spark and delta-rs can overwrite each other's commit."""
    taken = ServerLock(tmp_path)
    taking = threading.Thread(target=taken.take)
    taking.start()
    taking.join(0.3)
    assert taking.is_alive()
    assert left.pid in json.loads((tmp_path / LOCK).read_text()), "known to the next one, too, if this one dies"
    left.communicate("\n")
    taking.join(30)
    assert not taking.is_alive()
    taken.release()


def test_what_does_not_end_is_named(
    tmp_path: Path, left: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "GONE_S", 0.1)
    with pytest.raises(MachineError) as e:
        ServerLock(tmp_path).take()
    assert f"kill -9 {left.pid}" in e.value.hint
    left.communicate("\n")


def test_a_process_of_somebody_else_that_has_the_same_id_is_not_waited_for(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "60"])
    (tmp_path / LOCK).write_text(json.dumps([other.pid]))
    taken = ServerLock(tmp_path)
    taken.take()
    taken.release()
    other.kill()
    other.wait(30)


def test_a_server_that_has_the_id_of_an_earlier_one_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every server may have the same id."""
    monkeypatch.setattr(lock, "GONE_S", 0.1)
    monkeypatch.setattr(lock, "_is_ours", lambda pid: True)
    (tmp_path / LOCK).write_text(json.dumps([os.getpid()]))
    taken = ServerLock(tmp_path)
    taken.take()
    taken.release()


def test_a_directory_keeps_its_name_whatever_the_machine_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = owner(tmp_path)
    monkeypatch.setattr(lock.socket, "gethostname", lambda: "another")
    assert (owner(tmp_path).run_directory, owner(tmp_path).process) == (first.run_directory, f"another:{os.getpid()}")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == [NAME]


def test_all_who_ask_at_once_get_the_same_name_and_one_that_was_lost_is_made_again(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()  # what a power loss may leave
    places: list[str] = []
    threads = [threading.Thread(target=lambda: places.append(owner(tmp_path).run_directory)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(places) == 8 and len(set(places)) == 1 and places[0]
    assert list((tmp_path / "tmp").iterdir()) == []
