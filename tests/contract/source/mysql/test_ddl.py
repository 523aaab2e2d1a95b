"""Statements of real servers: none changes rows behind our back, and none stops a table for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pymysql
import pytest

from headwater.decode.layout import RowLayout
from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.model import Op, SchemaVersion
from support.mysql import MyDatabase
from support.mysql_log import LogReader, ints

COLUMNS = "id, v, w, name, d, e, at, big"
SHAPE = """(id int PRIMARY KEY, v int, w int NOT NULL, name varchar(10) CHARACTER SET utf8mb4, d decimal(10,2),
    e enum('a','b','c'), at timestamp NULL, big bigint, extra int, KEY by_w (w)) DEFAULT CHARSET utf8mb4"""
ROWS = """(0, NULL, 5, 'a', 1.25, 'a', NULL, 1, 1), (1, 40000, 5, 'ä€😀', -9.99, 'b', '2024-01-02 03:04:05', -7, 2),
    (2, 7, 6, 'ten chars!', NULL, 'c', '2025-01-02 03:04:05', 1 << 40, 3), (3, 8, 7, NULL, 0, NULL, NULL, 0, 4)"""
PARTS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (2), PARTITION p1 VALUES LESS THAN (100))"

CONDITION = re.compile("(COLUMN|CONSTRAINT) IF ")  # of a clause: MariaDB's alone


@dataclass(frozen=True)
class Case:
    """Statements over a followed table of their own, {t}, and a table {u} beside it; `mode` is the session's."""

    statements: tuple[str, ...]
    stops: bool
    mode: str | None = None
    parts: bool = False


def stops(*statements: str, mode: str | None = None, parts: bool = False) -> Case:
    return Case(statements, True, mode, parts)


def goes_on(*statements: str, mode: str | None = None) -> Case:
    return Case(statements, False, mode)


