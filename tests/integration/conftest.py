"""One Spark session for all integration tests: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headwater.engine import spark as engine_spark


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = engine_spark.start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
