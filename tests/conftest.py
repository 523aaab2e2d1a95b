"""Fixtures shared by all suites: one real PostgreSQL per run, a fresh database per test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from support.wait import wait_for

# Short sessions: compiling for peak speed would cost more than it gives back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_numbers = itertools.count(1)


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
    with EmbeddedPostgres(18) as server:
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
