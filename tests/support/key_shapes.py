"""Tables for every shape of key of PostgreSQL: how each is declared and filled, and what the server has to bring."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.source.postgres.client.session import quote_identifier

ROWS = 230
_numbers = count(1)
LOCALE = "en_US"  # orders a < B < c, which is not byte order


@dataclass(frozen=True)
class Shape:
    """`columns` and `key` declare the table, `values` gives the key columns of row `i` in the columns' own order."""

    columns: str
    key: str
    values: str
    rows: int = ROWS
    analysed: bool = False  # otherwise the server has never analyzed the table
    dense: bool = False  # divided by arithmetic
    ordered: bool | None = None  # whether the lake can tell the spans apart; None: not asserted
    alone: bool = True  # whether a row can be read by its key as the lake prints it
    tail: str = ""  # of CREATE TABLE
    more: tuple[str, ...] = ()  # statements after CREATE TABLE
    table: str = "t"


def one(declaration: str, values: str, **more: object) -> Shape:
    """A key of one column, `id`."""
    return Shape(f"id {declaration}", "id", values, **more)  # type: ignore[arg-type]


SHUFFLED = "(i * 7919 % 10007)"  # distinct for all rows, in no order
WORD = f"chr(97 + i % 26) || CASE WHEN i % 2 = 0 THEN upper(md5({SHUFFLED}::text)) ELSE md5({SHUFFLED}::text) END"
UNICODE = f"(ARRAY['a','B','é','Z','z','ß','日','😀',' ','-','''','\\'])[1 + i % 12] || {SHUFFLED}"

# As the extension declares it, with its comparisons in SQL instead of C: the embedded server does not include it.
CITEXT = (
    "CREATE TYPE ext.citext",
    "CREATE FUNCTION ext.citextin(cstring) RETURNS ext.citext AS 'textin' LANGUAGE internal IMMUTABLE STRICT",
    "CREATE FUNCTION ext.citextout(ext.citext) RETURNS cstring AS 'textout' LANGUAGE internal IMMUTABLE STRICT",
    "CREATE FUNCTION ext.citextrecv(internal) RETURNS ext.citext AS 'textrecv' LANGUAGE internal STABLE STRICT",
    "CREATE FUNCTION ext.citextsend(ext.citext) RETURNS bytea AS 'textsend' LANGUAGE internal STABLE STRICT",
    "CREATE TYPE ext.citext (INPUT = ext.citextin, OUTPUT = ext.citextout, RECEIVE = ext.citextrecv, "
    "SEND = ext.citextsend, INTERNALLENGTH = VARIABLE, STORAGE = extended, CATEGORY = 'S', COLLATABLE = true)",
    "CREATE CAST (ext.citext AS text) WITHOUT FUNCTION AS IMPLICIT",
    "CREATE CAST (text AS ext.citext) WITHOUT FUNCTION AS ASSIGNMENT",
    "CREATE FUNCTION ext.citext_cmp(a ext.citext, b ext.citext) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS "
    "$$ BEGIN RETURN pg_catalog.bttextcmp(lower(a::text), lower(b::text)); END $$",
    *(
        f"CREATE FUNCTION ext.citext_{name}(a ext.citext, b ext.citext) RETURNS bool LANGUAGE plpgsql IMMUTABLE STRICT "
        f"AS $$ BEGIN RETURN lower(a::text) {sign} lower(b::text); END $$"
        for name, sign in {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}.items()
    ),
    *(
        f"CREATE OPERATOR ext.{sign} (LEFTARG = ext.citext, RIGHTARG = ext.citext, PROCEDURE = ext.citext_{name})"
        for name, sign in {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}.items()
    ),
    "CREATE OPERATOR CLASS ext.citext_ops DEFAULT FOR TYPE ext.citext USING btree AS OPERATOR 1 ext.<, "
    "OPERATOR 2 ext.<=, OPERATOR 3 ext.=, OPERATOR 4 ext.>=, OPERATOR 5 ext.>, "
    "FUNCTION 1 ext.citext_cmp(ext.citext, ext.citext)",
)


def can_compile_locale() -> bool:
    """Whether a locale can be compiled: the embedded server has no ICU and finds no locale, but libc accepts one."""
    return shutil.which("localedef") is not None and (Path("/usr/share/i18n/locales") / LOCALE).exists()


def compile_locale(folder: Path) -> None:
    """Puts the locale where the libc of a server started with LOCPATH=folder finds it."""
    command = ["localedef", "-i", LOCALE, "-f", "UTF-8", str(folder / f"{LOCALE}.UTF-8")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


COLLATED = f"collated_by_libc_{LOCALE}" if can_compile_locale() else "collated_absent_no_locale_on_this_machine"

SETUP = (
    "CREATE SCHEMA ext",
    *CITEXT,
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'A', 'a', 'Zebra')",
    "CREATE TYPE pair AS (a int, b text)",
    "CREATE DOMAIN word AS varchar(60)",
    f"CREATE COLLATION collated (provider = libc, locale = '{LOCALE}.UTF-8')"
    if can_compile_locale()
    else 'CREATE COLLATION collated FROM "C.utf8"',
)

