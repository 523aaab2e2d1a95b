"""What a thread has Spark do: into how many tasks it is cut, in which pool it waits, and how it is ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from headwater.engine.query.queries import Running

T = TypeVar("T")
R = TypeVar("R")
DRIVER_THREADS = 2 * (os.cpu_count() or 2)  # of this machine, wherever the tasks run


def share(session: SparkSession) -> int:
    """How many tasks a query is cut into; scans together, and folds, get half of that.

    On a cluster it is as many as there are cores, and changes with them.
    """
    return max(1, int(session.sparkContext.defaultParallelism))


@contextmanager
def pool(session: SparkSession, name: str) -> Iterator[None]:
    """Jobs of this thread wait in the named scheduler pool."""
    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    try:
        yield
    finally:
        session.sparkContext.setLocalProperty("spark.scheduler.pool", "")


@contextmanager
def stoppable(session: SparkSession, query: Running) -> Iterator[None]:
    """What this thread has Spark do inside the block ends when the query is cancelled: its jobs, and planning, too."""
    context: Any = session.sparkContext
    java_thread = context._jvm.java.lang.Thread  # each Python thread has a thread of its own in the JVM
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
        java_thread.interrupted()  # the JVM's thread serves this Python thread again: a late interrupt is not for it
        context.setInterruptOnCancel(False)
        context.removeJobTag(query.tag)


def in_parallel(session: SparkSession, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """What `work` gives for each item, in order, made by several threads; their jobs belong to what this one does."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(DRIVER_THREADS, len(items)), thread_name_prefix="open") as threads:
        return list(threads.map(inheritable_thread_target(session)(work), items))


def plan(frame: DataFrame) -> DataFrame:
    """The frame with its plan made by this thread: PySpark would make it in one that nobody can interrupt."""
    frame._jdf.queryExecution().executedPlan()
    return frame


def task_settings(tasks: int) -> dict[str, str]:
    """Settings of a session whose work is cut into about so many tasks."""
    return {name: str(tasks) for name in ("spark.sql.shuffle.partitions", "spark.sql.files.maxPartitionNum")}
