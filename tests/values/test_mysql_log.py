"""Every type of MySQL and MariaDB from the log, against what the servers themselves print. On real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.decode.changes import decode_changes
from headwater.decode.mysql.texts import float_text
from headwater.decode.mysql.types import lake_type
from headwater.errors import DataError
from headwater.model import Column, Op, Span, UpstreamType
from support.before import decode_before
from support.mysql import MyDatabase
from support.mysql_scan import bench
from support.mysql_types import NOT_KEPT, Case
from support.mysql_values import TableLog, columns_of, fill, run, same

HEX = frozenset({"bit", "geometry", "vector"})


@pytest.fixture
def typed(my_database: MyDatabase) -> tuple[MyDatabase, dict[str, Case], tuple[Column, ...], TableLog]:
    log = TableLog(my_database, "t")
    named = fill(my_database, my_database.server.name)
    return my_database, named, columns_of(my_database, "t"), log


def printed(database: MyDatabase, column: Column) -> list[str | None]:
    """The column as SELECT prints it."""
    name, type_ = column.name, column.upstream
    if type_.name in ("float", "double"):
        rows = database.execute(f"SELECT {name} * 1e0 FROM t ORDER BY id")
        return [None if v is None else float_text(v) for (v,) in rows]
    expression = f"CONCAT({name})"
    if type_.name == "bit":
        expression = f"CONCAT('0x', HEX(CAST({name} AS BINARY)))"
    elif type_.charset == "binary" or type_.name in HEX:
        expression = f"CONCAT('0x', HEX({name}))"
    elif type_.unsigned and type_.name != "decimal":
        expression = f"CONCAT({name} + 0)"
    rows = database.execute(f"SELECT CONVERT({expression} USING utf8mb4) FROM t ORDER BY id")
    return [v.decode() if isinstance(v, bytes) else v for (v,) in rows]


def test_every_type_gives_its_documented_value(typed: Any) -> None:
    _, named, columns, log = typed
    changes = log.changes(columns)
    changes.table.validate(full=True)
    types = {c.name: c.lake_type for c in columns}
    assert {n: types[n] for n in named} == {n: c.lake for n, c in named.items()}
    wrong = []
    for name, case in named.items():
        expected = [v for _, v in case.values] + [None] * (changes.table.num_rows - len(case.values))
        literals = [text for text, _ in case.values] + ["NULL"] * 99
        got = changes.table.column(name).to_pylist()
        wrong += [
            (case.ddl, literal, g) for g, e, literal in zip(got, expected, literals, strict=False) if not same(g, e)
        ]
    assert not wrong
    unrepresentable = {n: count for n, c in named.items() if (count := sum(v is NOT_KEPT for _, v in c.values))}
    assert changes.unrepresentable == unrepresentable


def test_every_type_may_be_declared_string_and_keeps_the_text_that_select_prints(typed: Any) -> None:
    database, named, columns, log = typed
    texts = columns_of(database, "t", dict.fromkeys(named, "STRING"))
    changes = log.changes(texts)
    assert changes.unrepresentable == {}
    for column in columns[1:]:
        assert changes.table.column(column.name).to_pylist() == printed(database, column), named[column.name].ddl


@pytest.mark.parametrize("declared", ["default", "STRING"])
def test_a_scan_gives_the_same(typed: Any, tmp_path: Path, declared: str) -> None:
    database, named, _, log = typed
    lake = dict.fromkeys(named, "STRING") if declared == "STRING" else {}
    scanned = bench(database, tmp_path, "t", lake=lake).scan_all([Span(None, None)])
    logged = log.changes(columns_of(database, "t", lake)).table.select(["id", *named]).to_pylist()
    wrong = [
        (named[n].ddl, s[n], g[n]) for s, g in zip(scanned, logged, strict=True) for n in named if not same(s[n], g[n])
    ]
    assert not wrong


def test_updates_deletes_and_key_changes_are_told_apart(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (v varchar(300), b int, n int, a varchar(9), PRIMARY KEY (a, b))")
    log = TableLog(my_database, "t")
    run(
        my_database,
        "INSERT INTO t VALUES ('x', 1, NULL, 'k'), (NULL, 2, 5, 'k')",
        "UPDATE t SET n = 7",
        "UPDATE t SET a = 'K', v = NULL WHERE b = 1",
        "DELETE FROM t WHERE b = 2",
        "TRUNCATE t",
    )
    raw = log.read()
    columns, key = columns_of(my_database, "t"), ("a", "b")
    changes = decode_changes(raw, log.schemas, columns, key)
    rows = changes.table.to_pylist()
    assert [(r["__op"], r["v"], r["b"], r["n"], r["a"], r["__old"]) for r in rows] == [
        (Op.INSERT, "x", 1, None, "k", None),
        (Op.INSERT, None, 2, 5, "k", None),
        (Op.UPDATE, "x", 1, 7, "k", None),
        (Op.UPDATE, None, 2, 7, "k", None),
        (Op.UPDATE, None, 1, 7, "K", {"a": "k", "b": 1}),
        (Op.DELETE, None, 2, None, "k", None),
        (Op.TRUNCATE, None, None, None, None, None),
    ]
    assert all(r["__missing"] is None for r in rows) and changes.unrepresentable == {}
    before = decode_before(raw, log.schemas, columns, key).to_pylist()
    assert before[:2] == [None, None] and before[6] is None
    assert before[2] == {"v": "x", "b": 1, "n": None, "a": "k"}
    assert before[5] == {"v": None, "b": 2, "n": 7, "a": "k"}


GOES_ON = [
    ("smallint unsigned", "mediumint", "65535", 65535),
    ("mediumint", "int", "7", 7),
    ("varchar(10)", "varchar(300)", "'ä '", "ä "),
    ("char(3)", "varchar(3)", "'ab'", "ab"),
    ("varchar(10)", "text", "'x '", "x "),
    ("tinytext", "longtext", "'x'", "x"),
    ("varchar(10) CHARACTER SET latin1", "varchar(10) CHARACTER SET utf8mb4", "'ß'", "ß"),
    ("varchar(10) CHARACTER SET utf8mb3", "varchar(10) CHARACTER SET utf16", "'€'", "€"),
    ("binary(2)", "varbinary(5)", "x'0100'", b"\1\0"),
    ("varbinary(5)", "mediumblob", "x'0100'", b"\1\0"),
    ("enum('a','b')", "enum('c','b','a')", "'a'", "a"),
    ("set('a','b')", "set('a','b','c')", "'a,b'", "a,b"),
    ("datetime", "datetime(3)", "'2020-01-01 10:00:00'", None),
    ("bit(3)", "bit(8)", "b'101'", b"\5"),
]
STOPS = [
    ("int", "bigint"),
    ("tinyint unsigned", "int unsigned"),
    ("float", "double"),
    ("decimal(10,2)", "decimal(14,4)"),
    ("bigint", "int"),
    ("int", "int unsigned"),
    ("int unsigned", "int"),
    ("double", "float"),
    ("decimal(10,2)", "decimal(10,3)"),
    ("varchar(10)", "varchar(5)"),
    ("varchar(10)", "char(10)"),
    ("text", "varchar(100)"),
    ("varchar(300)", "tinytext"),
    ("varchar(10)", "varbinary(40)"),
    ("varchar(10) CHARACTER SET utf8mb4", "varchar(10) CHARACTER SET latin1"),
    ("binary(2)", "binary(4)"),
    ("enum('a','b')", "enum('b','c')"),
    ("set('a','b')", "set('b','a')"),
    ("time", "time(3)"),
    ("datetime", "timestamp NULL"),
    ("bit(8)", "bit(9)"),
    ("date", "datetime"),
    ("int", "varchar(20)"),
]


def unlogged(statement: str) -> tuple[str, ...]:
    """Kept out of the log, so that only the description of the rows tells of it."""
    return ("SET sql_log_bin = 0", statement, "SET sql_log_bin = 1")


@pytest.mark.parametrize(("old", "new", "literal", "value"), GOES_ON, ids=lambda v: str(v))
def test_a_wider_type_upstream_goes_on(
    mariadb_database: MyDatabase, old: str, new: str, literal: str, value: Any
) -> None:
    database = mariadb_database
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {old}) DEFAULT CHARACTER SET utf8mb4")
    log, columns = TableLog(database, "t"), columns_of(database, "t")
    altered = unlogged(f"ALTER TABLE t MODIFY c {new}")
    run(database, f"INSERT INTO t VALUES (1, {literal})", *altered, "UPDATE t SET id = 2")
    changes = log.changes(columns)
    first, second = changes.table.column("c").to_pylist()
    assert same(first, second) and changes.unrepresentable == {}
    assert value is None or same(first, value)
    assert changes.table.schema.field("c").type == changes.table.column("c").type


@pytest.mark.parametrize(("old", "new"), STOPS, ids=lambda v: str(v))
def test_any_other_change_of_a_type_stops_the_table(mariadb_database: MyDatabase, old: str, new: str) -> None:
    database = mariadb_database
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, c {old}) DEFAULT CHARACTER SET utf8mb4")
    log, columns = TableLog(database, "t"), columns_of(database, "t")
    run(database, *unlogged(f"ALTER TABLE t MODIFY c {new}"), "INSERT INTO t (id) VALUES (1)")
    with pytest.raises(DataError) as caught:
        log.changes(columns)
    assert caught.value.code == "data.schema_changed"


def test_a_type_that_grew_goes_on_where_the_declared_type_holds_all_of_it(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY, i int, d decimal(4,1), f float)")
    log = TableLog(my_database, "t")
    columns = columns_of(my_database, "t", {"i": "BIGINT", "d": "DECIMAL(9,3)", "f": "DOUBLE"})
    run(
        my_database,
        "SET sql_mode = 'STRICT_ALL_TABLES'",
        "ALTER TABLE t MODIFY i bigint, MODIFY d decimal(9,3), MODIFY f double",
        "INSERT INTO t VALUES (2, 2147483648, 1.25, 0.1)",
    )
    changes = log.changes(columns)
    (row,) = changes.table.to_pylist()
    assert (row["i"], str(row["d"]), row["f"], changes.unrepresentable) == (2147483648, "1.250", 0.1, {})


def test_a_key_that_the_lake_cannot_keep_is_an_error(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id date PRIMARY KEY, n int)")
    log, columns = TableLog(my_database, "t"), columns_of(my_database, "t")
    run(my_database, "INSERT INTO t VALUES ('2020-02-00', 1)")
    raw = log.read()
    with pytest.raises(DataError, match="id") as caught:
        decode(raw, log, columns)
    assert caught.value.code == "data.key_value"
    text = columns_of(my_database, "t", {"id": "STRING"})
    assert decode(raw, log, text).table.column("id").to_pylist() == ["2020-02-00"]


def test_compressed_columns_are_read_as_they_are_stored(mariadb_database: MyDatabase) -> None:
    database = mariadb_database
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(2000) COMPRESSED, b blob COMPRESSED)"
        " DEFAULT CHARACTER SET utf8mb4"
    )
    log = TableLog(database, "t")
    run(
        database,
        "INSERT INTO t VALUES (1, repeat('ß', 900), repeat(x'00', 900)), (2, 'short', ''), (3, NULL, NULL)",
        "SET column_compression_zlib_wrap = ON",
        "INSERT INTO t VALUES (4, repeat('ab', 900), 'b')",
    )
    types = {
        "id": UpstreamType("int", 3, dialect="mysql"),
        "v": UpstreamType("varchar", 15, length=2000, charset="utf8mb4", dialect="mysql"),
        "b": UpstreamType("blob", 252, charset="binary", dialect="mysql"),
    }
    changes = log.changes(tuple(Column(n, lake_type(t), t) for n, t in types.items()))
    assert changes.table.column("v").to_pylist() == ["ß" * 900, "short", None, "ab" * 900]
    assert changes.table.column("b").to_pylist() == [b"\0" * 900, b"", None, b"b"]


def decode(raw: pa.Table, log: TableLog, columns: tuple[Column, ...]) -> Any:
    return decode_changes(raw, log.schemas, columns, ("id",))
