"""A session for tiny queries, which take longer to compile than to run; and a home with a running server per file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headwater.demo.embedded import EmbeddedPostgres
from support import shop as shops
from support.shop import Shop

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


@pytest.fixture(scope="module")
def shop(
    spark: SparkSession,
    pg: EmbeddedPostgres,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Shop]:
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    with shops.opened(spark, pg, tmp_path_factory.mktemp(name) / "home[1]", f"of_{name}") as made:
        yield made
