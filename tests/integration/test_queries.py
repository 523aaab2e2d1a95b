"""A query that nobody waits for any more ends in Spark, whoever ends it, and one query does not hold up another."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.engine.serve import remote
from headwater.errors import HeadwaterError
from support.lake import HEADWATER
from support.wait import wait_for

# Hours of work, in which a task looks every thousand rows whether it was cancelled. In a product of two ranges it would
# go on for minutes, and take the cores from whatever comes next.
HEAVY = "SELECT count(*) FROM range(100000000000000)"


@pytest.fixture(scope="module")
def hw(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headwater.open(tmp_path_factory.mktemp("queries") / "home", spark=spark) as home, home.running():
        home.sql("SELECT 1")
        yield home


class Asked:
    """A statement in a thread of its own, with what became of it."""

    def __init__(self, engine: Any, text: str) -> None:
        self.error: BaseException | None = None
        self._ask = lambda: engine.ask(text)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._ask()
        except HeadwaterError as e:
            self.error = e

    def code(self) -> str:
        self.thread.join(120)
        assert not self.thread.is_alive() and isinstance(self.error, HeadwaterError)
        return self.error.code


def listed(hw: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hw.sql("SHOW QUERIES")[0].rows.to_pylist()
    return found


def running_jobs(session: SparkSession) -> int:
    return len(session.sparkContext.statusTracker().getActiveJobsIds())


def running_tasks(session: SparkSession) -> int:
    """Also of jobs that were cancelled: a task ends by itself."""
    tracker: Any = session.sparkContext._jsc.sc().statusTracker()
    return sum(executor.numRunningTasks() for executor in tracker.getExecutorInfos())


def wait_busy(hw: Any, spark: SparkSession, queries: int = 1) -> None:
    wait_for(lambda: len(listed(hw)) == queries and running_jobs(spark) >= queries, "Spark works at the query")


def wait_idle(hw: Any, spark: SparkSession) -> None:
    wait_for(lambda: not listed(hw) and not running_jobs(spark), "Spark has nothing of the query", 60.0)
    wait_for(lambda: not running_tasks(spark), "no task is left", 60.0)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL], ids=lambda s: s.name)
def test_a_command_that_is_interrupted_or_killed_takes_its_query_with_it(
    hw: Any, spark: SparkSession, by: signal.Signals
) -> None:
    command = subprocess.Popen(
        [HEADWATER, "sql", "--home", str(hw.home), "-c", HEAVY], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_busy(hw, spark)
    (shown,) = listed(hw)
    assert f"(process {command.pid})" in shown["client"] and (shown["query"], shown["state"]) == (HEAVY, "running")
    command.send_signal(by)
    command.communicate(timeout=60)
    assert command.returncode == (130 if by is signal.SIGINT else -by)
    wait_idle(hw, spark)


def test_cancel_query_ends_it_and_its_caller_is_told(hw: Any, spark: SparkSession) -> None:
    server = remote.find(hw.home)
    asked = Asked(server, HEAVY)
    wait_busy(hw, spark)
    (shown,) = listed(hw)
    assert server is not None
    assert server.ask(f"CANCEL QUERY {shown['id']}")[0].message == f"query {shown['id']} cancelled"
    assert asked.code() == "query.cancelled"
    wait_idle(hw, spark)
    with pytest.raises(HeadwaterError, match="no query") as e:
        hw.sql(f"CANCEL QUERY {shown['id']}")
    assert e.value.code == "name.unknown"


def test_a_query_that_outlives_its_timeout_is_cancelled(hw: Any, spark: SparkSession) -> None:
    command = subprocess.run(
        [HEADWATER, "sql", "--home", str(hw.home), "--timeout", "1s", "-c", HEAVY], capture_output=True, text=True
    )
    assert command.returncode == 1 and "query.timeout" in command.stderr and "longer than 1 s" in command.stderr
    wait_idle(hw, spark)
    with pytest.raises(HeadwaterError) as e:
        hw.sql(HEAVY, timeout_s=0.5)
    assert e.value.code == "query.timeout"
    wait_idle(hw, spark)


def test_ctrl_c_in_a_program_cancels_its_query_and_the_next_one_works(hw: Any, spark: SparkSession) -> None:
    def interrupt() -> None:
        wait_busy(hw, spark)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own would cancel every job there is
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            hw.sql(HEAVY)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_idle(hw, spark)
    assert hw.sql("SELECT count(*) AS n FROM range(10)")[0].rows.to_pylist() == [{"n": 10}]


def test_a_short_query_is_answered_while_heavy_ones_run(hw: Any, spark: SparkSession) -> None:
    heavy = [Asked(hw, HEAVY) for _ in range(2)]
    wait_busy(hw, spark, 2)
    short = Asked(hw, "SELECT count(*) AS n FROM range(100000) GROUP BY id % 7")
    short.thread.join(120)
    assert not short.thread.is_alive() and short.error is None
    assert len(listed(hw)) == 2, "the heavy ones go on"
    for query in listed(hw):
        hw.sql(f"CANCEL QUERY {query['id']}")
    assert [h.code() for h in heavy] == ["query.cancelled"] * 2
    wait_idle(hw, spark)


def test_the_server_s_end_cancels_what_runs(spark: SparkSession, tmp_path: Path) -> None:
    with headwater.open(tmp_path / "home", spark=spark) as home:
        with home.running():
            asked = Asked(remote.find(home.home), HEAVY)
            wait_busy(home, spark)
        assert asked.code() == "query.cancelled"
        assert running_jobs(spark) == 0
        wait_for(lambda: not running_tasks(spark), "no task is left", 60.0)
