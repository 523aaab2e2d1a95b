"""Fetches what only the benchmarks need: the PostgreSQL JDBC driver, through the Ivy inside PySpark."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.engine import spark

PACKAGE = "org.postgresql:postgresql:42.7.7"
JAR = "org.postgresql_postgresql-42.7.7.jar"


def main() -> int:
    target = spark.jars_directory().parent / "bench" / JAR
    if target.exists():
        return 0
    with tempfile.TemporaryDirectory(prefix="headwater-ivy-") as scratch:
        builder: Any = SparkSession.builder
        session = builder.master("local[1]").config("spark.jars.packages", PACKAGE).config("spark.jars.ivy", scratch)
        session.config("spark.ui.enabled", "false").getOrCreate().stop()
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(scratch) / "jars" / JAR, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
