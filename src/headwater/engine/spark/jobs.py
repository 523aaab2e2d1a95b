"""A thread's work in Spark: how many tasks it is split into, its scheduler pool, and its cancellation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from headwater.engine.running import Running

T = TypeVar("T")
R = TypeVar("R")
DRIVER_THREADS = 2 * (os.cpu_count() or 2)  # of this machine, wherever the tasks run


def share(session: SparkSession) -> int:
    """How many tasks a query is split into; all scans together get half of that, and so do folds.

    On a cluster it is the number of cores, and changes with it.
    """
    return max(1, int(session.sparkContext.defaultParallelism))


@contextmanager
def pool(session: SparkSession, name: str) -> Iterator[None]:
    """Runs this thread's jobs in the named scheduler pool."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "")


@contextmanager
def stoppable(session: SparkSession, query: Running) -> Iterator[None]:
    """Cancels this thread's Spark work inside the block with the query: its jobs, and planning, too."""
    context: Any = session.sparkContext
    java_thread = context._jvm.java.lang.Thread  # each Python thread has its own thread in the JVM
    planner = java_thread.currentThread()

    def stop() -> None:
        context.cancelJobsWithTag(query.tag)
        planner.interrupt()

    context.addJobTag(query.tag)
    context.setInterruptOnCancel(True)
    query.stop_with(stop)
    try:
        query.check()
        yield
    finally:
        query.stop_with(None)
        java_thread.interrupted()  # clears a late interrupt: this Python thread will use the same JVM thread again
        context.setInterruptOnCancel(False)
        context.removeJobTag(query.tag)


def in_parallel(session: SparkSession, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results of `work` for each item, in order, from several threads that inherit this one's job properties."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(DRIVER_THREADS, len(items)), thread_name_prefix="open") as threads:
        return list(threads.map(inheritable_thread_target(session)(work), items))


def plan(frame: DataFrame) -> DataFrame:
    """The frame, planned by this thread: PySpark would plan it in one that cannot be interrupted."""
    frame._jdf.queryExecution().executedPlan()
    return frame


def task_settings(tasks: int) -> dict[str, str]:
    """Session settings that split work into approximately this many tasks."""
    return {name: str(tasks) for name in ("spark.sql.shuffle.partitions", "spark.sql.files.maxPartitionNum")}
