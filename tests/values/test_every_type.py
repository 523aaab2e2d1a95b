"""Every type of the type table, with its nastiest values: the same from a scan and from the log."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from support.type_cases import CASES, NOT_KEPT, SETUP
from support.values import Log, columns_of, scan

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """A database of a server that is not the shared one."""

    server: EmbeddedPostgres
    name: str

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)


@pytest.fixture(scope="module")
def old_server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(16) as server:
        yield server


@pytest.fixture(params=[16, 18])
def typed(request: pytest.FixtureRequest) -> Any:
    if request.param == 18:
        database = request.getfixturevalue("database")
    else:
        database = Database(request.getfixturevalue("old_server"), f"on16_{next(_numbers)}")
        database.server.execute(f"CREATE DATABASE {database.name}")
    database.execute(SETUP)
    names = {t: f"c{i}" for i, t in enumerate(CASES)}
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{names[t]} {t}' for t in CASES)})")
    log = Log(database, "t")
    for row in range(1 + max(len(v) for _, v in CASES.values())):
        values = {names[t]: v[row][0] for t, (_, v) in CASES.items() if row < len(v)}
        places, literals = ", ".join(["id", *values]), ", ".join([str(row), *values.values()])
        database.execute(f"INSERT INTO t ({places}) VALUES ({literals})")
    yield database, names, log
    log.close()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and bool(a == b)


def test_every_type_gives_its_documented_value_from_scan_and_log(typed: Any) -> None:
    database, names, log = typed
    columns = columns_of(database, "t")
    scanned, lost_by_scan = scan(database, "t", columns, "id")
    changes = log.changes(columns, ("id",))
    by_name = {c.name: c for c in columns}
    wrong = []
    for type_, (lake, values) in CASES.items():
        name = names[type_]
        if by_name[name].lake_type != lake:
            wrong.append((type_, by_name[name].lake_type))
        expected = [v for _, v in values] + [None] * (scanned.num_rows - len(values))
        for way, table in (("scan", scanned), ("log", changes.table)):
            got = table.column(name).to_pylist()
            wrong += [
                (way, type_, literal, g)
                for g, e, literal in zip(got, expected, [*[v for v, _ in values], *["NULL"] * 99], strict=False)
                if not same(g, e)
            ]
    assert not wrong
    unrepresentable = {names[t]: n for t, (_, vs) in CASES.items() if (n := sum(v is NOT_KEPT for _, v in vs))}
    assert lost_by_scan == unrepresentable
    assert changes.unrepresentable == unrepresentable
    assert scanned.schema == pa.schema(list(changes.table.schema)[: len(columns)])


def test_every_type_may_be_declared_string_and_keeps_the_databases_text(typed: Any) -> None:
    database, names, log = typed
    columns = columns_of(database, "t", dict.fromkeys(names.values(), "STRING"))
    scanned, lost_by_scan = scan(database, "t", columns, "id")
    changes = log.changes(columns, ("id",))
    assert lost_by_scan == {} and changes.unrepresentable == {}
    for name in names.values():
        assert scanned.column(name).to_pylist() == changes.table.column(name).to_pylist(), name
    assert "infinity" in scanned.column(names["date"]).to_pylist()
    assert "0001-12-31 BC" in scanned.column(names["date"]).to_pylist()
