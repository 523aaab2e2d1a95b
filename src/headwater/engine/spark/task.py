"""Runs one Python function as one Spark task, in its own job; results and errors come back as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.engine.spark import jobs
from headwater.engine.spark import session as spark
from headwater.errors import HeadwaterError, restored


def run_task(session: SparkSession, pool: str, work: Callable[[], str]) -> str:
    """Runs `work` in a Spark worker and returns its result; a HeadwaterError raised there is raised here."""

    def in_worker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        try:
            answer: dict[str, Any] = {"value": work()}
        except HeadwaterError as e:
            answer = {"error": e.stored()}
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    try:
        with jobs.pool(session, pool):
            frame = session.range(0, 1, 1, 1).mapInArrow(in_worker, "answer string")
            (row,) = frame.collect()
    except (PySparkException, Py4JError) as e:  # a worker that was killed, or Spark itself
        raise spark.describe_failure(e, "Wait; Headwater retries.") from e
    answer = json.loads(row["answer"])
    if "error" in answer:
        raise restored(answer["error"])
    return str(answer["value"])
