"""Downloads what only the benchmarks need: JDBC drivers, through the Ivy inside PySpark."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.engine.spark import machine

PACKAGES = {  # by Ivy's name for the jar
    "org.postgresql_postgresql-42.7.7.jar": "org.postgresql:postgresql:42.7.7",
    "com.mysql_mysql-connector-j-9.7.0.jar": "com.mysql:mysql-connector-j:9.7.0",
}


def main() -> int:
    folder = machine.jars_directory().parent / "bench"
    missing = [jar for jar in PACKAGES if not (folder / jar).exists()]
    if not missing:
        return 0
    packages = ",".join(PACKAGES[jar] for jar in missing)
    with tempfile.TemporaryDirectory(prefix="headwater-ivy-") as scratch:
        builder: Any = SparkSession.builder
        session = builder.master("local[1]").config("spark.jars.packages", packages).config("spark.jars.ivy", scratch)
        session.config("spark.ui.enabled", "false").getOrCreate().stop()
        folder.mkdir(parents=True, exist_ok=True)
        for jar in missing:
            shutil.copy(Path(scratch) / "jars" / jar, folder / jar)
    return 0


if __name__ == "__main__":
    sys.exit(main())
