"""The tests' own markers: a test that has none can neither start a server or Spark nor use one that already runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkContext

from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.demo.process import ServerProcess
from headwater.engine.spark import session
from support.lake import Lake
from support.mysql import EmbeddedMySQL

SERVERS = [EmbeddedPostgres, EmbeddedMariaDB, EmbeddedMySQL]


@pytest.fixture(params=range(len(SERVERS)), ids=["first", "second", "third"])  # a class would be a marker
def server(request: pytest.FixtureRequest) -> ServerProcess:
    """One that looks as if an earlier test had started it."""
    kind: type[ServerProcess] = SERVERS[request.param]
    return object.__new__(kind)


@pytest.mark.parametrize("way", ["start", "connect"])
def test_a_test_without_the_marker_of_a_server_cannot_reach_one(server: ServerProcess, way: str) -> None:
    with pytest.raises(AssertionError, match="is not marked so"):
        getattr(server, way)()


def test_a_test_without_the_marker_of_spark_cannot_reach_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())  # as if an earlier test had started it
    ways: list[Callable[[], object]] = [
        Lake(tmp_path / "home", "").start,
        session.launch_gateway,  # type: ignore[attr-defined]
        lambda: session.start(tmp_path),
        lambda: session.check_session(object()),  # type: ignore[arg-type]
    ]
    for reach in ways:
        with pytest.raises(AssertionError, match="is not marked so"):
            reach()
