"""The type table: defaults, declared types, and what may be declared."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.decode.literals import key_array
from headwater.decode.postgres.types import scans_as_text
from headwater.decode.values import arrow_type, can_hold, lake_type, normalise_type, resolve_type
from headwater.errors import DataError, DefinitionError
from headwater.model import Column, UpstreamType
from headwater.source.postgres.catalog.types import TEXTUAL


def numeric(precision: int | None = None, scale: int | None = None) -> UpstreamType:
    return UpstreamType("numeric", 1700, precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("written", "lake"),
    [
        ("string", "STRING"), ("VARCHAR(10)", "STRING"), ("char(3)", "STRING"), ("text", "STRING"),
        ("character varying", "STRING"), ("int", "INT"), ("INTEGER", "INT"), ("bigint", "BIGINT"), ("long", "BIGINT"),
        ("smallint", "SMALLINT"), ("decimal", "DECIMAL"), ("decimal(10,2)", "DECIMAL(10,2)"),
        ("numeric( 10 , 2 )", "DECIMAL(10,2)"), ("decimal(5)", "DECIMAL(5,0)"), ("double precision", "DOUBLE"),
        ("float", "FLOAT"), ("real", "FLOAT"), ("boolean", "BOOLEAN"), ("bool", "BOOLEAN"), ("bytea", "BINARY"),
        ("timestamp", "TIMESTAMP"), ("timestamp without time zone", "TIMESTAMP_NTZ"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("array<int>", "ARRAY<INT>"), ("array<decimal(5,2)>", "ARRAY<DECIMAL(5,2)>"), ("int[]", "ARRAY<INT>"),
        ("date", "DATE"),
    ],
)  # fmt: skip
def test_a_type_as_written_becomes_sparks(written: str, lake: str) -> None:
    assert normalise_type(written) == lake


@pytest.mark.parametrize("written", ["", "decimal(39,2)", "decimal(3,4)", "int(5)", "map<int,int>", "strin", "date(3)"])
def test_what_is_no_type_says_which_ones_there_are(written: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        normalise_type(written)
    assert caught.value.code == "table.column_type" and "DECIMAL(p,s)" in caught.value.hint


def test_a_bare_decimal_takes_the_upstreams_own_size() -> None:
    assert resolve_type(numeric(12, 3), "DECIMAL") == "DECIMAL(12,3)"
    assert resolve_type(UpstreamType("int4", 23), "DECIMAL") == "DECIMAL(10,0)"
    assert resolve_type(numeric(), "DECIMAL") == "DECIMAL(38,18)"
    assert resolve_type(UpstreamType("_numeric", 1231, precision=5, scale=1), "ARRAY<DECIMAL>") == "ARRAY<DECIMAL(5,1)>"
    assert can_hold(numeric(12, 3), "DECIMAL") and can_hold(numeric(), "DECIMAL")


@pytest.mark.parametrize(
    ("precision", "scale", "lake"),
    [
        (10, 2, "DECIMAL(10,2)"),
        (38, 38, "DECIMAL(38,38)"),
        (None, None, "STRING"),
        (39, 2, "STRING"),
        (3, -2, "STRING"),
        (2, 4, "STRING"),
        (38, 0, "DECIMAL(38,0)"),
    ],
)
def test_only_a_numeric_that_is_a_spark_decimal_becomes_one(
    precision: int | None, scale: int | None, lake: str
) -> None:
    assert lake_type(numeric(precision, scale)) == lake
    if precision is not None and scale is not None:
        assert lake_type(UpstreamType("numeric", 1700, (precision << 16 | scale & 0x7FF) + 4)) == lake


@pytest.mark.parametrize(
    ("upstream", "declared", "holds"),
    [
        (numeric(10, 2), "DECIMAL(10,2)", True), (numeric(10, 2), "DECIMAL(12,4)", True),
        (numeric(10, 2), "DECIMAL(12,5)", False), (numeric(10, 2), "DECIMAL(38,0)", False),
        (numeric(), "DECIMAL(5,2)", True), (numeric(50, 2), "DECIMAL(38,2)", True), (numeric(10, 2), "STRING", True),
        (numeric(10, 2), "DOUBLE", False), (UpstreamType("int4", 23), "SMALLINT", False),
        (UpstreamType("int4", 23), "BIGINT", True), (UpstreamType("int4", 23), "DECIMAL(12,2)", True),
        (UpstreamType("int4", 23), "DECIMAL(11,2)", False), (UpstreamType("int8", 20), "DOUBLE", False),
        (UpstreamType("float8", 701), "FLOAT", False), (UpstreamType("float4", 700), "DOUBLE", True),
        (UpstreamType("text", 25), "INT", False), (UpstreamType("date", 1082), "STRING", True),
        (UpstreamType("timestamp", 1114), "TIMESTAMP", True),
        (UpstreamType("timestamptz", 1184), "TIMESTAMP_NTZ", True),
        (UpstreamType("_int4", 1007), "ARRAY<BIGINT>", True), (UpstreamType("_int4", 1007), "ARRAY<SMALLINT>", False),
        (UpstreamType("_int4", 1007), "INT", False), (UpstreamType("_int4", 1007, dimensions=2), "ARRAY<INT>", False),
        (UpstreamType("bool", 16), "INT", False), (UpstreamType("text", 25), "DECIMAL", False),
    ],
)  # fmt: skip
def test_a_declared_type_holds_every_value_or_is_refused(upstream: UpstreamType, declared: str, holds: bool) -> None:
    assert can_hold(upstream, declared) is holds


def test_a_type_that_is_not_in_the_table_is_lossless_text() -> None:
    for name in ("hstore", "citext", "ltree", "geometry", "composite", "range", "enum", "xml", "int2vector"):
        assert lake_type(UpstreamType(name, 1)) == "STRING"
        assert scans_as_text(UpstreamType(name, 1))
    assert lake_type(UpstreamType("_enum", 1)) == "ARRAY<STRING>"
    assert lake_type(UpstreamType("_text", 1009, dimensions=2)) == "STRING"


def test_a_key_declared_string_no_longer_has_the_databases_order() -> None:
    def ordered(name: str, lake: str, upstream: bool = True) -> bool:
        return Column("k", lake, UpstreamType(name, 1, ordered=upstream, textual=name in TEXTUAL)).ordered

    assert ordered("int4", "INT") and ordered("int4", "BIGINT") and ordered("numeric", "DECIMAL(10,2)")
    assert ordered("uuid", "STRING") and ordered("text", "STRING")
    assert not ordered("text", "STRING", upstream=False)
    for name in ("int4", "date", "timestamp", "numeric", "bytea", "bool"):
        assert not ordered(name, "STRING")


def test_nested_types_are_read_to_their_leaves() -> None:
    assert arrow_type("ARRAY<ARRAY<DECIMAL(10,2)>>") == pa.list_(pa.list_(pa.decimal128(10, 2)))
    assert arrow_type("MAP<STRING, MAP<INT,DATE>>") == pa.map_(pa.string(), pa.map_(pa.int32(), pa.date32()))
    struct = arrow_type("STRUCT<a: INT, `b, <c``: d`: ARRAY<STRUCT<e: DECIMAL(3,1),f:BINARY>>>")
    inner = pa.struct([pa.field("e", pa.decimal128(3, 1)), pa.field("f", pa.binary())])
    assert struct == pa.struct([pa.field("a", pa.int32()), pa.field("b, <c`: d", pa.list_(inner))])
    assert arrow_type("STRUCT<>") == pa.struct([])


def test_arrow_types_are_what_delta_writes() -> None:
    assert arrow_type("TIMESTAMP") == pa.timestamp("us", tz="UTC")
    assert arrow_type("TIMESTAMP_NTZ") == pa.timestamp("us")
    assert arrow_type("ARRAY<DECIMAL(5,2)>") == pa.list_(pa.decimal128(5, 2))


def test_key_texts_become_lake_values() -> None:
    assert key_array(["-5", "7"], Column("k", "BIGINT", UpstreamType("int8", 20))).to_pylist() == [-5, 7]
    assert key_array([], Column("k", "STRING", UpstreamType("text", 25))).to_pylist() == []
    with pytest.raises(DataError) as caught:
        key_array(["infinity"], Column("k", "DATE", UpstreamType("date", 1082)))
    assert caught.value.code == "data.key_value"