CASES = [
    goes_on("ALTER TABLE {t} ADD COLUMN x int NOT NULL DEFAULT 7"),
    goes_on("ALTER TABLE {t} ADD COLUMN x int FIRST, ADD y int AS (v + 1)", "ALTER TABLE {t} DROP COLUMN x"),
    goes_on("ALTER TABLE {t} ADD INDEX i (v), ADD UNIQUE u (id, v)", "ALTER TABLE {t} DROP INDEX i"),
    goes_on("CREATE INDEX i ON {t} (v)", "DROP INDEX i ON {t}", "ALTER TABLE {t} RENAME INDEX by_w TO other"),
    goes_on("ALTER TABLE {t} COMMENT 'DROP COLUMN v'", "ALTER TABLE {t} ENGINE=InnoDB ROW_FORMAT=DYNAMIC"),
    goes_on("ALTER TABLE {t} FORCE", "OPTIMIZE TABLE {t}", "ANALYZE TABLE {t}", "ALTER TABLE {t} AUTO_INCREMENT = 99"),
    goes_on("ALTER TABLE {t} ALTER COLUMN v SET DEFAULT 3", "ALTER TABLE {t} ALTER v DROP DEFAULT"),
    goes_on("ALTER TABLE {t} MODIFY name varchar(20) CHARACTER SET utf8mb4"),
    goes_on("ALTER TABLE {t} MODIFY name varchar(20) NULL DEFAULT 'x' COMMENT 'y'"),
    goes_on("ALTER TABLE {t} MODIFY v int DEFAULT 5 AFTER w", "ALTER TABLE {t} CHANGE w w int NULL"),
    goes_on("ALTER TABLE {t} MODIFY e enum('a','b','c','d')", "ALTER TABLE {t} MODIFY d decimal(10,2) DEFAULT 1.5"),
    goes_on("ALTER TABLE {t} MODIFY extra smallint", "ALTER TABLE {t} RENAME COLUMN extra TO more", mode=""),
    goes_on("ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 3", "ALTER TABLE {t} REMOVE PARTITIONING"),
    goes_on("CREATE TEMPORARY TABLE {u}x (id int)", "DROP TEMPORARY TABLE {u}x", "CREATE VIEW {t}v AS SELECT 1"),
    goes_on("CREATE TABLE IF NOT EXISTS {t} (id int)", "DROP TABLE {u}", "FLUSH TABLES"),
    goes_on("ALTER TABLE {t} DEFAULT CHARSET latin1", "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id >= 0)"),
    goes_on("ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4"),
    goes_on("ALTER TABLE {t} COMMENT=''", "ALTER TABLE {t} MODIFY name varchar(64) NULL DEFAULT '' COMMENT ''"),
    goes_on("ALTER TABLE {t} ADD COLUMN x int PARTITION BY KEY (id) PARTITIONS 2"),
    goes_on("ALTER TABLE {t} ADD COLUMN IF NOT EXISTS v int", "ALTER TABLE {t} ADD COLUMN IF NOT EXISTS (w int)"),
    goes_on("ALTER TABLE {t} ADD COLUMN IF NOT EXISTS x int, ADD IF NOT EXISTS v bigint DEFAULT 9",
            "ALTER TABLE {t} ADD INDEX IF NOT EXISTS by_w (w)"),
    goes_on("ALTER TABLE {t} DROP COLUMN IF EXISTS nothing, MODIFY COLUMN IF EXISTS nothing int",
            "ALTER TABLE {t} CHANGE COLUMN IF EXISTS nothing v int", "ALTER TABLE {t} RENAME COLUMN IF EXISTS no TO v"),
    goes_on("ALTER TABLE {t} ADD CONSTRAINT IF NOT EXISTS c CHECK (id >= 0)"),
    stops("ALTER TABLE {t} DROP COLUMN IF EXISTS v", "ALTER TABLE {t} ADD COLUMN IF NOT EXISTS v int DEFAULT 7"),
    stops("ALTER TABLE {t} DROP COLUMN IF EXISTS v, ADD COLUMN IF NOT EXISTS v int DEFAULT 7"),
    stops("ALTER TABLE {t} MODIFY COLUMN IF EXISTS v smallint", mode=""),
    stops("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (w, id)"),
    stops("ALTER TABLE {t} DROP PRIMARY KEY"),
    stops("DROP INDEX `PRIMARY` ON {t}"),
    stops("ALTER TABLE {t} DROP COLUMN v, ADD COLUMN v int DEFAULT 7"),
    stops("ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v int DEFAULT 7"),
    stops("ALTER TABLE {t} RENAME COLUMN v TO w, RENAME COLUMN w TO v"),
    stops("ALTER TABLE {t} CHANGE v w int, CHANGE w v int"),
    stops("ALTER TABLE {t} RENAME COLUMN v TO x", "ALTER TABLE {t} RENAME COLUMN extra TO v"),
    stops("ALTER TABLE {t} MODIFY v int NOT NULL", mode=""),
    stops("ALTER TABLE {t} MODIFY v smallint", "ALTER TABLE {t} MODIFY v int", mode=""),
    goes_on("ALTER TABLE {t} MODIFY v bigint", "ALTER TABLE {t} MODIFY d decimal(20,2)"),
    stops("ALTER TABLE {t} MODIFY v bigint", mode=""),
    stops("ALTER TABLE {t} MODIFY v bigint", "UPDATE {t} SET v = 5", "ALTER TABLE {t} MODIFY v int"),
    stops("ALTER TABLE {t} MODIFY d decimal(12,4)", "UPDATE {t} SET d = 1", "ALTER TABLE {t} MODIFY d decimal(10,2)"),
    stops("ALTER TABLE {t} MODIFY d decimal(10,1)", "ALTER TABLE {t} MODIFY d decimal(10,2)"),
    stops("ALTER TABLE {t} MODIFY name varchar(2)", "ALTER TABLE {t} MODIFY name varchar(10)", mode=""),
    stops("ALTER TABLE {t} MODIFY name varchar(10) CHARACTER SET latin1", mode=""),
    stops("ALTER TABLE {t} CONVERT TO CHARACTER SET latin1", "ALTER TABLE {t} CONVERT TO CHARSET utf8mb4", mode=""),
    stops("ALTER TABLE {t} MODIFY e enum('a','b','x')", mode=""),
    stops("ALTER TABLE {t} MODIFY e enum('c','b','a')"),
    stops("ALTER TABLE {t} MODIFY at timestamp NOT NULL", mode=""),
    stops("ALTER TABLE {t} MODIFY id int NOT NULL AUTO_INCREMENT"),
    stops("ALTER TABLE {t} MODIFY big bigint AS (v + 1) STORED", mode=""),
    stops("ALTER TABLE {t} TRUNCATE PARTITION p0", parts=True),
    stops("ALTER TABLE {t} WAIT 5 TRUNCATE PARTITION p0", parts=True),
    stops("ALTER TABLE {t} NOWAIT TRUNCATE PARTITION p0", parts=True),
    stops("ALTER /* here */ TABLE {t} /*!50000 DROP PARTITION p1 */", parts=True),
    stops("ALTER TABLE {t} EXCHANGE PARTITION p0 WITH TABLE {u}", parts=True),
    stops("ALTER TABLE {t} CONVERT PARTITION p0 TO TABLE {u}x", parts=True),
    stops("ALTER IGNORE TABLE {t} ADD UNIQUE (w)"),
    stops("ALTER TABLE {t} DISCARD TABLESPACE"),
    stops("ALTER TABLE {t} ENGINE=MyISAM"),
    stops("ALTER TABLE {t} ADD SYSTEM VERSIONING"),
    stops("CREATE OR REPLACE TABLE {t} LIKE {u}"),
    stops("DROP TABLE {t}", "CREATE TABLE {t} LIKE {u}"),
    stops("RENAME TABLE {t} TO {t}old, {u} TO {t}"),
    stops('TRUNCATE TABLE "nothing"', 'ALTER TABLE "{t}" RENAME TO "{t}old"', mode="ANSI_QUOTES"),
    stops('RENAME TABLE "{t}" TO "{t}old"', 'RENAME TABLE "{u}" TO "{t}"', mode="ANSI_QUOTES"),
    stops('ALTER TABLE "{t}" TRUNCATE PARTITION p0', parts=True, mode="ORACLE"),
    stops("ALTER TABLE {t} COMMENT 'a\\', RENAME TO {t}old, COMMENT 'b'", mode="NO_BACKSLASH_ESCAPES"),
    stops("RENAME TABLE [{t}] TO [{t}old]", mode="MSSQL"),
    stops("SET STATEMENT sql_mode = '' FOR ALTER TABLE {t} MODIFY v int NOT NULL"),
]  # fmt: skip


