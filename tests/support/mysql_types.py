"""Every type of MySQL and MariaDB with its nastiest values, and what the lake holds for each.

Make the table with `TABLE` behind its columns (the servers' default charsets differ) and insert under `SESSION`: only
there do the servers take zero dates and dates that no calendar has.
"""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

UTC = dt.UTC
NOT_KEPT = None
BOTH = frozenset({"mysql", "mariadb"})
MYSQL = frozenset({"mysql"})
MARIADB = frozenset({"mariadb"})
TABLE = "DEFAULT CHARACTER SET utf8mb4"
SESSION = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', character_set_client = utf8mb4"


@dataclass(frozen=True, slots=True)
class Case:
    """A column type, its lake type, and values: SQL literal and what the lake holds (NOT_KEPT: NULL, and counted)."""

    ddl: str
    lake: str
    values: tuple[tuple[str, Any], ...]
    flavours: frozenset[str] = BOTH


def _integers(name: str, lake: str, low: int, high: int) -> Case:
    return Case(name, lake, tuple((str(v), v) for v in (low, high, 0, 1, high // 3)))


def _text(ddl: str, *texts: str) -> Case:
    return Case(ddl, "STRING", tuple((quoted(t), t) for t in texts))


def _charset(charset: str, *texts: str) -> Case:
    return _text(f"varchar(40) CHARACTER SET {charset}", "", "plain", *texts)


def quoted(text: str) -> str:
    """A string literal."""
    escapes = {"\\": "\\\\", "'": "''", "\n": "\\n", "\0": "\\0", "\x1a": "\\Z"}
    return "'" + "".join(escapes.get(c, c) for c in text) + "'"


def _point(x: float, y: float) -> bytes:
    return struct.pack("<BIdd", 1, 1, x, y)


_CYRILLIC, _KANJI, _HAN = "Съешь ещё", "日本語テスト", "你好，世界"
_JSON_PLAIN = (
    "null",
    "true",
    "[]",
    "{}",
    '""',
    "-1",
    "18446744073709551615",
    "-9223372036854775808",
    '{"a": [1, 2, {"b": null}]}',
)

_NUMBERS = (
    Case("bool", "BOOLEAN", (("0", False), ("1", True), ("2", NOT_KEPT), ("-1", NOT_KEPT))),
    Case("tinyint(1)", "BOOLEAN", (("true", True), ("false", False), ("127", NOT_KEPT))),
    _integers("tinyint", "TINYINT", -(2**7), 2**7 - 1),
    _integers("tinyint unsigned", "SMALLINT", 0, 2**8 - 1),
    _integers("smallint", "SMALLINT", -(2**15), 2**15 - 1),
    _integers("smallint unsigned", "INT", 0, 2**16 - 1),
    _integers("mediumint", "INT", -(2**23), 2**23 - 1),
    _integers("mediumint unsigned", "INT", 0, 2**24 - 1),
    _integers("int", "INT", -(2**31), 2**31 - 1),
    _integers("int unsigned", "BIGINT", 0, 2**32 - 1),
    _integers("int(6) unsigned zerofill", "BIGINT", 0, 2**32 - 1),
    _integers("bigint", "BIGINT", -(2**63), 2**63 - 1),
    Case(
        "bigint unsigned",
        "DECIMAL(20,0)",
        tuple((str(v), Decimal(v)) for v in (0, 2**63 - 1, 2**63, 2**64 - 1)),
    ),
    Case(
        "decimal(10,2)",
        "DECIMAL(10,2)",
        tuple((v, Decimal(v)) for v in ("99999999.99", "-99999999.99", "-0.01", "0.00", "5.00", "1234567.80")),
    ),
    Case("decimal(10,2) unsigned", "DECIMAL(10,2)", (("99999999.99", Decimal("99999999.99")),)),
    Case("decimal(38,0)", "DECIMAL(38,0)", (("9" * 38, Decimal("9" * 38)), ("-" + "9" * 38, Decimal("-" + "9" * 38)))),
    Case("decimal(38,30)", "DECIMAL(38,30)", (("-12345678." + "9" * 30, Decimal("-12345678." + "9" * 30)),)),
    Case("decimal(5,5)", "DECIMAL(5,5)", (("-0.00001", Decimal("-0.00001")), ("0.99999", Decimal("0.99999")))),
    Case("decimal(1,0)", "DECIMAL(1,0)", (("-9", Decimal("-9")), ("0", Decimal("0")))),
    Case(
        "decimal(65,30)",
        "STRING",
        tuple(
            (v, v)
            for v in (
                "9" * 35 + "." + "9" * 30,
                "-0." + "0" * 29 + "1",
                "0." + "0" * 30,
                "12." + "5".ljust(30, "0"),
            )
        ),
    ),
    Case("decimal(65,0)", "STRING", (("-" + "1" * 65, "-" + "1" * 65), ("0", "0"))),
    Case(
        "float",
        "FLOAT",
        (
            ("1.5", 1.5),
            ("0.1", 0.10000000149011612),
            ("-0e0", -0.0),
            ("1e-38", 9.99999935045640392457e-39),
            ("3.4028234663852886e38", 3.4028234663852886e38),
            ("16777216", 16777216.0),
        ),
    ),
    Case(
        "double",
        "DOUBLE",
        tuple(
            (v, float(v))
            for v in (
                "0.1",
                "-0e0",
                "1.7976931348623157e308",
                "2.2250738585072014e-308",
                "9007199254740993e0",
                "1e20",
                "1.5e-7",
                "123456789012345678e0",
            )
        ),
    ),
    Case("double(10,2)", "DOUBLE", (("1.5", 1.5), ("-99999999.99", -99999999.99))),
    Case("bit(1)", "BOOLEAN", (("b'1'", True), ("b'0'", False))),
    Case("bit(3)", "BINARY", (("b'101'", b"\5"), ("0", b"\0"))),
    Case("bit(12)", "BINARY", (("b'101100001111'", b"\x0b\x0f"), ("1", b"\0\1"))),
    Case("bit(64)", "BINARY", (("18446744073709551615", b"\xff" * 8), ("1", b"\0" * 7 + b"\1"))),
    Case("year", "INT", (("1901", 1901), ("2155", 2155), ("0", 0), ("2024", 2024))),
)

_TEXTS = (
    Case(
        "char(5)", "STRING", (("'ab'", "ab"), ("''", ""), ("'ab   '", "ab"), ("'  a'", "  a"), ("'äöü€🚰'", "äöü€🚰"))
    ),
    _text("char(255)", "", "x" * 255, "€" * 255),
    _text("varchar(10)", "ab ", "", "äöü€🚰"),
    _text("varchar(300)", "", "x" * 300, "🚰" * 300),
    _text("text", "", "NULL", "a\nb\t\\\"'\0\x1a", "Straße 🚰 ﬁ", "x" * 10_000, "\xa0"),
    _text("tinytext", "", "é" * 100),
    _text("mediumtext", "", "y" * 70_000),
    _text("longtext", "", "Ω" * 40_000),
    _charset("ascii", "~ASCII only~"),
    _charset("latin1", "Straße €uro ‰ Ÿ", "\x81\x8d\x8f\x90\x9d"),
    _charset("latin2", "Zażółć gęślą jaźń"),
    _charset("utf8mb3", "Straße €"),
    _charset("utf8mb4", "Straße € 🚰"),
    _charset("utf16", "Straße € 🚰"),
    _charset("utf16le", "Straße € 🚰"),
    _charset("utf32", "Straße € 🚰"),
    _charset("ucs2", "Straße €"),
    _charset("cp1251", _CYRILLIC),
    _charset("koi8r", _CYRILLIC),
    _charset("cp866", _CYRILLIC),
    _charset("sjis", _KANJI, "ｱｲｳ"),
    _charset("cp932", _KANJI, "①～"),
    _charset("ujis", _KANJI),
    _charset("eucjpms", _KANJI, "①"),
    _charset("euckr", "안녕하세요"),
    _charset("big5", "繁體中文"),
    _charset("gb2312", _HAN),
    _charset("gbk", _HAN, "繁體"),
    Case(
        "varchar(40) CHARACTER SET gb18030",
        "STRING",
        tuple((quoted(t), t) for t in ("", _HAN, "🚰 ſ")),
        MYSQL,
    ),
    _text("text CHARACTER SET gbk", "", _HAN * 100),
    Case("char(4) CHARACTER SET utf16", "STRING", (("'a€🚰 '", "a€🚰"), ("''", ""))),
    Case(
        "enum('sad','so so','ha''ppy','€','')",
        "STRING",
        (("'so so'", "so so"), ("'ha''ppy'", "ha'ppy"), ("'€'", "€"), ("''", ""), ("'sad'", "sad")),
    ),
    Case("enum('ä','ö') CHARACTER SET latin1", "STRING", (("'ö'", "ö"), ("'no such label'", ""))),
    Case(
        "set('a','b','c d','€')",
        "STRING",
        (("''", ""), ("'b,a'", "a,b"), ("'c d'", "c d"), ("15", "a,b,c d,€")),
    ),
    Case(
        "set(" + ",".join(f"'m{i}'" for i in range(64)) + ")",
        "STRING",
        (("'m63'", "m63"), ("18446744073709551615", ",".join(f"m{i}" for i in range(64)))),
    ),
)

_BINARIES = (
    Case("binary(4)", "BINARY", (("x'0102'", b"\1\2\0\0"), ("''", b"\0\0\0\0"), ("x'00ff2000'", b"\0\xff\x20\0"))),
    Case("binary(16)", "BINARY", (("x'00112233445566778899aabbccddeeff'", bytes(range(0, 256, 17))),)),
    Case("varbinary(20)", "BINARY", (("''", b""), ("x'00ff0000'", b"\0\xff\0\0"), ("'abc '", b"abc "))),
    Case("varbinary(300)", "BINARY", (("''", b""), ("repeat(x'ff00', 150)", b"\xff\0" * 150))),
    Case("tinyblob", "BINARY", (("x'00'", b"\0"), ("''", b""))),
    Case("blob", "BINARY", (("repeat(x'80', 1000)", b"\x80" * 1000), ("''", b""))),
    Case("mediumblob", "BINARY", (("repeat('m', 70000)", b"m" * 70_000),)),
    Case("longblob", "BINARY", (("x'ff'", b"\xff"),)),
    Case(
        "geometry",
        "BINARY",
        (("ST_GeomFromText('POINT(1 2.5)')", _point(1, 2.5)), ("ST_GeomFromText('POINT(1 2)', 4326)", _point(2, 1))),
        MYSQL,
    ),
    Case(
        "geometry",
        "BINARY",
        (("ST_GeomFromText('POINT(1 2.5)')", _point(1, 2.5)), ("ST_GeomFromText('POINT(1 2)', 4326)", _point(1, 2))),
        MARIADB,
    ),
    Case("point", "BINARY", (("ST_GeomFromText('POINT(-1 0)')", _point(-1, 0)),)),
    Case("vector(3)", "ARRAY<FLOAT>", (("TO_VECTOR('[1, -2.5, 0.5]')", [1.0, -2.5, 0.5]),), MYSQL),
)

_TIMES = (
    Case(
        "date",
        "DATE",
        (
            ("'0001-01-01'", dt.date(1, 1, 1)),
            ("'9999-12-31'", dt.date(9999, 12, 31)),
            ("'1970-01-01'", dt.date(1970, 1, 1)),
            ("'2000-02-29'", dt.date(2000, 2, 29)),
            ("'1900-03-01'", dt.date(1900, 3, 1)),
            ("'1582-10-10'", dt.date(1582, 10, 10)),
            ("'0000-00-00'", NOT_KEPT),
            ("'2020-00-10'", NOT_KEPT),
            ("'2020-05-00'", NOT_KEPT),
            ("'2021-02-31'", NOT_KEPT),
            ("'0000-01-01'", NOT_KEPT),
        ),
    ),
    Case(
        "datetime",
        "TIMESTAMP_NTZ",
        (
            ("'0001-01-01 00:00:00'", dt.datetime(1, 1, 1)),
            ("'9999-12-31 23:59:59'", dt.datetime(9999, 12, 31, 23, 59, 59)),
            ("'1969-12-31 23:59:59'", dt.datetime(1969, 12, 31, 23, 59, 59)),
            ("'0000-00-00 00:00:00'", NOT_KEPT),
            ("'2020-00-00 10:00:00'", NOT_KEPT),
            ("'2021-02-31 10:00:00'", NOT_KEPT),
        ),
    ),
    *(
        Case(
            f"datetime({digits})",
            "TIMESTAMP_NTZ",
            (
                (f"'1969-12-31 23:59:59.{'9' * digits}'", dt.datetime(1969, 12, 31, 23, 59, 59, micros)),
                (f"'2020-02-29 12:34:56.{'9' * digits}'", dt.datetime(2020, 2, 29, 12, 34, 56, micros)),
                ("'0000-00-00 00:00:00'", NOT_KEPT),
            ),
        )
        for digits, micros in ((n, int(("9" * n).ljust(6, "0"))) for n in range(1, 7))
    ),
    Case(
        "timestamp NULL",
        "TIMESTAMP",
        (
            ("'1970-01-01 00:00:01'", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            ("'2038-01-19 03:14:07'", dt.datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)),
            ("'0000-00-00 00:00:00'", NOT_KEPT),
        ),
    ),
    *(
        Case(
            f"timestamp({digits}) NULL",
            "TIMESTAMP",
            (
                (f"'2020-02-29 12:34:56.{'9' * digits}'", dt.datetime(2020, 2, 29, 12, 34, 56, micros, tzinfo=UTC)),
                ("'0000-00-00 00:00:00'", NOT_KEPT),
                ("'1970-01-01 00:00:01'", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            ),
        )
        for digits, micros in ((n, int(("9" * n).ljust(6, "0"))) for n in range(1, 7))
    ),
    Case(
        "time",
        "STRING",
        tuple((f"'{t}'", t) for t in ("00:00:00", "23:59:59", "838:59:59", "-838:59:59", "-00:00:01", "100:00:00")),
    ),
    *(
        Case(
            f"time({digits})",
            "STRING",
            tuple(
                (f"'{t}'", t)
                for t in (
                    f"12:34:56.{'789123'[:digits]}",
                    f"-12:34:56.{'789123'[:digits]}",
                    f"-00:00:00.{'000001'.rjust(6, '0')[-digits:]}",
                    f"00:00:00.{'0' * digits}",
                    f"-838:59:58.{'9' * digits}",
                    f"-01:00:00.{'0' * digits}",
                )
            ),
        )
        for digits in range(1, 7)
    ),
)

_DOCUMENTS = (
    Case(
        "json",
        "STRING",
        (
            *((quoted(t), t) for t in _JSON_PLAIN),
            ('\'{"bb": 1, "a": 2, "a": 3,"":0}\'', '{"": 0, "a": 3, "bb": 1}'),
            ("'[1.0, 1e20, 0.1, -1.5e-7, 100000000000000000000]'", "[1.0, 1e20, 0.1, -0.00000015, 1e20]"),
            (
                '\'"\\\\u00e9 \\\\\\" \\\\\\\\ \\\\/ \\\\n\\\\t\\\\b\\\\f\\\\r \\\\u0001 🚰"\'',
                '"é \\" \\\\ / \\n\\t\\b\\f\\r \\u0001 🚰"',
            ),
            ("CAST(CAST(1.50 AS DECIMAL(10,2)) AS JSON)", "1.50"),
            ("CAST(DATE'2020-02-29' AS JSON)", '"2020-02-29"'),
            ("CAST(TIMESTAMP'2020-02-29 12:34:56.5' AS JSON)", '"2020-02-29 12:34:56.500000"'),
            ("CAST(TIME'-838:59:58.9' AS JSON)", '"-838:59:58.900000"'),
            ("CAST(CAST('abc' AS BINARY) AS JSON)", '"base64:type15:YWJj"'),
            ("CAST(b'101' AS JSON)", '"base64:type15:BQ=="'),
            ("JSON_ARRAY(repeat('x', 70000))", '["' + "x" * 70_000 + '"]'),
            ("JSON_OBJECT('k', repeat('y', 200))", '{"k": "' + "y" * 200 + '"}'),
        ),
        MYSQL,
    ),
    Case(
        "json",
        "STRING",
        (*((quoted(t), t) for t in _JSON_PLAIN), ('\'{"b" : 1,  "b":2}\'', '{"b" : 1,  "b":2}')),
        MARIADB,
    ),
    Case(
        "uuid",
        "STRING",
        tuple(
            (f"'{u}'", u.lower())
            for u in (
                "00000000-0000-0000-0000-000000000000",
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "6ccd780c-baba-1026-9564-5b8c656024db",
                "018f3f5c-7d3a-7bbb-9f00-0123456789ab",
                "ffffffff-ffff-ffff-ffff-ffffffffffff",
            )
        ),
        MARIADB,
    ),
    Case(
        "inet4",
        "STRING",
        tuple((f"'{a}'", a) for a in ("0.0.0.0", "10.0.0.1", "255.255.255.255", "32.32.32.32")),
        MARIADB,
    ),
    Case(
        "inet6",
        "STRING",
        tuple(
            (f"'{a}'", a)
            for a in (
                "::",
                "::1",
                "2001:db8::ff00:42:8329",
                "::ffff:192.0.2.128",
                "2020:2020:2020:2020:2020:2020:2020:2020",
            )
        ),
        MARIADB,
    ),
)

CASES: tuple[Case, ...] = (*_NUMBERS, *_TEXTS, *_BINARIES, *_TIMES, *_DOCUMENTS)


def cases(flavour: str) -> tuple[Case, ...]:
    """The cases of one flavour: `mysql` or `mariadb`."""
    return tuple(c for c in CASES if flavour in c.flavours)
