"""What a test needs, as markers: given by its fixtures and parameters where these tell, and held while it runs.

    pytest -m "not spark"          # all that runs without a JVM
    pytest -m "mariadb"            # all that asks a MariaDB something

A test that starts or uses a server or Spark without saying so fails, whoever started it, so that the markers can be
relied on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.process import ServerProcess
from headwater.demo.server import EmbeddedServer
from headwater.engine.spark import session as spark_session
from support.lake import Lake
from support.upstreams import Upstream

TESTS = Path(__file__).parents[1]
SPARK, POSTGRES, MARIADB, MYSQL = "spark", "postgres", "mariadb", "mysql"
FIXTURES = {
    SPARK: {"spark", "started", "lake", "powered"},
    POSTGRES: {"pg", "database", "pg16", "database16"},
    MARIADB: {"mariadb", "mariadb_database", "hanging_mariadb"},
    MYSQL: {"mysql", "mysql_database"},
}
FOLDERS = {"contract/source/postgres": POSTGRES}
SERVERS = {"postgresql": POSTGRES, "mariadb": MARIADB, "mysql": MYSQL}

_running: pytest.Item | None = None


def mark(item: pytest.Item) -> None:
    """Adds what follows from a test's fixtures and parameters."""
    names = set(getattr(item, "fixturenames", ()))
    found = {marker for marker, fixtures in FIXTURES.items() if fixtures & names}
    found |= {marker for folder, marker in FOLDERS.items() if item.path.parent.as_posix().endswith(folder)}
    callspec = getattr(item, "callspec", None)
    found.update(of_parameters(callspec.params.values() if callspec else ()))
    if "unit" in item.path.relative_to(TESTS).parts:
        found.discard(SPARK)  # there a `lake` is a home without a server; whoever starts Spark there fails
    for marker in sorted(found):
        item.add_marker(marker)
    if "faults" in item.path.relative_to(TESTS).parts and item.get_closest_marker(SPARK):
        item.add_marker("crash")


def of_parameters(values: Iterable[Any]) -> set[str]:
    """Kinds of databases among parameters: a class, several of which one is chosen, or a name."""
    found = set()
    for value in values:
        if isinstance(value, tuple):
            found |= of_parameters(value)
        elif isinstance(value, type) and issubclass(value, Upstream):
            found.add(value.marker)
        elif isinstance(value, type) and issubclass(value, ServerProcess):
            found.add(SERVERS[value.name.lower()])
        elif isinstance(value, str) and value in SERVERS.values():
            found.add(value)
    return found


def hold(patch: pytest.MonkeyPatch) -> None:
    """Lets nobody start or use what the test that runs has no marker for."""

    def held(owner: Any, name: str, marker: str = "", when: Callable[[], bool] = lambda: True) -> None:
        wrapped = getattr(owner, name)

        def checked(*given: Any, **named: Any) -> Any:
            if when():
                expect(marker or SERVERS[given[0].name.lower()])
            return wrapped(*given, **named)

        patch.setattr(owner, name, checked)

    held(ServerProcess, "start")
    for kind in (EmbeddedPostgres, EmbeddedServer):
        held(kind, "connect")  # also to a server that an earlier test has started
    held(spark_session, "launch_gateway", SPARK)
    # a JVM runs already; a test may have put another context in the place of PySpark's
    held(spark_session, "start", SPARK, when=lambda: spark_session.SparkContext._gateway is not None)
    held(spark_session, "check_session", SPARK)
    held(Lake, "start", SPARK)


def expect(marker: str) -> None:
    assert _running is None or _running.get_closest_marker(marker), (
        f"{_running.nodeid} needs {marker} and is not marked so: add @pytest.mark.{marker}"
    )


def begin(item: pytest.Item) -> None:
    """What is started from now on is for this test, and for those that share its fixtures."""
    global _running
    _running = item


def end() -> None:
    """What a shared fixture does at its end is nobody's."""
    global _running
    _running = None