def rows_of(database: MyDatabase, table: str) -> list[str] | None:
    """The followed columns of all rows as the server prints them; None if they are not there."""
    try:
        return sorted(str(r) for r in database.execute(f"SELECT {COLUMNS} FROM `{table}`"))
    except pymysql.Error:
        return None


def carry_out(database: MyDatabase, case: Case, names: dict[str, str]) -> bool:
    """Runs a case's statements; False if this server does not know the first."""
    with database.connect() as connection, connection.cursor() as cursor:
        if case.mode is not None:
            try:
                cursor.execute(f"SET sql_mode = '{case.mode}'")
            except pymysql.Error:
                return False
        done = False
        for statement in case.statements:
            try:
                cursor.execute(statement.format(**names))
                done = True
            except pymysql.Error:
                continue
    return done


def test_no_statement_changes_rows_unnoticed_and_none_stops_a_table_for_nothing(my_database: MyDatabase) -> None:
    names = [{"t": f"t{i}", "u": f"u{i}"} for i in range(len(CASES))]
    for case, name in zip(CASES, names, strict=True):
        parts = PARTS if case.parts else ""
        my_database.execute(f"CREATE TABLE {name['t']} {SHAPE} {parts}")
        my_database.execute(f"CREATE TABLE {name['u']} LIKE {name['t']}")
        if parts:
            my_database.execute(f"ALTER TABLE {name['u']} REMOVE PARTITIONING")
        my_database.execute(f"INSERT INTO {name['t']} VALUES {ROWS}")
    reader = LogReader(my_database, tuple(n["t"] for n in names))
    for id, taken in reader.memory.relations.items():  # `extra` is not followed
        followed = tuple(c for c in taken.columns if c.name != "extra")
        reader.memory.relations[id] = replace(taken, columns=followed)
    done, changed = {}, {}
    for case, name in zip(CASES, names, strict=True):
        t = name["t"]
        my_database.execute(f"UPDATE {t} SET extra = 9 WHERE id = 1")
        before = rows_of(my_database, t)
        done[t] = carry_out(my_database, case, name)
        changed[t] = before != rows_of(my_database, t)
    broken = {c.table for c in reader.read() if c.op is Op.BREAK}
    unnoticed = [c.statements for c, n in zip(CASES, names, strict=True) if changed[n["t"]] and n["t"] not in broken]
    assert unnoticed == []
    wrong = [c for c, n in zip(CASES, names, strict=True) if done[n["t"]] and (n["t"] in broken) != c.stops]
    assert wrong == []
    maria = isinstance(my_database.server, EmbeddedMariaDB)
    known = [n["t"] for c, n in zip(CASES, names, strict=True) if maria or not CONDITION.search(c.statements[0])]
    assert sum(done[t] for t in known) > 0.8 * len(known)
    assert sum(changed.values()) > 15  # the oracle has something to say


