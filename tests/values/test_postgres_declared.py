"""Columns declared with another type than the default: still the same from scan and log."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from headwater.decode.values import can_hold, normalise_type
from headwater.model import UpstreamType
from support.values import Log, columns_of, scan

UTC = dt.UTC
NOT_KEPT = None
NOON = dt.datetime(2020, 1, 1, 12)


@pytest.mark.parametrize(
    ("upstream", "declared", "literals", "values"),
    [
        ("smallint", "int", ["-5"], [-5]),
        ("smallint", "float", ["32767"], [32767.0]),
        ("integer", "bigint", ["2147483647"], [2**31 - 1]),
        ("integer", "decimal", ["-7"], [Decimal(-7)]),
        ("integer", "decimal(12,2)", ["-2147483648"], [Decimal("-2147483648.00")]),
        ("integer", "double", ["2147483647"], [2147483647.0]),
        ("bigint", "decimal(20,1)", ["9223372036854775807"], [Decimal("9223372036854775807.0")]),
        ("real", "double", ["0.1"], [0.10000000149011612]),
        ("numeric", "decimal", ["1.25", "1e25", "1e-19"], [Decimal("1.25"), NOT_KEPT, NOT_KEPT]),
        (
            "numeric",
            "decimal(10,2)",
            ["1.25", "1.255", "1.250", "'NaN'"],
            [Decimal("1.25"), None, Decimal("1.25"), None],
        ),
        ("numeric(10,2)", "decimal", ["19.99"], [Decimal("19.99")]),
        ("numeric(10,2)", "decimal(38,20)", ["19.99"], [Decimal("19.99")]),
        ("numeric(50,2)", "decimal(38,2)", ["5.25", "1e40"], [Decimal("5.25"), NOT_KEPT]),
        ("timestamp", "timestamp", ["'2020-01-01 12:00'"], [NOON.replace(tzinfo=UTC)]),
        ("timestamptz", "timestamp_ntz", ["'2020-01-01 14:00+02'"], [NOON]),
        ("integer[]", "array<bigint>", ["'{1,NULL}'"], [[1, None]]),
        ("numeric[]", "array<decimal(5,2)>", ["'{1.5}'", "'{1.555}'"], [[Decimal("1.5")], NOT_KEPT]),
        ("integer[]", "string", ["'{{1},{2}}'"], ["{{1},{2}}"]),
        ("boolean", "string", ["true"], ["t"]),
        ("char(3)", "varchar(10)", ["'a'"], ["a  "]),
        ("double precision", "string", ["0.1"], ["0.1"]),
        ("bytea", "string", [r"'\x00ff'"], [r"\x00ff"]),
    ],
)
def test_a_declared_type_gives_the_same_from_scan_and_log(
    database: Any, upstream: str, declared: str, literals: list[str], values: list[Any]
) -> None:
    database.execute(f"CREATE TABLE d (id int PRIMARY KEY, c {upstream})")
    log = Log(database, "d")
    for i, literal in enumerate([*literals, "NULL"]):
        database.execute(f"INSERT INTO d VALUES ({i}, {literal})")
    lake = normalise_type(declared)
    (own,) = (c.upstream for c in columns_of(database, "d") if c.name == "c")
    assert isinstance(own, UpstreamType) and can_hold(own, lake)
    columns = columns_of(database, "d", {"c": lake})
    scanned, unrepresentable = scan(database, "d", columns, "id")
    changes = log.changes(columns, ("id",))
    log.close()
    assert scanned.column("c").to_pylist() == [*values, None]
    assert changes.table.column("c").to_pylist() == [*values, None]
    assert unrepresentable == changes.unrepresentable == ({"c": values.count(NOT_KEPT)} if NOT_KEPT in values else {})
