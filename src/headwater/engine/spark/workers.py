"""Spark's Python workers, forked from a process that has already imported what scans need.

Importing takes three seconds of CPU time before a worker's first row, and Spark stops idle workers after a minute. Set
as the session's `spark.python.daemon.module`; a user's own session works without it.
"""

from __future__ import annotations

import pandas  # noqa: F401  PySpark loads it with the first batch
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import headwater.backfill.read_span
import headwater.source.kinds  # noqa: F401
from headwater.decode import dialects

dialects.load()

if __name__ == "__main__":
    manager()
