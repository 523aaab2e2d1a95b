"""Rows in the logs of MySQL and MariaDB: types that change, before-images, compressed columns. On real servers."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.decode.mysql.types import lake_type
from headwater.errors import DataError
from headwater.model import Column, UpstreamType
from support.before import decode_before
from support.mysql import MyDatabase
from support.mysql_values import TableLog, columns_of, run, same

HEX = frozenset({"bit", "geometry", "vector"})


def test_the_row_as_it_was_comes_with_every_update_and_delete(my_database: MyDatabase) -> None:
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
    before = decode_before(log.read(), log.schemas, columns_of(my_database, "t"), ("a", "b")).to_pylist()
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
def test_a_wider_type_upstream_is_followed(
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


def test_a_type_that_grew_is_followed_where_the_declared_type_holds_all_of_it(my_database: MyDatabase) -> None:
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