LOW, HIGH = -(2**63), 2**63 - 1
FOUR = 'a int, b text COLLATE "C", c date, d int8'
SHAPES: dict[str, Shape] = {
    "int_dense": one("int", "i", analysed=True, dense=True, ordered=True),
    "int_dense_never_analysed": one("int", "i", ordered=True),
    "int4_negative": one("int", "i - 300", analysed=True, dense=True, ordered=True),
    "int2": one("smallint", "i * 50 - 15000", ordered=True),
    "int_sparse": one("bigint", "i::bigint * 1000003 * 1000 - 5", analysed=True, ordered=True),
    "int8_skewed": one("bigint", "CASE WHEN i % 9 = 0 THEN i * 10000000000 ELSE i END", analysed=True, ordered=True),
    "int8_both_limits": one(
        "bigint", f"CASE WHEN i % 2 = 0 THEN {LOW} + i - 2 ELSE {HIGH} - i + 1 END", analysed=True, ordered=True
    ),
    "int8_dense_at_the_lower_limit": one("bigint", f"{LOW} + i - 1", analysed=True, dense=True, ordered=True),
    "int8_dense_at_the_upper_limit": one("bigint", f"{HIGH} - i + 1", analysed=True, dense=True, ordered=True),
    "numeric_declared": one("numeric(38,10)", f"{SHUFFLED} / 7.0 - 500", ordered=True),
    "numeric_of_any_scale": one("numeric", f"round({SHUFFLED} / 13.0, i % 12) + i * 1e-15", ordered=False),
    "numeric_huge": one("numeric", f"{SHUFFLED} * 1e60 + i", ordered=False),
    "float8_with_infinity": one("float8", "CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' ELSE sqrt(i) - 9 END"),
    "float4": one("float4", "sqrt(i) - 9"),
    "uuid": one("uuid", "md5(i::text)::uuid", ordered=True),
    "text_C": one('text COLLATE "C"', UNICODE, ordered=True),
    "text": one("text", UNICODE, ordered=True),
    f"text_{COLLATED}": one("text COLLATE collated", WORD, ordered=not can_compile_locale() and None),
    f"varchar_{COLLATED}": one("varchar(80) COLLATE collated", UNICODE, ordered=not can_compile_locale() and None),
    "text_with_empty_and_blanks": one(
        'text COLLATE "C"', "repeat(' ', i % 3) || CASE WHEN i < 4 THEN '' ELSE i::text END"
    ),
    "text_long": one('text COLLATE "C"', f"repeat('x', 900) || {SHUFFLED}", ordered=True),
    "domain": one("word", f"'w' || {SHUFFLED}", ordered=True),
    "char_n": one("char(12)", f"{SHUFFLED}::text", ordered=False),
    f"char_n_{COLLATED}": one("char(40) COLLATE collated", f"left({WORD}, 20)", ordered=False),
    "name": one('name COLLATE "C"', f"'n' || {SHUFFLED}", ordered=True),
    "citext_declared_here_the_server_has_no_extension": one("ext.citext", WORD, ordered=False),
    "enum": Shape("m mood, n int", "m, n", "(enum_range(NULL::mood))[1 + i % 6], i", ordered=False),
    "bytea": one("bytea", "CASE i WHEN 1 THEN '' ELSE sha256(i::text::bytea) END", ordered=True),
    "bool": one("bool", "i = 1", rows=2, ordered=True),
    "bool_then_int": Shape("b bool, n int", "b, n", "i % 3 = 0, i", ordered=True),
    "date": one("date", "'0044-03-15'::date + i * 97", ordered=True),
    "timestamp": one("timestamp", "'1969-12-31 23:59:59.999999'::timestamp + i * interval '1.000001 s'", ordered=True),
    "timestamptz": one(
        "timestamptz", "'1999-12-31 23:59:59.000001+02'::timestamptz + i * interval '1 day'", ordered=True
    ),
    "time": one("time", "'00:00'::time + i * interval '1.000001 s'"),
    "timetz": one("timetz", "'00:00+05:30'::timetz + i * interval '1 s'"),
    "interval": one("interval", f"{SHUFFLED} * interval '1 hour' - interval '30 days'", ordered=False),
    "inet": one("inet", f"'10.0.0.0'::inet + {SHUFFLED}"),
    "bit": one("bit(16)", f"{SHUFFLED}::bit(16)"),
    "jsonb": one("jsonb", f"jsonb_build_object('a', {SHUFFLED})"),
    "array": one("int[]", f"ARRAY[i % 5, {SHUFFLED}]", alone=False),  # the lake prints a list, not an array literal
    "composite_type": one("pair", f"ROW(i % 5, 'x' || {SHUFFLED})::pair"),
    "range": one("int4range", f"int4range({SHUFFLED}, {SHUFFLED} + 5)"),
    "oid": one("oid", "i"),
    "pg_lsn": one("pg_lsn", f"'0/0'::pg_lsn + {SHUFFLED}"),
    "two_columns_first_repeats": Shape("a int, b int", "a, b", "i % 3, i", ordered=True),
    "two_columns_first_constant": Shape("a text, b int", "a, b", "'same', i", ordered=True),
    "two_columns_second_constant": Shape("a int, b int", "a, b", "i, 7", ordered=True),
    "three_columns_two_constant": Shape(
        "a int, b uuid, c int", "a, b, c", f"1, md5('x')::uuid, {SHUFFLED}", ordered=True
    ),
    "three_columns_in_another_order": Shape(
        "a int, b text, c date", "c, a, b", "i % 3, 'b' || i % 7, '2020-01-01'::date + i / 21", ordered=True
    ),
    "four_columns_in_another_order": Shape(
        FOUR, "d, b, a, c", "i % 2, 'b' || i % 3, '2020-01-01'::date + i / 12, (i % 12) / 6", ordered=True
    ),
    "four_columns_with_collated": Shape(
        "a text COLLATE collated, b numeric, c timestamptz, d char(5)",
        "a, d, b, c",
        "(ARRAY['a','B','c'])[1 + i % 3], i % 4 / 3.0, '2020-01-01Z'::timestamptz + i * interval '1 s', (i % 5)::text",
        ordered=False,
    ),
    "two_columns_with_citext": Shape(
        "a ext.citext, b int", "a, b", "(ARRAY['a','B','c'])[1 + i % 3], i", ordered=False
    ),
    "three_columns_with_citext_in_the_middle": Shape(
        "a int, b ext.citext, c int", "a, b, c", "i % 2, (ARRAY['a','B','c'])[1 + i % 3], i", ordered=False
    ),
    "key_with_included_column": Shape("a int, b int", "a) INCLUDE (b", "i, -i", ordered=True),
    "quoted_names": Shape(
        '"Select" int, "a ""b""" text, "naïve Ключ" int, scanned int, __key_text_0 int',
        '"a ""b""", "Select", scanned',
        "i, 'x' || i % 7, i, 1, 2",
        ordered=True,
        table='Tâble "of" 日本',
    ),
    "upper_case_date_key": Shape('"ID" date', '"ID"', "'2000-01-01'::date + i", table="UPPER", ordered=True),
    "hash_partitions": one(
        "int",
        "i",
        analysed=True,
        dense=True,
        tail="PARTITION BY HASH (id)",
        more=tuple(
            f"CREATE TABLE {{schema}}.p{n} PARTITION OF {{table}} FOR VALUES WITH (MODULUS 3, REMAINDER {n})"
            for n in range(3)
        ),
    ),
    "range_partitions_nested": Shape(
        "a int, b text",
        "b, a",
        "i, 'b' || i % 5",
        tail="PARTITION BY RANGE (a)",
        more=(
            "CREATE TABLE {schema}.low PARTITION OF {table} FOR VALUES FROM (MINVALUE) TO (200) PARTITION BY LIST (b)",
            "CREATE TABLE {schema}.low_1 PARTITION OF {schema}.low FOR VALUES IN ('b1', 'b2')",
            "CREATE TABLE {schema}.low_rest PARTITION OF {schema}.low DEFAULT",
            "CREATE TABLE {schema}.rest PARTITION OF {table} DEFAULT",
        ),
    ),
}


