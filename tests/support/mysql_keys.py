"""Tables for every shape of key of MySQL and MariaDB: how each is declared and filled."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.source.mysql.client.session import quote_identifier
from support.mysql import MyDatabase
from support.mysql_types import BOTH, MARIADB, MYSQL, quoted

ROWS = 230


@dataclass(frozen=True)
class Shape:
    """`columns` and `key` declare the table, `values` gives the key columns of row `i` as literals."""

    columns: str
    key: str
    values: Callable[[int], str]
    rows: int = ROWS
    ordered: bool | None = None  # whether the lake can tell the spans apart; None: not asserted
    alone: bool = True  # whether a row can be read by its key as the lake prints it
    flavours: frozenset[str] = BOTH
    table: str = "t"
    unique: bool = False  # the key is a unique key without NULLs, not the primary key; `more` are further indexes
    more: str = ""


def one(declaration: str, values: Callable[[int], str], **more: object) -> Shape:
    """A key of one column, `id`."""
    return Shape(f"id {declaration}", "id", values, **more)  # type: ignore[arg-type]


def shuffled(i: int) -> int:
    """Distinct for all rows, in no order."""
    return i * 7919 % 10007


def digest(i: int) -> str:
    return hashlib.md5(str(i).encode()).hexdigest()


def word(i: int) -> str:
    """Distinct under any collation, and in another order under each: cases, accents, other scripts, signs, spaces."""
    start = ("a", "B", "é", "Z", "z", "ß", "日", "😀", "_", "-", "'", "\\", "a b", "%")[i % 14]
    text = f"{start}{shuffled(i)}"
    return text.upper() if i % 2 else text


def words(i: int) -> str:
    return quoted(word(i))


def latin(i: int) -> str:
    return f"{'äÖßéa~'[i % 6]}{shuffled(i)}{'Ÿ' * (i % 3)}"


UTF8 = "varchar(60) CHARACTER SET utf8mb4 COLLATE "
SHAPES: dict[str, Shape] = {
    "int_dense": one("int", lambda i: str(i - 100), ordered=True),
    "int_sparse": one("bigint", lambda i: str(i * 1000003 * 1000 - 5), ordered=True),
    "tinyint_1": one("tinyint(1)", lambda i: str(i - 115), ordered=True),
    "bigint_unsigned_around_2_63": one("bigint unsigned", lambda i: str(2**63 - 115 + i), ordered=True),
    "bigint_unsigned_whole_range": one("bigint unsigned", lambda i: str((2**64 - 1) // ROWS * i), ordered=True),
    "int_zerofill": one("int(8) unsigned zerofill", lambda i: str(shuffled(i) * 400_000), ordered=True),
    "decimal": one("decimal(20,4)", lambda i: f"{(shuffled(i) - 5000) / 7:.4f}", ordered=True),
    "decimal_long": one("decimal(65,30)", lambda i: f"{'-' * (i % 2)}{i}{'7' * 30}.{i:030d}", ordered=False),
    "double": one("double", lambda i: f"{(i - 100) ** 5 / 3!r}"),
    "float": one("float", lambda i: f"{(i - 100) / 7}"),
    "text": one(UTF8 + "utf8mb4_general_ci", words, ordered=False),
    "varchar_unicode_ci": one(UTF8 + "utf8mb4_unicode_ci", words, ordered=False),
    "varchar_0900": one(UTF8 + "utf8mb4_0900_ai_ci", words, ordered=False, flavours=MYSQL),
    "varchar_uca1400": one(UTF8 + "uca1400_ai_ci", words, ordered=False, flavours=MARIADB),
    "varchar_bin": one(UTF8 + "utf8mb4_bin", words),
    "varchar_0900_bin": one(UTF8 + "utf8mb4_0900_bin", words, ordered=True, flavours=MYSQL),
    "varchar_nopad_bin": one(UTF8 + "utf8mb4_nopad_bin", words, ordered=True, flavours=MARIADB),
    "varchar_latin1": one(
        "varchar(60) CHARACTER SET latin1 COLLATE latin1_german1_ci", lambda i: quoted(latin(i)), ordered=False
    ),
    "varchar_utf16": one("varchar(60) CHARACTER SET utf16", lambda i: quoted(word(i)), ordered=False),
    "varchar_gbk": one(
        "varchar(60) CHARACTER SET gbk", lambda i: quoted(f"{'你好繁a'[i % 4]}{shuffled(i)}"), ordered=False
    ),
    "char_padded": one("char(12)", lambda i: quoted(str(shuffled(i)) + " " * (i % 3))),
    "varbinary": one("varbinary(40)", lambda i: f"x'{digest(i)[: 8 + i % 20 * 2]}{'00' * (i % 3)}'", ordered=True),
    "binary_16": one("binary(16)", lambda i: f"x'{digest(i)[: 20 + i % 5 * 2]}'", ordered=True),
    "date": one("date", lambda i: f"DATE'0044-03-15' + INTERVAL {i} DAY", ordered=True),
    "datetime": one(
        "datetime(6)", lambda i: f"TIMESTAMP'1969-12-31 23:59:00' + INTERVAL {i * 1000001} MICROSECOND", ordered=True
    ),
    "timestamp": one(
        "timestamp(3)", lambda i: f"TIMESTAMP'2024-10-27 00:00:00.5' + INTERVAL {i * 60} SECOND", ordered=True
    ),
    "time": one("time(3)", lambda i: f"'{'-' * (i % 2)}{i * 3:02d}:{i % 60:02d}:01.{i:03d}'", ordered=False),
    "bit": one("bit(20)", lambda i: str(shuffled(i)), ordered=True),
    "uuid": one("uuid", lambda i: f"'{uuid.UUID(digest(i), version=1 + i % 2 * 3)}'", ordered=False, flavours=MARIADB),
    "inet6": one("inet6", lambda i: f"'2001:db8::{i * 31:x}'", ordered=False, flavours=MARIADB),
    "enum": Shape(
        "id enum('sad','ok','ha''ppy','A','€'), n int",
        "id, n",
        lambda i: f"{quoted(('sad', 'ok', 'ha' + chr(39) + 'ppy', 'A', '€')[i % 5])}, {i}",
        ordered=False,
    ),
    "set": Shape("id set('b','a','c d','€'), n int", "id, n", lambda i: f"{i % 16}, {i}", ordered=False),
    "year": Shape("id year, n int", "id, n", lambda i: f"{1901 + i % 7}, {i}", ordered=True),
    "two_columns_first_constant": Shape(
        "a int, b varchar(20), v2 int", "a, b", lambda i: f"1, {quoted(str(shuffled(i)))}, 0"
    ),
    "two_columns_first_repeats": Shape(
        "a int, b bigint unsigned", "a, b", lambda i: f"{i % 3}, {2**64 - 1 - i}", ordered=True
    ),
    "three_columns": Shape(
        "a int, b varchar(9) COLLATE utf8mb4_general_ci, c date",
        "b, a, c",
        lambda i: f"{i % 3}, {quoted('same' if i % 4 else 'other')}, DATE'2020-01-01' + INTERVAL {i} DAY",
        ordered=False,
    ),
    "four_columns": Shape(
        "a int, b decimal(5,2), c binary(2), d datetime",
        "d, c, b, a",
        lambda i: f"{i % 2}, {i % 3}.50, x'000{i % 5}', TIMESTAMP'2020-01-01 00:00:00' + INTERVAL {i // 20} SECOND",
        rows=200,
        ordered=True,
    ),
    "unique_alone": Shape("id bigint NOT NULL", "id", lambda i: str(shuffled(i)), ordered=True, unique=True),
    "unique_among_others": Shape(
        "a int NOT NULL, b varchar(9) NOT NULL, c int",
        "b, a",
        lambda i: f"{i % 3}, {quoted(str(shuffled(i)))}, {i}",
        unique=True,
        more=", UNIQUE (c), UNIQUE (a, b, c), UNIQUE (b(2), a, c), PRIMARY KEY (v)",
    ),
    "odd_names": Shape(
        "`Select` int, `a b` varchar(9), `na``ïve%s{0}` int",
        "`a b`, `Select`",
        lambda i: f"{i}, '{i % 7}', {i}",
        table="or'd`er %s",
    ),
}


def fill(database: MyDatabase, shape: Shape) -> None:
    """A table of that shape; `v` numbers the rows, which are inserted in no key order."""
    name = quote_identifier(shape.table)
    numbers = sorted(range(1, shape.rows + 1), key=lambda i: (i * 31 % 101, i))
    with database.connect(charset="utf8mb4") as session, session.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        key = "UNIQUE declared" if shape.unique else "PRIMARY KEY"
        cursor.execute(f"CREATE TABLE {name} (v int, {shape.columns}, {key} ({shape.key}){shape.more}) CHARSET utf8mb4")
        if numbers:
            cursor.execute(f"INSERT INTO {name} VALUES {', '.join(f'({i}, {shape.values(i)})' for i in numbers)}")


def add(database: MyDatabase, shape: Shape, numbers: Iterable[int]) -> None:
    """Those rows of the table that are not there."""
    rows = ", ".join(f"({i}, {shape.values(i)})" for i in numbers)
    with database.connect(charset="utf8mb4") as session, session.cursor() as cursor:
        cursor.execute(f"INSERT IGNORE INTO {quote_identifier(shape.table)} VALUES {rows}")
