"""The catalog of MySQL and MariaDB: which tables can be followed, how, and what is said about the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.demo.mariadb import EmbeddedServer
from headwater.errors import HeadwaterError
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.catalog import watch
from headwater.source.mysql.catalog.find import find_table
from headwater.source.mysql.catalog.types import labels
from headwater.source.upstream import FoundTable
from support.mysql import MyDatabase

TYPES: tuple[tuple[str, str, int, dict[str, object]], ...] = (
    ("tinyint(1)", "tinyint", 1, {"length": 1, "unsigned": False}),
    ("tinyint(3) unsigned", "tinyint", 1, {"length": None, "unsigned": True}),
    ("mediumint", "mediumint", 9, {"length": None}),
    ("int unsigned zerofill", "int", 3, {"unsigned": True}),
    ("decimal(65,30) unsigned", "decimal", 246, {"precision": 65, "scale": 30, "unsigned": True, "ordered": False}),
    ("float", "float", 4, {"ordered": False}),
    ("double", "double", 5, {"ordered": False}),
    ("bit(9)", "bit", 16, {"length": 9}),
    ("year", "year", 13, {"ordered": True}),
    ("date", "date", 10, {"ordered": True}),
    ("datetime(3)", "datetime", 18, {"scale": 3, "ordered": True}),
    ("timestamp(6) null", "timestamp", 17, {"scale": 6, "ordered": True}),
    ("time", "time", 19, {"scale": 0, "ordered": False}),
    ("char(3) character set gbk", "char", 254, {"length": 3, "charset": "gbk", "textual": True}),
    (
        "varchar(9) character set utf8mb4 collate utf8mb4_bin",
        "varchar",
        15,
        {"ordered": False, "charset": "utf8mb4"},
    ),
    ("varchar(9) character set utf8mb4 collate utf8mb4_0900_bin", "varchar", 15, {"ordered": True}),
    ("char(9) character set utf8mb4 collate utf8mb4_0900_bin", "char", 254, {"ordered": False}),
    ("mediumtext", "mediumtext", 252, {"textual": True}),
    ("binary(16)", "binary", 254, {"length": 16, "charset": "binary", "ordered": True}),
    ("varbinary(7)", "varbinary", 15, {"length": 7, "charset": "binary", "ordered": True, "textual": False}),
    ("longblob", "longblob", 252, {"charset": "binary"}),
    ("enum('b','a')", "enum", 247, {"labels": ("b", "a"), "ordered": False}),
    ("set('x','y')", "set", 248, {"labels": ("x", "y")}),
    ("point", "geometry", 255, {"charset": ""}),
    ("geometrycollection", "geometry", 255, {}),
)


def find(
    database: MyDatabase, name: str, columns: Sequence[str] | None = None, key: Sequence[str] = (), **options: str
) -> FoundTable:
    given = {**database.options, **{k.replace("_", "."): v for k, v in options.items()}}
    with database.endpoint.connect() as session:
        return find_table(session, database.name, name, columns, key, given)


def refusal(
    database: MyDatabase, name: str, columns: Sequence[str] | None = None, key: Sequence[str] = (), **options: str
) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as e:
        find(database, name, columns, key, **options)
    assert e.value.hint.endswith((".", ";")), "a hint is a sentence or a statement"
    return e.value


def is_mariadb(database: MyDatabase) -> bool:
    return database.server.name == "mariadb"


def test_types_are_described_as_the_log_describes_them(my_database: MyDatabase) -> None:
    columns = ", ".join(f"c{i} {ddl}" for i, (ddl, *_) in enumerate(TYPES))
    my_database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    for (ddl, name, code, facts), column in zip(TYPES, find(my_database, "t").columns[1:], strict=True):
        assert (column.type.name, column.type.oid, column.type.modifier) == (name, code, -1), ddl
        assert {k: getattr(column.type, k) for k in facts} == facts, ddl


def test_json_is_a_type_of_its_own_in_mysql_and_text_in_mariadb(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id INT PRIMARY KEY, j JSON)")
    type = find(my_database, "t").columns[1].type
    assert (type.name, type.oid) == (("longtext", 252) if is_mariadb(my_database) else ("json", 245))


def test_types_of_one_server_only_are_known(my_database: MyDatabase) -> None:
    ddl = "u UUID, a INET4, b INET6" if is_mariadb(my_database) else "v VECTOR(3)"
    my_database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {ddl})")
    found = [(c.type.name, c.type.oid, c.type.length) for c in find(my_database, "t").columns[1:]]
    maria = [("uuid", 254, None), ("inet4", 254, None), ("inet6", 254, None)]
    assert found == (maria if is_mariadb(my_database) else [("vector", 242, 3)])


def test_labels_of_an_enum_are_read_whatever_they_hold(my_database: MyDatabase) -> None:
    wanted = ("plain", "it's", "a,b", "back\\slash", 'q"', "line\nbreak", "nul\0", "cr\r", "tab\t", "größe", "')", "")
    listed = ", ".join("'" + w.replace("\\", "\\\\").replace("'", "''") + "'" for w in wanted)
    my_database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({listed}))")
    assert find(my_database, "t").columns[1].type.labels == wanted


def test_labels_of_nothing_are_none() -> None:
    assert labels("enum('')") == ("",)
    assert labels("set('a','b''')") == ("a", "b'")


def test_tinyint1_is_a_number_in_a_key_and_where_the_option_says_so(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (k TINYINT(1), v BOOL, PRIMARY KEY (k))")
    assert [c.type.length for c in find(my_database, "t").columns] == [None, 1]
    assert [c.type.length for c in find(my_database, "t", tinyint1="int").columns] == [None, None]


def test_text_is_called_ordered_only_where_the_server_sorts_it_by_code_points(my_database: MyDatabase) -> None:
    collation = "utf8mb4_nopad_bin" if is_mariadb(my_database) else "utf8mb4_0900_bin"
    my_database.execute(f"CREATE TABLE t (k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE {collation} PRIMARY KEY)")
    texts = ["", " ", "!", "\t", "a", "a ", "a  ", "a\0", "a\1", "a!", "A", "~", "é", "中", "\ufb01", "\uffff", "😀"]
    with my_database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s)", [(t,) for t in texts])
        cursor.execute("SELECT k FROM t ORDER BY k")
        assert [k for (k,) in cursor.fetchall()] == sorted(texts, key=str.encode)
    assert find(my_database, "t").columns[0].type.ordered


def test_generated_and_invisible_columns_are_followed(my_database: MyDatabase) -> None:
    my_database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT GENERATED ALWAYS AS (id + 1) VIRTUAL, "
        "s INT GENERATED ALWAYS AS (id + 2) STORED, i INT INVISIBLE)"
    )
    assert [c.name for c in find(my_database, "t").columns] == ["id", "v", "s", "i"]


def test_names_in_another_case_mean_the_same_table_where_the_server_says_so(mariadb: EmbeddedServer) -> None:
    with type(mariadb)({"lower_case_table_names": "1"}, database="shop") as server:
        server.execute("CREATE TABLE Orders (id INT PRIMARY KEY)")
        shop = MyDatabase(server, "Shop")
        found = find(shop, "ORDERS")
        assert (found.schema, found.name, found.id) == ("shop", "orders", table_number("shop", "orders"))
        with shop.endpoint.connect() as session:
            assert watch.fingerprints(session, "Shop", [found.id])[found.id]


def test_a_table_of_another_database_is_refused(my_database: MyDatabase) -> None:
    with my_database.endpoint.connect() as session, pytest.raises(HeadwaterError) as e:
        find_table(session, "mysql", "db", None, (), my_database.options)
    assert e.value.code == "table.missing" and "database.name = 'mysql'" in e.value.hint


def test_a_unique_index_of_columns_that_are_not_null_is_a_key_when_declared(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE (b, a), UNIQUE (c))")
    assert refusal(my_database, "t").hint == "Declare PRIMARY KEY (b, a)."
    assert find(my_database, "t", key=["A", "b"]).key == ("b", "a")
    nullable = refusal(my_database, "t", key=["c"])
    assert nullable.code == "table.no_key" and "NULL" in nullable.message


def test_keys_that_do_not_tell_rows_apart_outside_the_server_are_refused(my_database: MyDatabase) -> None:
    cases = (
        ("k VARCHAR(50), PRIMARY KEY (k(10))", "only a prefix of k"),
        ("k TEXT, PRIMARY KEY (k(10))", "only a prefix of k"),
        ("k FLOAT PRIMARY KEY", "float"),
        ("k ENUM('😀', 'b') CHARACTER SET utf8mb4 PRIMARY KEY", "enum"),
    )
    for i, (ddl, words) in enumerate(cases):
        my_database.execute(f"CREATE TABLE t{i} ({ddl})")
        e = refusal(my_database, f"t{i}")
        assert e.code == "table.no_key" and words in e.message


def test_a_table_without_consistent_reads_is_refused(my_database: MyDatabase) -> None:
    for engine in ("MyISAM", "MEMORY", "CSV"):
        key = "" if engine == "CSV" else "PRIMARY KEY"
        my_database.execute(f"CREATE TABLE t_{engine} (id INT NOT NULL {key}) ENGINE = {engine}")
        e = refusal(my_database, f"t_{engine}")
        assert e.code == "table.not_plain" and "ENGINE = InnoDB" in e.hint


def test_mariadbs_versioned_tables_sequences_and_compressed_columns_are_refused(mariadb_database: MyDatabase) -> None:
    mariadb_database.execute("CREATE TABLE s (id INT PRIMARY KEY) WITH SYSTEM VERSIONING")
    mariadb_database.execute("CREATE SEQUENCE q")
    mariadb_database.execute("CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(99) COMPRESSED)")
    assert "DROP SYSTEM VERSIONING" in refusal(mariadb_database, "s").hint
    assert "a sequence" in refusal(mariadb_database, "q").message
    e = refusal(mariadb_database, "c", ["id"])
    assert e.code == "table.column_type" and "MODIFY `v` varchar(99);" in e.hint
    mariadb_database.execute(e.hint.removeprefix("Run upstream: "))
    assert find(mariadb_database, "c").key == ("id",)


def test_a_temporal_column_in_an_old_form_is_refused(mariadb: EmbeddedServer, mariadb_database: MyDatabase) -> None:
    mariadb.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        mariadb_database.execute("CREATE TABLE t (id INT PRIMARY KEY, d DATETIME(3))")
    finally:
        mariadb.execute("SET GLOBAL mysql56_temporal_format = ON")
    e = refusal(mariadb_database, "t")
    assert e.code == "table.column_type"
    mariadb_database.execute(e.hint.removeprefix("Run upstream: "))
    assert find(mariadb_database, "t").columns[1].type.oid == 18


def test_a_child_of_a_cascade_is_refused_where_the_log_does_not_show_it(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE p (id INT PRIMARY KEY)")
    for i, clause in enumerate(("ON DELETE CASCADE", "ON UPDATE SET NULL", "ON DELETE SET NULL ON UPDATE CASCADE")):
        child = f"c{i}"
        my_database.execute(
            f"CREATE TABLE {child} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) {clause})"
        )
        if is_mariadb(my_database):
            e = refusal(my_database, child)
            assert e.code == "table.cascade" and "cascade.waived" in e.hint and clause in e.message
            assert "`p`" in find(my_database, child, cascade_waived="true").notices[0]
        else:
            assert find(my_database, child).notices == ()


def test_a_child_of_a_foreign_key_that_only_restricts_is_followed(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE p (id INT PRIMARY KEY COMMENT 'ON DELETE CASCADE')")
    my_database.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT COMMENT 'CONSTRAINT `x` FOREIGN KEY (`p`) ON DELETE CASCADE', "
        "FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION)"
    )
    assert find(my_database, "c").notices == ()


def test_a_user_with_select_alone_finds_a_table_and_its_cascades(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE p (id INT PRIMARY KEY)")
    my_database.execute("CREATE TABLE c (id INT PRIMARY KEY, p INT REFERENCES p (id) ON DELETE CASCADE)")
    my_database.execute("CREATE USER finder@'127.0.0.1' IDENTIFIED BY 'finder'")
    try:
        my_database.execute(f"GRANT SELECT ON `{my_database.name}`.c TO finder@'127.0.0.1'")
        finder = my_database.as_user("finder")
        if is_mariadb(my_database):
            assert refusal(finder, "c").code == "table.cascade"
        else:
            assert find(finder, "c").key == ("id",)
        hidden = refusal(finder, "p")
        assert hidden.code == "source.privilege"
        my_database.execute(hidden.hint.removeprefix("Run upstream: "))
        assert find(finder, "p").key == ("id",)
    finally:
        my_database.execute("DROP USER finder@'127.0.0.1'")


def test_a_grant_on_some_columns_is_not_enough(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id INT PRIMARY KEY, secret INT)")
    my_database.execute("CREATE USER partly@'127.0.0.1' IDENTIFIED BY 'partly'")
    try:
        my_database.execute(f"GRANT SELECT (id) ON `{my_database.name}`.t TO partly@'127.0.0.1'")
        e = refusal(my_database.as_user("partly"), "t", ["id"])
        assert e.code == "source.privilege" and "GRANT SELECT ON" in e.hint
    finally:
        my_database.execute("DROP USER partly@'127.0.0.1'")


def fingerprint(database: MyDatabase, name: str = "t") -> str:
    number = table_number(database.name, name)
    with database.endpoint.connect() as session:
        return watch.fingerprints(session, database.name, [number])[number]


CHANGES: tuple[tuple[Any, ...], ...] = (  # and the key that is followed, if it is not the first one
    ("OPTIMIZE LOCAL TABLE t", None),
    ("ALTER TABLE t FORCE", None),
    ("ALTER TABLE t ADD COLUMN n INT DEFAULT 3, ADD INDEX (v)", None),
    ("ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))", None),
    ("INSERT INTO t (id, v) VALUES (1, 2)", None),
    ("ALTER TABLE t MODIFY v BIGINT", None),
    ("ALTER TABLE t DROP PARTITION p0", "lost its partition p0"),
    ("ALTER TABLE t MODIFY g INT GENERATED ALWAYS AS (v + 2) STORED", "computes its column g"),
    ("ALTER TABLE t REMOVE PARTITIONING", None),
    ("ALTER TABLE t MODIFY g BIGINT GENERATED ALWAYS AS (v + 3) STORED", None),  # the log tells the new type
    ("ALTER TABLE t ADD UNIQUE u (v), MODIFY v BIGINT NOT NULL", None),
    ("ALTER TABLE t MODIFY v BIGINT NULL", "lost its unique index u (v)", "v"),  # NULLs are not told apart
    ("ALTER TABLE t MODIFY v BIGINT NOT NULL", None),
    ("ALTER TABLE t DROP INDEX u", "lost its unique index u (v)", "v"),
    ("ALTER TABLE t ADD UNIQUE u (v)", None),
    ("ALTER TABLE t DROP INDEX u, ADD UNIQUE w (v)", None, "v"),
    ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)", "no longer has the primary key (id)"),
    ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "no longer has the primary key (v, id)", "v", "id"),
    ("ALTER TABLE t DROP PRIMARY KEY", "no longer has the primary key (id, v)", "v", "id"),
    ("ALTER TABLE t DROP INDEX w", "lost its unique index w (v)", "v"),
    ("ALTER TABLE t ENGINE = MyISAM", "moved from InnoDB"),
    ("DROP TABLE t", "was dropped"),
)


def test_another_order_of_the_key_is_found(my_database: MyDatabase) -> None:
    text = "varchar(9) CHARACTER SET utf8mb4 NOT NULL COLLATE"
    label = "enum('x', 'Y') CHARACTER SET utf8mb4 NOT NULL COLLATE"  # sorted by number
    my_database.execute(
        f"CREATE TABLE t (a {text} utf8mb4_general_ci, b {text} utf8mb4_general_ci UNIQUE, "
        f"e {label} utf8mb4_general_ci, PRIMARY KEY (a, e))"
    )
    first = fingerprint(my_database)
    my_database.execute(f"ALTER TABLE t MODIFY b {text} utf8mb4_bin, MODIFY e {label} utf8mb4_bin")
    second = fingerprint(my_database)
    assert watch.verdict(first, second, "lake_t", ("a", "e")) is None
    assert watch.verdict(first, second, "lake_t", ("b",)) is not None
    my_database.execute(f"ALTER TABLE t MODIFY a {text} utf8mb4_bin")
    third = fingerprint(my_database)
    error = watch.verdict(second, third, "lake_t", ("a", "e"))
    assert error and "now sorts its key column a in a different order" in error.message
    older = json.dumps({k: v for k, v in json.loads(second).items() if k != "collations"})
    assert watch.verdict(older, third, "lake_t", ("a", "e")) is None  # told by a version that did not look


def test_only_what_may_have_changed_rows_behind_the_log_is_found(my_database: MyDatabase) -> None:
    my_database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT, g INT GENERATED ALWAYS AS (v + 1) STORED) PARTITION BY RANGE (id) "
        "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    )
    for change, expected, *key in CHANGES:
        before = fingerprint(my_database)
        my_database.execute(change)
        error = watch.verdict(before, fingerprint(my_database), "lake_t", key or ["id"])
        if expected is None:
            assert error is None, change
        else:
            assert error and expected in error.message and "RESYNC TABLE lake_t" in error.hint, change
