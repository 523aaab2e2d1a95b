"""Random values of many types of each kind of database, as strategies: what a column of the type can be given."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from support.mysql_case import quoted

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


# Python values, which the driver passes on
POSTGRES: Mapping[str, st.SearchStrategy[Any]] = {
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
        lambda v: json.dumps(v).replace("\\u0000", "")
    ),
    "oid": st.integers(0, 2**32 - 1),
    "integer[]": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=5),
    "text[]": st.lists(st.none() | TEXT, max_size=5),
    "double precision[]": st.lists(FLOAT, max_size=4),
    "bytea[]": st.lists(st.binary(max_size=5), max_size=3),
    "timestamptz[]": st.lists(moments(), max_size=3),
}
# Those whose values the lake holds as they were given
POSTGRES_EXACT = ("boolean", "smallint", "integer", "bigint", "double precision", "text", "bytea", "text[]", "oid")


def text(r: random.Random, low: int = 32, high: int = 0x2FFF) -> str:
    return "".join(chr(r.randint(low, high)) for _ in range(r.randint(0, 12)))


def clock(r: random.Random, digits: int) -> str:
    return f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}.{r.randint(0, 10**digits - 1):0{digits}}"


def day(r: random.Random) -> str:
    return f"{r.randint(0, 9999):04}-{r.randint(0, 12):02}-{r.randint(0, 31):02}"


def digits(r: random.Random, whole: int, fraction: int) -> str:
    sign = r.choice(["", "-"])
    return f"{sign}{r.randint(0, 10 ** r.randint(0, whole) - 1)}.{r.randint(0, 10**fraction - 1):0{fraction}}"


def blob(r: random.Random, most: int) -> str:
    return f"x'{r.randbytes(r.randint(0, most)).hex()}'"


LITERALS: dict[str, Callable[[random.Random], str]] = {
    "tinyint": lambda r: str(r.randint(-(2**7), 2**7 - 1)),
    "tinyint(1)": lambda r: str(r.randint(-1, 2)),
    "smallint unsigned": lambda r: str(r.randint(0, 2**16 - 1)),
    "mediumint": lambda r: str(r.randint(-(2**23), 2**23 - 1)),
    "bigint": lambda r: str(r.randint(-(2**63), 2**63 - 1)),
    "bigint unsigned": lambda r: str(r.randint(0, 2**64 - 1)),
    "decimal(20,5)": lambda r: digits(r, 15, 5),
    "decimal(38,19)": lambda r: digits(r, 19, 19),
    "decimal(60,25)": lambda r: digits(r, 35, 25),
    "float": lambda r: f"{r.uniform(-10, 10)}e{r.randint(-30, 30)}",
    "double": lambda r: f"{r.uniform(-10, 10)}e{r.randint(-300, 300)}",
    "bit(19)": lambda r: str(r.randint(0, 2**19 - 1)),
    "char(20)": lambda r: quoted(text(r)),
    "varchar(20)": lambda r: quoted(text(r)),
    "varchar(30) CHARACTER SET latin1": lambda r: quoted(text(r, 32, 126)),
    "mediumtext CHARACTER SET utf16": lambda r: quoted(text(r)),
    "binary(9)": lambda r: blob(r, 9),
    "varbinary(300)": lambda r: blob(r, 300),
    "blob": lambda r: blob(r, 99),
    "date": lambda r: f"'{day(r)}'",
    "datetime(5)": lambda r: f"'{day(r)} {clock(r, 5)}'",
    "timestamp(2) NULL": lambda r: (
        f"'20{r.randint(0, 37):02}-{r.randint(1, 12):02}-{r.randint(1, 28):02} {clock(r, 2)}'"
    ),
    "time(4)": lambda r: f"'{r.choice(['', '-'])}{r.randint(0, 837)}{clock(r, 4)[2:]}'",
    "year": lambda r: str(r.choice([0, r.randint(1901, 2155)])),
    "enum('a','b','ü')": lambda r: str(r.randint(1, 3)),
    "set('a','b','ü')": lambda r: str(r.randint(0, 7)),
}


def _drawn(make: Callable[[random.Random], str]) -> st.SearchStrategy[str]:
    return st.integers(0, 2**32 - 1).map(lambda seed: make(random.Random(seed)))


# Literals
MYSQL: Mapping[str, st.SearchStrategy[Any]] = {type_: _drawn(make) for type_, make in LITERALS.items()}
