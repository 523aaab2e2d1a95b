"""Fixtures shared by all suites: one real server of each kind per run, a fresh database per test."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from headwater.demo import embedded
from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from headwater.errors import MachineError
from support import needs, turns, versions
from support.mysql import EmbeddedMySQL, MyDatabase
from support.upstreams.postgres import drop_database

# Short sessions: compiling for peak speed would cost more than it gives back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m")

# Tests kill servers, never the machine, so what a server has written is safe before it is on disk.
embedded.DEFAULTS["fsync"] = "off"
EmbeddedServer.defaults.update(sync_binlog="0", innodb_flush_log_at_trx_commit="2")

# One profile for every property test: a busy machine is no failure, and each run tries other examples.
settings.register_profile("headwater", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("headwater")

_numbers = itertools.count(1)

NOT_TESTED = "MySQL was not tested"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-turn", action="store_true", help="run all tests that take turns")


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads the option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        given = getattr(config, "workerinput", {})
        config.option.hypothesis_seed = given.get("hypothesis_seed", random.randrange(1 << 32))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All workers have the seed that is printed."""
    node.workerinput["hypothesis_seed"] = node.config.option.hypothesis_seed


# The long ones first: what comes last fills up whichever worker is free.
TESTS = Path(__file__).parent
SUITES = ("integration", "faults", "docs", "values", "contract", "unit", "support", "versions")
OWN_PROCESSES = ("test_benches.py", "test_cluster.py", "test_commands.py")  # of tests/integration: they share no Spark

ALONE = ("faults/test_server.py",)  # each of its tests takes minutes, and they share nothing


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        needs.mark(item)
    if not config.option.every_turn:
        turns.take(items, config.option.hypothesis_seed)
    items.sort(key=lambda i: (SUITES.index(i.path.relative_to(TESTS).parts[0]), i.path.name in OWN_PROCESSES))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What one of several workers runs together: all tests of one of two Sparks, else a file, or a long test."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.split("::", 1)[0]
            shares_spark = "/integration/" in path and not path.endswith(OWN_PROCESSES)
            if path.endswith(ALONE):
                return nodeid
            if not shares_spark:
                return path
            # One Spark of all of them would be the longest chain of the run by far.
            return "spark of views" if "/integration/view/" in path else "spark"

    return Together(config, log)


@pytest.hookimpl(tryfirst=True)  # before its fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.begin(item)


@pytest.hookimpl(tryfirst=True)  # before its fixtures
def pytest_runtest_teardown() -> None:
    needs.end()


@pytest.fixture(scope="session", autouse=True)
def held_to_their_markers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        needs.hold(patch)
        yield


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
        _let_in_quickly(server)
        yield server


def _let_in_quickly(server: EmbeddedPostgres) -> None:
    """Stores the password so that checking it takes no time: tests connect thousands of times."""
    if server.version >= 16:  # older ones always hash it 4096 times
        with server.connect() as connection:
            connection.execute("SET scram_iterations = 1")
            connection.execute(f"ALTER USER {server.user} PASSWORD '{server.password}'")


@pytest.fixture
def database(pg: EmbeddedPostgres) -> Iterator[Database]:
    yield from _database(pg)


def _database(server: EmbeddedPostgres) -> Iterator[Database]:
    name = f"test_{next(_numbers)}"
    server.execute(f"CREATE DATABASE {name}")
    yield Database(server, name)
    drop_database(server, name)


@pytest.fixture(scope="session")
def pg16() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(16) as server:
        yield server


@pytest.fixture
def database16(pg16: EmbeddedPostgres) -> Iterator[Database]:
    yield from _database(pg16)


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
        f"repeat the property tests and turns with --hypothesis-seed={terminalreporter.config.option.hypothesis_seed}"
    )
    reasons = {r.longrepr[2] for r in terminalreporter.stats.get("skipped", []) if NOT_TESTED in str(r.longrepr)}
    for reason in sorted(reasons):
        terminalreporter.section("MySQL WAS NOT TESTED", sep="!", red=True, bold=True)
        terminalreporter.line(reason, red=True)
