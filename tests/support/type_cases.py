"""Every PostgreSQL type of the type table with its nastiest values, and what the lake holds for each."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

UTC = dt.UTC
NOT_KEPT = None
SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'ha''ppy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN cents AS numeric(10,2) CHECK (VALUE >= 0);
CREATE DOMAIN short_text AS varchar(5);
"""
ZERO = "00000000-0000-0000-0000-000000000000"
INFINITE = [("'infinity'", None), ("'-infinity'", None)]
# type → (lake type, [(SQL literal, value in the lake)])
CASES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "boolean": ("BOOLEAN", [("true", True), ("false", False)]),
    "smallint": ("SMALLINT", [("-32768", -32768), ("32767", 32767), ("0", 0)]),
    "integer": ("INT", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1)]),
    "bigint": ("BIGINT", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    "real": (
        "FLOAT",
        [
            ("'NaN'", math.nan),
            *[(f"'{s}Infinity'", float(f"{s}inf")) for s in ("", "-")],
            ("'-0'", -0.0),
            ("1.5", 1.5),
            ("1e-45", 1.401298464324817e-45),
            ("3.4028235e38", 3.4028234663852886e38),
            ("0.1", 0.10000000149011612),
        ],
    ),
    "double precision": (
        "DOUBLE",
        [
            ("'NaN'", math.nan),
            *[(f"'{s}Infinity'", float(f"{s}inf")) for s in ("", "-")],
            ("'-0'", -0.0),
            ("5e-324", 5e-324),
            ("1.7976931348623157e308", 1.7976931348623157e308),
            ("0.1::float8 + 0.2", 0.1 + 0.2),
            ("2.2250738585072011e-308", 2.225073858507201e-308),
            ("9007199254740993", 9007199254740992.0),
        ],
    ),
    "numeric(10,2)": (
        "DECIMAL(10,2)",
        [
            ("99999999.99", Decimal("99999999.99")),
            ("-0.01", Decimal("-0.01")),
            ("0", Decimal("0.00")),
            ("'NaN'", NOT_KEPT),
            ("5", Decimal("5.00")),
        ],
    ),
    "numeric(38,0)": ("DECIMAL(38,0)", [("9" * 38, Decimal("9" * 38)), ("-" + "9" * 38, Decimal("-" + "9" * 38))]),
    "numeric(38,38)": ("DECIMAL(38,38)", [("0." + "9" * 38, Decimal("0." + "9" * 38)), ("-0.1", Decimal("-0.1"))]),
    "numeric(20,19)": ("DECIMAL(20,19)", [("1.8446744073709551616", Decimal("1.8446744073709551616"))]),
    "numeric": (
        "STRING",
        [
            ("1.10", "1.10"),
            ("'NaN'", "NaN"),
            ("'-Infinity'", "-Infinity"),
            ("1e50", "1" + "0" * 50),
            ("0." + "0" * 60 + "1", "0." + "0" * 60 + "1"),
        ],
    ),
    "numeric(50,2)": ("STRING", [("9" * 48 + ".25", "9" * 48 + ".25")]),
    "numeric(3,-2)": ("STRING", [("12345", "12300")]),
    "numeric(2,4)": ("STRING", [("0.0012", "0.0012")]),
    "money": ("STRING", [("1234567.89::money", "$1,234,567.89"), ("(-0.5)::numeric::money", "-$0.50")]),
    "char(5)": ("STRING", [("'ab'", "ab   "), ("''", "     "), ("'ab  '", "ab   ")]),
    '"char"': ("STRING", [("'a'", "a"), ("''", ""), ('(-1)::int::"char"', "\\377")]),
    "varchar(10)": ("STRING", [("'ab '", "ab "), ("''", "")]),
    "text": (
        "STRING",
        [
            ("''", ""),
            ("'NULL'", "NULL"),
            ("E'a\\nb\\t\\\\\"'''", "a\nb\t\\\"'"),
            ("'Straße 🚰 ﬁ'", "Straße 🚰 ﬁ"),
            ("repeat('x', 10000)", "x" * 10000),
            ("'\xa0'", "\xa0"),
        ],
    ),
    "name": ("STRING", [("'n'", "n")]),
    "mood": ("STRING", [("'so so'", "so so"), ("'ha''ppy'", "ha'ppy")]),
    "uuid": (
        "STRING",
        [(f"'{ZERO}'", ZERO), ("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")],
    ),
    "inet": ("STRING", [("'10.0.0.1'", "10.0.0.1"), ("'10.0.0.1/24'", "10.0.0.1/24"), ("'::1'", "::1")]),
    "cidr": ("STRING", [("'10.0.0.0/8'", "10.0.0.0/8"), ("'10.0.0.1'", "10.0.0.1/32")]),
    "macaddr": ("STRING", [("'08:00:2b:01:02:03'", "08:00:2b:01:02:03")]),
    "tsvector": ("STRING", [("'a fat cat'", "'a' 'cat' 'fat'")]),
    "int4range": ("STRING", [("'[1,5)'", "[1,5)"), ("'empty'", "empty"), ("'(,)'", "(,)")]),
    "tstzrange": ("STRING", [("'[2020-01-01 00:00+02,)'", '["2019-12-31 22:00:00+00",)')]),
    "point": ("STRING", [("'(1.5,2)'", "(1.5,2)")]),
    "box": ("STRING", [("'(1,1),(0,0)'", "(1,1),(0,0)")]),
    "bit(1)": ("BOOLEAN", [("B'1'", True), ("B'0'", False)]),
    "bit(3)": ("STRING", [("B'101'", "101")]),
    "varbit": ("STRING", [("B''", ""), ("B'10'", "10")]),
    "bytea": ("BINARY", [(r"'\x'", b""), (r"'\x00ff00'", b"\0\xff\0"), ("'abc'", b"abc")]),
    "date": (
        "DATE",
        [
            ("'0001-01-01'", dt.date(1, 1, 1)),
            ("'9999-12-31'", dt.date(9999, 12, 31)),
            ("'1970-01-01'", dt.date(1970, 1, 1)),
            ("'2000-02-29'", dt.date(2000, 2, 29)),
            ("'1900-03-01'", dt.date(1900, 3, 1)),
            ("'1582-10-10'", dt.date(1582, 10, 10)),
            ("'0001-12-31 BC'", NOT_KEPT),
            ("'10000-01-01'", NOT_KEPT),
            ("'5874897-12-31'", NOT_KEPT),
            *INFINITE,
        ],
    ),
    "time": ("STRING", [("'24:00'", "24:00:00"), ("'12:34:56.789'", "12:34:56.789")]),
    "timetz": ("STRING", [("'12:00+05:30'", "12:00:00+05:30")]),
    "timestamp": (
        "TIMESTAMP_NTZ",
        [
            ("'0001-01-01'", dt.datetime(1, 1, 1)),
            ("'9999-12-31 23:59:59.999999'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
            ("'1969-12-31 23:59:59.5'", dt.datetime(1969, 12, 31, 23, 59, 59, 500000)),
            *INFINITE,
            ("'0044-03-15 12:00 BC'", NOT_KEPT),
            ("'10000-01-01'", NOT_KEPT),
            ("'294276-12-31 23:59:59.999999'", NOT_KEPT),
            ("'4714-11-24 BC'", NOT_KEPT),
        ],
    ),
    "timestamptz": (
        "TIMESTAMP",
        [
            ("'2020-06-01 12:00+02'", dt.datetime(2020, 6, 1, 10, tzinfo=UTC)),
            *INFINITE,
            ("'0001-01-01 00:00+00'", dt.datetime(1, 1, 1, tzinfo=UTC)),
            ("'0001-01-01 00:00+01'", NOT_KEPT),
            ("'9999-12-31 23:59:59.999999+00'", dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
            ("'9999-12-31 23:59:59-01'", NOT_KEPT),
            ("'294276-12-31 23:59:59.999999+00'", NOT_KEPT),
        ],
    ),
    "timestamp(0)": ("TIMESTAMP_NTZ", [("'2020-01-01 00:00:00.6'", dt.datetime(2020, 1, 1, 0, 0, 1))]),
    "interval": ("STRING", [("'1 year 2 days 03:00:00.5'", "P1Y2DT3H0.5S"), ("'0'", "PT0S")]),
    "json": ("STRING", [('\'{"a" : 1,  "a":2}\'', '{"a" : 1,  "a":2}'), ("'null'", "null")]),
    "jsonb": ("STRING", [('\'{"b":1, "a":[1.10]}\'', '{"a": [1.10], "b": 1}'), ("'\"\\u00e9\"'", '"é"')]),
    "jsonpath": ("STRING", [("'$.a'", '$."a"')]),
    "oid": ("BIGINT", [("4294967295", 4294967295), ("0", 0)]),
    "xid8": ("STRING", [("'18446744073709551615'", "18446744073709551615")]),
    "pg_lsn": ("STRING", [("'16/B374D848'", "16/B374D848")]),
    "pair": ("STRING", [("ROW(1, 'x y')", '(1,"x y")'), ("ROW(NULL, NULL)", "(,)"), ("ROW(1, NULL)", "(1,)")]),
    "cents": ("DECIMAL(10,2)", [("1.5", Decimal("1.50"))]),
    "short_text": ("STRING", [("'abc'", "abc")]),
    "smallint[]": ("ARRAY<SMALLINT>", [("'{-32768,NULL}'", [-32768, None])]),
    "integer[]": (
        "ARRAY<INT>",
        [
            ("'{}'", []),
            ("'{1,NULL,-3}'", [1, None, -3]),
            ("'{{1,2},{3,4}}'", NOT_KEPT),
            ("'[0:1]={1,2}'", NOT_KEPT),
            ("'{NULL}'", [None]),
        ],
    ),
    "integer[][]": ("STRING", [("'{{1,2},{3,4}}'", "{{1,2},{3,4}}"), ("'{1}'", "{1}")]),
    "bigint[]": ("ARRAY<BIGINT>", [("'{9223372036854775807}'", [2**63 - 1])]),
    "text[]": (
        "ARRAY<STRING>",
        [
            (
                "ARRAY['', 'NULL', NULL, 'a,b', '\"q\"', E'\\\\', '{}', ' s ', E'\\n', 'ü🚰']",
                ["", "NULL", None, "a,b", '"q"', "\\", "{}", " s ", "\n", "ü🚰"],
            ),
            ("ARRAY['null']", ["null"]),
            ("ARRAY['NULLX', 'NUL']", ["NULLX", "NUL"]),
        ],
    ),
    "char(3)[]": ("ARRAY<STRING>", [("'{a}'", ["a  "])]),
    "boolean[]": ("ARRAY<BOOLEAN>", [("'{t,f,NULL}'", [True, False, None])]),
    "numeric(5,2)[]": (
        "ARRAY<DECIMAL(5,2)>",
        [("'{1.5,-0.01}'", [Decimal("1.50"), Decimal("-0.01")]), ("'{1,NaN}'", NOT_KEPT)],
    ),
    "numeric[]": ("ARRAY<STRING>", [("'{1.50,NaN}'", ["1.50", "NaN"])]),
    "double precision[]": ("ARRAY<DOUBLE>", [("'{0.1,-Infinity}'", [0.1, -math.inf])]),
    "real[]": ("ARRAY<FLOAT>", [("'{0.1}'", [0.10000000149011612])]),
    "date[]": (
        "ARRAY<DATE>",
        [("'{2020-01-01,NULL}'", [dt.date(2020, 1, 1), None]), ("'{2020-01-01,infinity}'", NOT_KEPT)],
    ),
    "timestamptz[]": (
        "ARRAY<TIMESTAMP>",
        [("ARRAY['2020-01-01 00:00+00'::timestamptz]", [dt.datetime(2020, 1, 1, tzinfo=UTC)])],
    ),
    "bytea[]": ("ARRAY<BINARY>", [(r"ARRAY['\x00ff'::bytea, '']", [b"\0\xff", b""])]),
    "uuid[]": ("ARRAY<STRING>", [(f"ARRAY['{ZERO}'::uuid]", [ZERO])]),
    "inet[]": ("ARRAY<STRING>", [("'{10.0.0.1}'", ["10.0.0.1"])]),
    "jsonb[]": ("ARRAY<STRING>", [('ARRAY[\'{"a": "x,y"}\'::jsonb]', ['{"a": "x,y"}'])]),
    "mood[]": ("ARRAY<STRING>", [("'{sad,\"so so\"}'", ["sad", "so so"])]),
    "pair[]": ("ARRAY<STRING>", [("ARRAY[ROW(1, 'a\"b')::pair]", ['(1,"a""b")'])]),
    "box[]": ("STRING", [("ARRAY['(1,1),(0,0)'::box]", "{(1,1),(0,0)}")]),
}
