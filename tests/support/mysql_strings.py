"""The string types of MySQL and MariaDB: text in every charset, bytes, documents, addresses."""

from __future__ import annotations

import struct

from support.mysql_case import MARIADB, MYSQL, Case, quoted


def _text(ddl: str, *texts: str) -> Case:
    return Case(ddl, "STRING", tuple((quoted(t), t) for t in texts))


def _charset(charset: str, *texts: str) -> Case:
    return _text(f"varchar(40) CHARACTER SET {charset}", "", "plain", *texts)


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

TEXTS = (
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
    Case("char(4) CHARACTER SET utf16", "STRING", (("'a€🚰 '", "a€🚰"), ("''", ""), ("'Ġ†'", "Ġ†"))),
    Case(
        "enum('sad','so so','ha''ppy','€','')",
        "STRING",
        (("'so so'", "so so"), ("'ha''ppy'", "ha'ppy"), ("'€'", "€"), ("''", ""), ("'sad'", "sad")),
    ),
    _text("enum('a','b')", "b", "a"),
    _text("set('a','b')", "a,b", "", "b"),
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

BINARIES = (
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

DOCUMENTS = (
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