def fill(database: Any, shape: Shape) -> str:
    """A table of that shape in a schema of its own, which is returned; `v` numbers the rows."""
    schema = f"s{next(_numbers)}"
    name = f"{schema}.{quote_identifier(shape.table)}"
    database.execute(f"CREATE SCHEMA {schema}")
    database.execute(f"CREATE TABLE {name} (v int, {shape.columns}, PRIMARY KEY ({shape.key})) {shape.tail}")
    for statement in shape.more:
        database.execute(statement.format(table=name, schema=schema))
    # Rows arrive in no order of the key.
    numbers = f"(SELECT g FROM generate_series(1, {shape.rows}) g ORDER BY g * 31 % 101, g) x(i)"
    database.execute(f"INSERT INTO {name} SELECT i, {shape.values} FROM {numbers}")
    if shape.analysed:
        database.execute(f"ANALYZE {name}")
    return schema


@contextmanager
def server() -> Iterator[EmbeddedPostgres]:
    """A server that counts no table by itself, and finds a collated locale where the machine can make one."""
    with tempfile.TemporaryDirectory(prefix="headwater-locales-") as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o755)  # the server may run as another user
        if can_compile_locale():
            compile_locale(Path(folder))
        patch.setenv("LOCPATH", folder)
        with EmbeddedPostgres(18, {"fsync": "off", "autovacuum": "off"}, database="own") as made:
            patch.delenv("LOCPATH")
            for statement in SETUP:
                made.execute(statement)
            yield made
