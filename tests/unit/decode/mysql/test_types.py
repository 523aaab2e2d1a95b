"""The type table of MySQL and MariaDB, and which changes of a column's type the log's decoder follows."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.decode.mysql.evolve import as_written
from headwater.decode.mysql.types import can_hold, lake_type, resolve_type
from headwater.model import LogColumn, UpstreamType


def of(name: str, oid: int = 0, **more: Any) -> UpstreamType:
    return UpstreamType(name, oid, dialect="mysql", **more)


UNSIGNED = of("bigint", unsigned=True)
DECIMAL = of("decimal", precision=10, scale=2)
LARGE = of("decimal", precision=65, scale=30)


@pytest.mark.parametrize(
    ("upstream", "declared", "possible"),
    [
        (of("tinyint", length=1), "TINYINT", True),
        (of("tinyint", length=1), "BOOLEAN", True),
        (of("tinyint"), "BOOLEAN", False),
        (of("tinyint", unsigned=True), "TINYINT", False),
        (of("tinyint", unsigned=True), "FLOAT", True),
        (of("mediumint", unsigned=True), "FLOAT", True),
        (of("int"), "FLOAT", False),
        (of("int"), "SMALLINT", False),
        (of("int", unsigned=True), "INT", False),
        (of("int", unsigned=True), "DOUBLE", True),
        (of("bigint"), "DOUBLE", False),
        (UNSIGNED, "BIGINT", False),
        (UNSIGNED, "DECIMAL(20,0)", True),
        (UNSIGNED, "DECIMAL(19,0)", False),
        (UNSIGNED, "DECIMAL", True),
        (of("int"), "DECIMAL(12,2)", True),
        (of("int"), "DECIMAL(11,2)", False),
        (DECIMAL, "DECIMAL(12,4)", True),
        (DECIMAL, "DECIMAL(12,5)", False),
        (DECIMAL, "DOUBLE", False),
        (LARGE, "DECIMAL(38,10)", True),
        (of("float"), "DOUBLE", True),
        (of("double"), "FLOAT", False),
        (of("year"), "SMALLINT", True),
        (of("year"), "DECIMAL(4,0)", True),
        (of("year"), "DECIMAL(4,1)", False),
        (of("datetime"), "TIMESTAMP", True),
        (of("timestamp"), "TIMESTAMP_NTZ", True),
        (of("date"), "TIMESTAMP", False),
        (of("varchar", charset="utf8mb4"), "BINARY", False),
        (of("blob", charset="binary"), "STRING", True),
        (of("vector"), "ARRAY<DOUBLE>", True),
        (of("vector"), "ARRAY<INT>", False),
    ],
    ids=str,
)
def test_a_column_may_be_declared_with_a_type_that_holds_it(
    upstream: UpstreamType, declared: str, possible: bool
) -> None:
    assert can_hold(upstream, declared) is possible


def test_a_bare_decimal_takes_the_upstreams_own_size() -> None:
    assert resolve_type(DECIMAL, "DECIMAL") == "DECIMAL(10,2)"
    assert resolve_type(UNSIGNED, "DECIMAL") == "DECIMAL(20,0)"
    assert resolve_type(of("mediumint"), "DECIMAL") == "DECIMAL(8,0)"
    assert resolve_type(LARGE, "DECIMAL") == "DECIMAL(38,18)"
    assert resolve_type(DECIMAL, "INT") == "INT"


@pytest.mark.parametrize("length", [0, 1, 2])
def test_only_a_width_of_one_makes_a_boolean(length: int) -> None:
    assert lake_type(of("tinyint", length=length or None)) == ("BOOLEAN" if length == 1 else "TINYINT")
    assert lake_type(of("bit", length=length or 3)) == ("BOOLEAN" if length == 1 else "BINARY")


def test_what_the_log_says_of_a_column_is_what_decodes_it() -> None:
    written = LogColumn("c", 246, 12 << 8 | 3, False)
    assert as_written(DECIMAL, written) == of("decimal", 246, modifier=12 << 8 | 3, precision=12, scale=3)
    grown = LogColumn("c", 8, 0, False)
    assert as_written(of("tinyint", 1, length=1), grown) == of("bigint", 8, modifier=0)
    enum = LogColumn("c", 247, 1, False, charset="latin1", labels=("a", "b"))
    assert as_written(of("enum", 247, charset="latin1", labels=("b",)), enum) == of(
        "enum", 247, modifier=1, charset="latin1", labels=("a", "b")
    )


@pytest.mark.parametrize(
    "name", ["int", "decimal", "datetime", "bit", "enum", "varchar", "json", "date", "blob", "uuid"]
)
def test_a_type_of_another_kind_is_not_followed(name: str) -> None:
    assert as_written(of(name, charset="utf8mb4", length=1), LogColumn("c", 19, 0, False)) is None
    assert as_written(of(name, charset="utf8mb4", length=1), LogColumn("c", 6, 0, False)) is None


def test_an_unknown_charset_stops_the_table() -> None:
    assert as_written(of("varchar", charset="utf8mb4", length=1), LogColumn("c", 15, 4, False, charset="")) is None


def test_numbers_that_lose_their_sign_are_not_followed() -> None:
    assert as_written(of("int", 3), LogColumn("c", 8, 0, False, unsigned=True)) is None
    assert as_written(DECIMAL, LogColumn("c", 246, 12 << 8 | 3, False, unsigned=True)) is None
    assert as_written(of("int", 3, unsigned=True), LogColumn("c", 3, 0, False)) is None
