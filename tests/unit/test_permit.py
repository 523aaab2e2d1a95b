"""A task of an earlier server never writes after a later one has begun, and a later one waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.engine.permit import hand_over
from headwater.errors import FencedError, MachineError

TASK = """
import sys
from headwater.engine.permit import Permit
with Permit(sys.argv[1], int(sys.argv[2])).used():
    print("writes", flush=True)
    sys.stdin.readline()
"""


def start_task(root: Path, fence: int) -> subprocess.Popen[str]:
    """A process that uses a permit until its stdin closes."""
    task = subprocess.Popen(
        [sys.executable, "-c", TASK, str(root), str(fence)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert task.stdout is not None and task.stdout.readline() == "writes\n"
    return task


def test_tasks_of_one_server_write_side_by_side(tmp_path: Path) -> None:
    permit = hand_over(tmp_path, 1)
    with permit.used(), permit.used():
        pass


def test_a_task_of_an_earlier_server_does_not_begin(tmp_path: Path) -> None:
    earlier = hand_over(tmp_path, 9)
    later = hand_over(tmp_path, 10)
    with pytest.raises(FencedError), earlier.used():
        raise AssertionError("it must not begin")
    with later.used():
        pass


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_a_later_server_waits_until_a_task_of_an_earlier_one(end: str, tmp_path: Path) -> None:
    hand_over(tmp_path, 1)
    task = start_task(tmp_path, 1)
    later = threading.Thread(target=hand_over, args=(tmp_path, 2))
    later.start()
    later.join(0.2)
    assert later.is_alive()
    task.kill() if end == "is killed" else task.communicate("")
    later.join(30)
    assert not later.is_alive()
    task.communicate()


def test_a_task_that_does_not_end_is_named(tmp_path: Path) -> None:
    hand_over(tmp_path, 1)
    task = start_task(tmp_path, 1)
    with pytest.raises(MachineError) as e:
        hand_over(tmp_path, 2, timeout_s=0.1)
    assert f"kill -9 {task.pid}" in e.value.hint
    task.communicate("")
