"""Random values of many types: what a scan gives, the log gives, to the bit."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from support.values import Log, columns_of, scan

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
FLOAT = st.floats(allow_nan=True, allow_infinity=True)
DATES = st.from_regex(r"\A[0-3][0-9]{2}[1-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])( BC)?\Z") | st.sampled_from(
    ["infinity", "-infinity", "9999-12-31", "10000-01-01", "0001-01-01", "294276-12-31", "4712-12-01 BC"]
)
CLOCK = st.from_regex(r"\A([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?\Z")
NUMBER = st.from_regex(r"\A-?[0-9]{1,12}(\.[0-9]{1,4})?\Z") | st.just("NaN")


@st.composite
def moments(draw: st.DrawFn) -> str:
    day = draw(DATES)
    if "inf" in day:
        return day
    date, _, era = day.partition(" ")
    return f"{date} {draw(CLOCK)} {era}".strip()


STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "real": st.floats(width=32),
    "double precision": FLOAT,
    "numeric(18,4)": NUMBER,
    "numeric": NUMBER | st.from_regex(r"\A-?[1-9][0-9]{0,60}\.[0-9]{1,60}\Z"),
    "text": TEXT,
    "varchar": TEXT,
    "char(40)": TEXT,
    "bytea": st.binary(max_size=30),
    "date": DATES,
    "timestamp": moments(),
    "timestamptz": moments(),
    "time": CLOCK,
    "interval": st.integers(-(10**12), 10**12).map(lambda us: f"{us} microseconds"),
    "uuid": st.uuids().map(str),
    "jsonb": st.recursive(st.none() | st.booleans() | TEXT, lambda c: st.lists(c, max_size=3)).map(
        lambda v: __import__("json").dumps(v).replace("\\u0000", "")
    ),
    "oid": st.integers(0, 2**32 - 1),
    "integer[]": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=5),
    "text[]": st.lists(st.none() | TEXT, max_size=5),
    "double precision[]": st.lists(FLOAT, max_size=4),
    "bytea[]": st.lists(st.binary(max_size=5), max_size=3),
    "timestamptz[]": st.lists(moments(), max_size=3),
}
ROW = st.tuples(*(st.none() | s for s in STRATEGIES.values()))


@pytest.fixture
def table(database: Any) -> Iterator[Any]:
    columns = ", ".join(f"c{i} {t}" for i, t in enumerate(STRATEGIES))
    database.execute(f"CREATE TABLE r (id int PRIMARY KEY, {columns})")
    log = Log(database, "r")
    with database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield database, log, connection
    log.close()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(ROW, min_size=1, max_size=12))
def test_scan_and_log_agree_to_the_bit(table: Any, rows: list[tuple[Any, ...]]) -> None:
    database, log, connection = table
    connection.execute("TRUNCATE r")
    log.read()
    casts = ", ".join(f"%s::{t}" for t in STRATEGIES)
    for i, row in enumerate(rows):
        connection.execute(f"INSERT INTO r VALUES (%s, {casts})", (i, *row))
    columns = columns_of(database, "r")
    scanned, lost_by_scan = scan(database, "r", columns, "id")
    changes = log.changes(columns, ("id",))
    note(f"unrepresentable: {lost_by_scan} from the scan, {changes.unrepresentable} from the log")
    logged = changes.table.select(scanned.column_names)
    assert lost_by_scan == changes.unrepresentable
    assert [exact(r) for r in scanned.to_pylist()] == [exact(r) for r in logged.to_pylist()]
    for i, type_ in enumerate(STRATEGIES):
        if type_ in ("boolean", "smallint", "integer", "bigint", "double precision", "text", "bytea", "text[]", "oid"):
            assert exact(scanned.column(f"c{i}").to_pylist()) == exact([row[i] for row in rows]), type_


def exact(value: Any) -> Any:
    """A value that is equal only to the same bits (NaN to NaN, but 0 not to -0)."""
    if isinstance(value, dict):
        return {k: exact(v) for k, v in value.items()}
    if isinstance(value, list):
        return [exact(v) for v in value]
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value)
    return value
