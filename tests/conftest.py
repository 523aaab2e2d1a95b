"""Fixtures shared by all suites: one real server of each kind per run, a fresh database per test."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from hypothesis import settings

from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from headwater.errors import MachineError
from support import versions
from support.mysql import EmbeddedMySQL, MyDatabase
from support.wait import wait_for

# Short sessions: compiling for peak speed would cost more than it gives back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# One profile for every property test: a busy machine is no failure, and each run tries other examples.
settings.register_profile("headwater", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("headwater")

_numbers = itertools.count(1)

NOT_TESTED = "MySQL was not tested"


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads the option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = random.randrange(1 << 32)


# The long ones first: what comes last fills up whichever worker is free.
SUITES = ("integration", "faults", "docs", "values", "contract", "unit", "versions")
OWN_PROCESSES = ("test_benches.py", "test_cluster.py", "test_commands.py")  # of tests/integration: they share no Spark


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda i: (SUITES.index(i.path.parent.name), i.path.name in OWN_PROCESSES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What one of several workers (`make test` has two) runs together: all tests of one Spark, else those of a file."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::", 1)[0]
            shares_spark = "/integration/" in path and not path.endswith(OWN_PROCESSES)
            return "spark" if shares_spark else path

    return Together(config, log)


@dataclass(frozen=True)
class Database:
    """A fresh database on the shared server."""

    server: EmbeddedPostgres
    name: str

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def connect(self, **options: Any) -> Any:
        return self.server.connect(self.name, **options)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)


@pytest.fixture(scope="session")
def pg() -> Iterator[EmbeddedPostgres]:
    with versions.chosen("postgres") or EmbeddedPostgres(18) as server:
        yield server


@pytest.fixture
def database(pg: EmbeddedPostgres) -> Iterator[Database]:
    name = f"test_{next(_numbers)}"
    pg.execute(f"CREATE DATABASE {name}")
    yield Database(pg, name)
    for (slot,) in pg.execute(f"SELECT slot_name FROM pg_replication_slots WHERE database = '{name}'"):
        pg.execute(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{slot}'")
        _drop_slot(pg, slot)
    pg.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _drop_slot(pg: EmbeddedPostgres, slot: str) -> None:
    def dropped() -> bool:
        try:
            pg.execute(f"SELECT pg_drop_replication_slot('{slot}')")
        except psycopg.errors.UndefinedObject:
            return True
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_for(dropped, f"slot {slot} is free", 20)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[EmbeddedMariaDB]:
    with versions.chosen("mariadb") or EmbeddedMariaDB() as server:
        yield server


@pytest.fixture(scope="session")
def mysql() -> Iterator[EmbeddedMySQL]:
    try:
        EmbeddedMySQL.find()
    except MachineError as e:
        if os.environ.get("HEADWATER_REQUIRE_MYSQL"):
            pytest.fail(f"MySQL must be tested here: {e.message}. {e.hint}")
        pytest.skip(f"{NOT_TESTED}: {e.message}. {e.hint}")
    with versions.chosen("mysql") or EmbeddedMySQL() as server:
        yield server


@pytest.fixture(params=["mariadb", "mysql"])
def my_server(request: pytest.FixtureRequest) -> EmbeddedServer:
    """MariaDB, then MySQL."""
    server: EmbeddedServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def my_database(my_server: EmbeddedServer) -> Iterator[MyDatabase]:
    """A fresh database on MariaDB, then one on MySQL."""
    yield from _my_database(my_server)


@pytest.fixture
def mariadb_database(mariadb: EmbeddedMariaDB) -> Iterator[MyDatabase]:
    yield from _my_database(mariadb)


@pytest.fixture
def mysql_database(mysql: EmbeddedMySQL) -> Iterator[MyDatabase]:
    yield from _my_database(mysql)


def _my_database(server: EmbeddedServer) -> Iterator[MyDatabase]:
    name = f"test_{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    yield MyDatabase(server, name)
    server.execute(f"DROP DATABASE IF EXISTS {name}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A server that could not run must not go unnoticed among other skips; a run's choices can be repeated."""
    terminalreporter.line(
        f"repeat the property tests with --hypothesis-seed={terminalreporter.config.option.hypothesis_seed}"
    )
    reasons = {r.longrepr[2] for r in terminalreporter.stats.get("skipped", []) if NOT_TESTED in str(r.longrepr)}
    for reason in sorted(reasons):
        terminalreporter.section("MySQL WAS NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(reason, red=True)
