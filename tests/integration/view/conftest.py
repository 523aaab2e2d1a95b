"""A session for tiny queries: compiling them and planning them twice takes longer than running them."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.fixture(scope="session")
def quick(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    for name, value in QUICK.items():
        session.conf.set(name, value)
    return session
