"""Every type of MySQL and MariaDB through a scan: the lake holds what the list of types says, and counts the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from headwater.backfill.span import WHOLE
from headwater.config import LOCK_TIMEOUT_S, SCAN_BATCH_BYTES
from headwater.decode.scanned import to_lake
from headwater.demo.mariadb import EmbeddedServer
from headwater.model import Column
from support.mysql import MyDatabase
from support.mysql_scan import Bench, bench
from support.mysql_types import CASES, NOT_KEPT, SESSION, TABLE

CASE_IDS = [f"{i}-{c.ddl.split('(')[0].replace(' ', '_')}" for i, c in enumerate(CASES)]


class Scanned(NamedTuple):
    """A table with a column for each case, a row for each of their values, and one of NULLs; and its scan."""

    database: MyDatabase
    table: Bench
    rows: pa.Table
    unrepresentable: dict[str, int]


def scan(table: Bench) -> tuple[pa.Table, dict[str, int]]:
    """The table's rows as the lake would have them."""
    batches, unrepresentable = [], {}
    with table.reach.open_scan(
        table.table, lock_timeout_s=LOCK_TIMEOUT_S, batch_bytes=SCAN_BATCH_BYTES, hooks=lambda _: None
    ) as opened:
        for batch in opened.batches(WHOLE):
            lake, lost = to_lake(batch, table.table.columns, table.table.key)
            batches.append(lake)
            unrepresentable.update({k: unrepresentable.get(k, 0) + v for k, v in lost.items()})
    return pa.Table.from_batches(batches), unrepresentable


def flavour_of(server: EmbeddedServer) -> str:
    return server.name


@pytest.fixture(scope="module")
def scanned_by() -> dict[str, Scanned]:
    return {}


@pytest.fixture
def scanned(
    my_server: EmbeddedServer, scanned_by: dict[str, Scanned], tmp_path_factory: pytest.TempPathFactory
) -> Scanned:
    """Made once for each server."""
    flavour = flavour_of(my_server)
    if flavour not in scanned_by:
        database = MyDatabase(my_server, "every_type")
        my_server.execute("CREATE DATABASE every_type", database="mysql")
        fill(database, flavour)
        table = bench(database, tmp_path_factory.mktemp(flavour), "t")
        scanned_by[flavour] = Scanned(database, table, *scan(table))
    return scanned_by[flavour]


def fill(database: MyDatabase, flavour: str) -> None:
    own = [(i, c) for i, c in enumerate(CASES) if flavour in c.flavours]
    columns = ", ".join(f"c{i} {c.ddl}" for i, c in own)
    with database.connect(charset="utf8mb4") as session, session.cursor() as cursor:
        cursor.execute(SESSION)
        cursor.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns}) {TABLE}")
        for row in range(max(len(c.values) for _, c in own) + 1):
            values = {f"c{i}": c.values[row][0] for i, c in own if row < len(c.values)}
            names = "".join(f", {name}" for name in values)
            cursor.execute(f"INSERT INTO t (id{names}) VALUES ({row}{''.join(f', {v}' for v in values.values())})")


@pytest.mark.parametrize("number", range(len(CASES)), ids=CASE_IDS)
def test_a_scan_gives_the_value_of_the_list(number: int, scanned: Scanned) -> None:
    case = CASES[number]
    if flavour_of(scanned.database.server) not in case.flavours:
        return
    column = column_of(scanned.table, number)
    assert column.lake_type == case.lake
    found = scanned.rows.column(column.name).to_pylist()
    expected = [value for _, value in case.values]
    assert same(found[: len(expected)], expected)
    assert found[len(expected) :] == [None] * (len(found) - len(expected))
    lost = sum(value is NOT_KEPT for value in expected)
    assert scanned.unrepresentable.get(column.name, 0) == lost


def test_a_scan_gives_the_text_that_the_server_prints_where_a_column_is_declared_so(
    scanned: Scanned, tmp_path: Path
) -> None:
    """Text types and numbers; a FLOAT is printed with all its digits, bytes in hexadecimal."""
    strings = {c.name: "STRING" for c in scanned.table.table.columns if c.name != "id"}
    table = bench(scanned.database, tmp_path, "t", lake=strings)
    rows, unrepresentable = scan(table)
    assert not unrepresentable
    for column in table.table.columns[1:]:
        found: list[Any] = rows.column(column.name).to_pylist()
        if column.upstream.name in ("float", "double"):  # the driver makes numbers of them
            found = [text if text is None else float(text) for text in found]
        assert found == printed(scanned.database, column), column.upstream


def printed(database: MyDatabase, column: Column) -> list[Any]:
    name = column.upstream.name
    if name in ("float", "double"):
        form = f"{column.name} * 1e0"
    elif column.upstream.charset == "binary" or name in ("geometry", "vector"):
        form = f"concat('0x', hex({column.name}))"
    elif name == "bit":
        form = f"concat('0x', hex(CAST({column.name} AS BINARY)))"
    elif column.upstream.unsigned:
        form = f"CAST({column.name} + 0 AS CHAR)"
    else:
        form = f"CONVERT({column.name}, CHAR CHARACTER SET utf8mb4)"
    with database.connect(charset="utf8mb4") as session, session.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {form} FROM t ORDER BY id")
        return [text.decode() if isinstance(text, bytes) else text for (text,) in cursor.fetchall()]


def column_of(table: Bench, number: int) -> Column:
    return next(c for c in table.table.columns if c.name == f"c{number}")


def same(found: list[Any], expected: list[Any]) -> bool:
    """Equal, and zeros of the same sign."""
    return found == expected and all(
        math.copysign(1, a) == math.copysign(1, b)
        for a, b in zip(found, expected, strict=True)
        if isinstance(a, float) and isinstance(b, float)
    )


@pytest.fixture(scope="module", autouse=True)
def dropped_afterwards(scanned_by: dict[str, Scanned]) -> Iterator[None]:
    yield
    for scanned in scanned_by.values():
        scanned.database.server.execute("DROP DATABASE every_type", database="mysql")
