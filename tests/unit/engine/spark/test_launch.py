"""A start of Spark can be cancelled at any moment, and then leaves no process behind."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import java_gateway

from headwater.engine.spark.launch import Launch
from headwater.errors import MachineError

NEVER_ENDS = ("sh", "-c", "sleep 1000 & wait")  # like Spark's start script: a shell that waits for its helper


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def launch_gateway() -> subprocess.Popen[bytes]:
    """Starts a process as PySpark does."""
    gateway: Any = java_gateway
    process: subprocess.Popen[bytes] = gateway.Popen(NEVER_ENDS, start_new_session=True)
    return process


def test_a_jvm_is_killed_before_it_answers(processes: list[subprocess.Popen[bytes]]) -> None:
    launch = Launch()
    with pytest.raises(MachineError, match="was cancelled"), launch.in_progress(), launch.noting_process():
        processes.append(launch_gateway())
        launch.cancel()
        assert processes[0].wait(60) == -signal.SIGKILL


def test_nothing_is_started_once_it_is_cancelled() -> None:
    launch = Launch()
    with pytest.raises(MachineError, match="was cancelled"), launch.in_progress(), launch.noting_process():
        launch.cancel()
        launch_gateway()
    with pytest.raises(MachineError, match="was cancelled"), launch.in_progress():
        pytest.fail("started again")


def test_a_jvm_that_has_started_is_left_alone(processes: list[subprocess.Popen[bytes]]) -> None:
    launch = Launch()
    with launch.in_progress(), launch.noting_process():
        processes.append(launch_gateway())
    launch.cancel()
    assert processes[0].poll() is None


def test_pyspark_starts_processes_as_before_afterwards() -> None:
    gateway: Any = java_gateway
    before = gateway.Popen
    with Launch().noting_process():
        assert gateway.Popen is not before
    assert gateway.Popen is before
