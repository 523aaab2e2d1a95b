"""Every type of MySQL and MariaDB with its nastiest values, and what the lake holds for each.

Create the table with `TABLE` after its columns (the servers' default charsets differ) and insert under `SESSION`: only
there do the servers accept zero dates and invalid dates.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from support.mysql_case import BOTH, MARIADB, MYSQL, NOT_KEPT, Case, quoted
from support.mysql_strings import BINARIES, DOCUMENTS, TEXTS

__all__ = ["BOTH", "CASES", "MARIADB", "MYSQL", "NOT_KEPT", "SESSION", "TABLE", "Case", "cases", "quoted"]

UTC = dt.UTC
TABLE = "DEFAULT CHARACTER SET utf8mb4"
SESSION = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', character_set_client = utf8mb4"


def _integers(name: str, lake: str, low: int, high: int) -> Case:
    return Case(name, lake, tuple((str(v), v) for v in (low, high, 0, 1, high // 3)))


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

CASES: tuple[Case, ...] = (*_NUMBERS, *TEXTS, *BINARIES, *_TIMES, *DOCUMENTS)


def cases(flavour: str) -> tuple[Case, ...]:
    """The cases of one flavour: `mysql` or `mariadb`."""
    return tuple(c for c in CASES if flavour in c.flavours)