TEXT_KEYS = [  # of a column `s varchar(10) NOT NULL COLLATE utf8mb4_general_ci`
    goes_on("ALTER TABLE {t} MODIFY s varchar(20) NOT NULL COLLATE utf8mb4_general_ci"),
    goes_on("ALTER TABLE {t} MODIFY other varchar(20) COLLATE utf8mb4_bin", "ALTER TABLE {t} COLLATE utf8mb4_bin"),
    stops("ALTER TABLE {t} MODIFY s varchar(10) NOT NULL COLLATE utf8mb4_bin"),
    stops("ALTER TABLE {t} MODIFY s varchar(20) NOT NULL"),
    stops("ALTER TABLE {t} MODIFY s varchar(20) CHARACTER SET utf8mb4 NOT NULL"),
    stops("ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
]


def test_a_key_that_may_be_sorted_in_another_order_stops_the_table(my_database: MyDatabase) -> None:
    tables = tuple(f"t{i}" for i in range(len(TEXT_KEYS)))
    for t in tables:
        my_database.execute(
            f"CREATE TABLE {t} (s varchar(10) NOT NULL COLLATE utf8mb4_general_ci PRIMARY KEY, other varchar(10)) "
            "DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin"
        )
    reader = LogReader(my_database, tables)
    for case, t in zip(TEXT_KEYS, tables, strict=True):
        my_database.execute(f"INSERT INTO {t} VALUES ('a', 'x'), ('B', 'y')")
        run(my_database, *(s.format(t=t) for s in case.statements))
    broken = {c.table for c in reader.read() if c.op is Op.BREAK}
    assert broken == {t for case, t in zip(TEXT_KEYS, tables, strict=True) if case.stops}


def test_a_column_that_was_dropped_is_remembered_by_the_reader_that_comes_next(mariadb_database: MyDatabase) -> None:
    mariadb_database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    reader = LogReader(mariadb_database, ("t",))
    run(mariadb_database, "INSERT INTO t VALUES (1, 2)", "ALTER TABLE t ADD COLUMN IF NOT EXISTS v int DEFAULT 7")
    assert ints(reader.read()) == [("insert", 1)]
    run(mariadb_database, "ALTER TABLE t ADD COLUMN IF NOT EXISTS v int DEFAULT 7", "ALTER TABLE t DROP COLUMN v")
    assert ints(reader.read()) == []
    run(mariadb_database, "ALTER TABLE t ADD COLUMN IF NOT EXISTS v int DEFAULT 7")
    assert [c.op for c in reader.read()] == [Op.BREAK]


def run(database: MyDatabase, *statements: str, **options: Any) -> None:
    """Statements in one session."""
    with database.connect(**options) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def table(my_database: MyDatabase) -> MyDatabase:
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    return my_database


@pytest.mark.parametrize("mode", ["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES,ANSI_QUOTES", ""])
def test_a_truncate_is_read_as_its_session_wrote_it(table: MyDatabase, mode: str) -> None:
    reader = LogReader(table, ("t",))
    quote = '"' if "ANSI" in mode else "`"
    run(table, f"SET sql_mode = '{mode}'", "INSERT INTO t VALUES (1, 'a')", f"TRUNCATE TABLE {quote}t{quote}")
    assert ints(reader.read()) == [("insert", 1), ("truncate", 0)]


def test_names_are_read_in_the_charset_of_the_session(my_database: MyDatabase) -> None:
    names = ("grö", "表")
    for name in names:
        my_database.execute(f"CREATE TABLE `{name}` (id int PRIMARY KEY)")
    reader = LogReader(my_database, names)
    run(my_database, "INSERT INTO `grö` VALUES (1)", "TRUNCATE `grö`", "DROP TABLE `grö`", charset="latin1")
    run(my_database, "INSERT INTO `表` VALUES (2)", "TRUNCATE `表`", charset="sjis")
    found = [(c.op, c.table) for c in reader.read()]
    assert found[:3] == [(Op.INSERT, "grö"), (Op.TRUNCATE, "grö"), (Op.BREAK, "grö")]
    assert found[3:] == [(Op.INSERT, "表"), (Op.TRUNCATE, "表")]


def test_a_truncate_may_be_the_first_that_is_heard_of_a_table(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "TRUNCATE t", "INSERT INTO t VALUES (1, 'a')")
    assert ints(reader.read()) == [("truncate", 0), ("insert", 1)]
    (taken,) = reader.memory.relations.values()
    for r in reader.relations:
        version = SchemaVersion(1, r.upstream_id, 1, r.schema, r.table, r.identity, r.columns, r.broken)
        RowLayout.of(version, taken.columns, taken.key)


@pytest.fixture
def helped(table: MyDatabase) -> Iterator[MyDatabase]:
    """A table that triggers, functions and procedures write; tables of another database too."""
    server, other = table.server, f"{table.name}_other"
    if not isinstance(server, EmbeddedMariaDB):
        server.execute("SET GLOBAL log_bin_trust_function_creators = ON")
    run(
        table,
        f"CREATE DATABASE {other}",
        f"CREATE TABLE {other}.quiet (id int PRIMARY KEY)",
        f"CREATE TABLE {other}.loud (id int PRIMARY KEY)",
        "CREATE TABLE near (id int PRIMARY KEY)",
        "CREATE TRIGGER g AFTER INSERT ON near FOR EACH ROW INSERT INTO t VALUES (NEW.id, 'g')",
        "CREATE FUNCTION f() RETURNS int DETERMINISTIC MODIFIES SQL DATA "
        "BEGIN INSERT INTO t VALUES (100, 'f'); RETURN 1; END",
        "CREATE PROCEDURE p() INSERT INTO t VALUES (200, 'p')",
    )
    loud = (
        f"CREATE TRIGGER {other}.h AFTER INSERT ON {other}.loud FOR EACH ROW INSERT INTO {table.name}.t VALUES (9, 'h')"
    )
    run(table, loud)
    yield table
    server.execute(f"DROP DATABASE {other}")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO near VALUES (1)",
        "SELECT f()",
        "DO f()",
        "CALL p()",
        "SET @a = f()",
        "INSERT INTO {db}_other.loud VALUES (1)",
        "UPDATE t SET v = 'x'",
        "ANALYZE UPDATE t SET v = 'x'",
        "ANALYZE FORMAT=JSON DELETE FROM t",
    ],
)
def test_a_change_that_is_logged_as_a_statement_stops_whatever_it_may_affect(
    helped: MyDatabase, statement: str
) -> None:
    if statement.startswith("ANALYZE") and not isinstance(helped.server, EmbeddedMariaDB):
        return  # a statement of MariaDB
    run(helped, "INSERT INTO t VALUES (1000, 'a')")
    reader = LogReader(helped, ("t",))
    before = helped.execute("SELECT * FROM t ORDER BY id")
    run(helped, "SET binlog_format = 'STATEMENT'", statement.format(db=helped.name))
    assert helped.execute("SELECT * FROM t ORDER BY id") != before
    changes = reader.read()
    assert [c.op for c in changes] == [Op.BREAK]
    assert "logged as a statement" in reader.relations[-1].broken


