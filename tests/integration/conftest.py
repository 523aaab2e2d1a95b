"""One Spark session for all integration tests: it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from headwater.engine.spark import session as engine_spark


@dataclass(frozen=True)
class Started:
    """A session, and the names that its start added to the prepared environment."""

    session: SparkSession
    added: set[str]


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    engine_spark.prepare_environment()
    before = set(os.environ)
    session = engine_spark.start(tmp_path_factory.mktemp("spark"))
    yield Started(session, set(os.environ) - before)
    session.stop()


@pytest.fixture(scope="session")
def spark(started: Started) -> SparkSession:
    return started.session