def test_what_changes_no_row_of_ours_stops_nothing(helped: MyDatabase) -> None:
    reader = LogReader(helped, ("t",))
    maria = isinstance(helped.server, EmbeddedMariaDB)
    if not maria:  # which databases a statement touched is told by MySQL alone
        run(helped, "SET binlog_format = 'STATEMENT'", f"INSERT INTO {helped.name}_other.quiet VALUES (1)")
    run(
        helped,
        "INSERT INTO near VALUES (1)",
        "SELECT f()",
        "CREATE TEMPORARY TABLE t (id int)",
        "INSERT INTO t VALUES (1)",
        "DROP TEMPORARY TABLE t",
        "ANALYZE TABLE t",
        "CHECK TABLE t",
        "FLUSH TABLES",
        f"CREATE USER u_{helped.name} IDENTIFIED BY 'it''s'",
        f"GRANT SELECT ON {helped.name}.t TO u_{helped.name}",
        f"REVOKE SELECT ON {helped.name}.t FROM u_{helped.name}",
        f"DROP USER u_{helped.name}",
        "BEGIN",
        "INSERT INTO t VALUES (2, 'a')",
        "SAVEPOINT s",
        "INSERT INTO near VALUES (3)",
        "ROLLBACK TO SAVEPOINT s",
        "RELEASE SAVEPOINT s",
        "COMMIT",
        "CREATE EVENT ev ON SCHEDULE AT now() + INTERVAL 1 DAY DO DELETE FROM t",
        "DROP EVENT ev",
        "DROP TRIGGER g",
        "ALTER TABLE near ADD x int",
        "DROP TABLE near",
        *(["CREATE SEQUENCE q", "SELECT NEXTVAL(q)", "ALTER SEQUENCE q RESTART 3", "DROP SEQUENCE q"] if maria else []),
    )
    assert [c.op for c in reader.read()] == [Op.INSERT] * 3


def test_a_foreign_key_that_acts_on_rows_stops_the_table_unless_the_log_shows_what_it_does(table: MyDatabase) -> None:
    table.execute("CREATE TABLE parent (id int PRIMARY KEY)")
    table.execute("CREATE TABLE child (id int PRIMARY KEY, p int, KEY (p))")
    run(table, "INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (1, 1)")
    hidden = isinstance(table.server, EmbeddedMariaDB)
    reader, waived = LogReader(table, ("child",)), LogReader(table, ("child",), server_id=4_000_000_002)
    waived.options = {"cascade.waived": "true"}
    run(table, "ALTER TABLE child ADD FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE", "DELETE FROM parent")
    assert table.execute("SELECT * FROM child") == []
    assert [c.op for c in reader.read()] == [Op.BREAK if hidden else Op.DELETE]
    assert [c.op for c in waived.read()] == ([] if hidden else [Op.DELETE])
