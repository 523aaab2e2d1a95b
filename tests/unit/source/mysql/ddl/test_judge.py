"""Which alterations a table can be followed past, and which stop it where they stand in the log."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.model import Column, LogColumn, UpstreamType
from headwater.source.frames import Taken
from headwater.source.mysql.ddl import statement as s
from headwater.source.mysql.ddl.effects import effects, session_of
from headwater.source.mysql.ddl.judge import Subject, obstacle
from headwater.source.mysql.ddl.statement import Statement


def column(name: str, type: str, **more: Any) -> Column:
    return Column(name, "STRING", UpstreamType(type, 0, dialect="mysql", **more))


COLUMNS = (
    column("id", "int"),
    column("v", "int"),
    column("name", "varchar", length=10, charset="utf8mb4"),
    column("d", "decimal", precision=10, scale=2),
    column("e", "enum", labels=("a", "b"), charset="utf8mb4"),
    column("body", "text", charset="utf8mb4"),
    column("at", "timestamp", scale=0),
    column("raw", "binary", length=4, charset="binary"),
    column("u", "int", unsigned=True),
    column("f", "float"),
)


def judged(clauses: str, mode: int = s.STRICT, **more: Any) -> str:
    subject = {
        "taken": (Taken(COLUMNS, ("id",)),),
        "logged": {},
        "primary": frozenset({"id"}),
        "hides_cascades": True,
        **more,
    }
    statement = Statement(clauses if " TABLE t " in clauses else f"ALTER TABLE t {clauses}", "db", mode, mariadb=True)
    (effect,) = [e for e in effects(statement) if e.table == "t"]
    return obstacle(effect.alterations, session_of(statement), Subject(**subject))


@pytest.mark.parametrize(
    "clauses",
    [
        "",
        "ADD COLUMN x INT DEFAULT 7",
        "ADD x INT AFTER v, ADD (y INT, z INT UNIQUE KEY)",
        "ADD x INT REFERENCES u (id) ON DELETE RESTRICT ON UPDATE NO ACTION",
        "ADD x TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
        "ADD INDEX i (v), ADD UNIQUE KEY u (name), ADD FULLTEXT (name), ADD CONSTRAINT c CHECK (v > 0)",
        "ADD CONSTRAINT c FOREIGN KEY (v) REFERENCES u (id)",
        "DROP INDEX i, DROP KEY j, DROP FOREIGN KEY f, DROP CHECK c, DROP CONSTRAINT k",
        "DROP COLUMN other, DROP x",
        "DROP COLUMN v",
        "RENAME INDEX i TO j, ALTER INDEX i INVISIBLE, ALTER COLUMN v SET DEFAULT 5, ALTER v DROP DEFAULT",
        "RENAME COLUMN other TO another",
        "MODIFY other SMALLINT, CHANGE x y INT",
        "COMMENT = 'DROP COLUMN v, ADD COLUMN v INT'",
        "ENGINE = InnoDB ROW_FORMAT=DYNAMIC, AUTO_INCREMENT = 9 DEFAULT CHARACTER SET = latin1 COLLATE latin1_bin",
        "FORCE, ALGORITHM=INPLACE, LOCK=NONE",
        "DISABLE KEYS",
        "ORDER BY v, name",
        "ADD PARTITION (PARTITION p3 VALUES LESS THAN (30))",
        "ANALYZE PARTITION p0, p1",
        "PARTITION BY HASH (id) PARTITIONS 4",
        "REMOVE PARTITIONING",
        "ADD COLUMN x INT PARTITION BY KEY (id)",
        "ADD CONSTRAINT IF NOT EXISTS f FOREIGN KEY (v) REFERENCES u (id)",
        "ADD CONSTRAINT IF NOT EXISTS c CHECK (v > 0), ADD FOREIGN KEY IF NOT EXISTS f (v) REFERENCES u (id)",
        "COMMENT = ''",
        "COMMENT '' COMPRESSION='' ROW_FORMAT=DYNAMIC",
        "COMMENT 'gr\ufffd'",
        "MODIFY name VARCHAR(64) NOT NULL DEFAULT '' COMMENT ''",
        "MODIFY name VARCHAR(64) DEFAULT _utf8mb4'' NOT NULL",
        "ADD INDEX IF NOT EXISTS i (v), ADD PARTITION IF NOT EXISTS (PARTITION p3 VALUES LESS THAN (30))",
        "ADD x INT PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (9), PARTITION q VALUES LESS THAN (19))",
        "MODIFY v INT NOT NULL DEFAULT 0 COMMENT 'x'",
        "MODIFY v INT(11) NULL FIRST",
        "CHANGE v v INTEGER AFTER name",
        "MODIFY d DECIMAL(10,2) DEFAULT -1.5",
        "MODIFY v BIGINT, MODIFY d DECIMAL(14,4), MODIFY at TIMESTAMP(3) NULL",
        "MODIFY name VARCHAR(20) NOT NULL DEFAULT _utf8mb4'x'",
        "MODIFY name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "MODIFY e ENUM('a','b','c')",
        "MODIFY body MEDIUMTEXT",
        "MODIFY at TIMESTAMP NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP(0)",
        "MODIFY raw BINARY(4) DEFAULT (uuid())",
        "MODIFY u INT UNSIGNED, MODIFY u BIGINT, MODIFY u BIGINT UNSIGNED",
        "MODIFY f FLOAT, MODIFY f DOUBLE PRECISION NOT NULL",
        "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    ],
)
def test_what_changes_no_value_is_followed(clauses: str) -> None:
    assert judged(clauses) == ""


@pytest.mark.parametrize(
    "clauses",
    [
        "DROP PRIMARY KEY",
        "DROP PRIMARY KEY, ADD PRIMARY KEY (tenant, id)",
        "DROP INDEX `PRIMARY`",
        "DROP CONSTRAINT `primary`",
        "ADD CONSTRAINT c PRIMARY KEY (v)",
        "ADD COLUMN x INT AUTO_INCREMENT KEY",
        "ADD (x INT, y INT PRIMARY KEY)",
        "MODIFY other INT PRIMARY KEY",
        "DROP COLUMN id",
        "DROP COLUMN v, ADD COLUMN v INT DEFAULT 7",
        "ADD COLUMN V INT",
        "ADD (x INT, v INT)",
        "RENAME COLUMN v TO w",
        "RENAME COLUMN other TO v",
        "RENAME COLUMN v TO name, RENAME COLUMN name TO v",
        "CHANGE v w INT",
        "CHANGE other v INT",
        "MODIFY V INT",
        "MODIFY v SMALLINT",
        "MODIFY v BIGINT UNSIGNED",
        "MODIFY v INT UNSIGNED",
        "MODIFY v INT GENERATED ALWAYS AS (id + 1) STORED",
        "MODIFY v INT AS (id + 1)",
        "MODIFY v INT AUTO_INCREMENT",
        "MODIFY v INT WITHOUT SYSTEM VERSIONING",
        "MODIFY v INT SOMETHING NEW",
        "MODIFY d DECIMAL(11,4)",
        "MODIFY d DECIMAL(12,2) UNSIGNED",
        "MODIFY d DECIMAL(10,1)",
        "MODIFY name VARCHAR(9)",
        "MODIFY name CHAR(10)",
        "MODIFY name VARCHAR(20) CHARACTER SET latin1",
        "MODIFY name VARCHAR(20) COLLATE latin1_bin",
        "MODIFY name VARBINARY(10)",
        "MODIFY body TINYTEXT",
        "MODIFY body BLOB",
        "MODIFY e ENUM('b','a')",
        "MODIFY e ENUM('a','c')",
        "MODIFY e ENUM('a')",
        "MODIFY at TIMESTAMP NOT NULL",
        "MODIFY at DATETIME",
        "MODIFY raw BINARY(5)",
        "MODIFY body TEXT(100)",
        "MODIFY u INT",
        "MODIFY f FLOAT(7,2)",
        "MODIFY f DOUBLE(10,2)",
        "CONVERT TO CHARACTER SET latin1",
        "CONVERT TO CHARACTER SET binary",
        "ENGINE=MyISAM",
        "COMMENT 'x' ENGINE = MEMORY",
        "ADD x INT, ENGINE MyISAM",
        "TRUNCATE PARTITION p0",
        "WAIT 5 TRUNCATE PARTITION p0",
        "NOWAIT TRUNCATE PARTITION ALL",
        "DROP PARTITION p0, p1",
        "REORGANIZE PARTITION p INTO (PARTITION q VALUES LESS THAN (3))",
        "EXCHANGE PARTITION p WITH TABLE u",
        "REPAIR PARTITION p",
        "DISCARD TABLESPACE",
        "IMPORT PARTITION p0 TABLESPACE",
        "RENAME TO u",
        "RENAME = u",
        "ADD SYSTEM VERSIONING",
        "DROP SYSTEM VERSIONING",
        "ADD PERIOD FOR SYSTEM_TIME (a, b)",
        "ADD FOREIGN KEY (v) REFERENCES u (id) ON DELETE CASCADE",
        "ADD CONSTRAINT c FOREIGN KEY (v) REFERENCES u (id) ON UPDATE SET NULL",
        "ADD x INT REFERENCES u (id) ON DELETE SET DEFAULT",
        "SOMETHING NEW",
        "COMMENT 'x' SOMETHING = 5",
        "COMMENT '' SOMETHING = 5",
        "ENGINE = ''",
        "MODIFY v INT COMMENT '' SOMETHING",
        "ADD CONSTRAINT IF NOT EXISTS f FOREIGN KEY (v) REFERENCES u (id) ON DELETE CASCADE",
        "ADD x INT PRIMARY KEY PARTITION BY KEY (x)",
        "ALTER IGNORE TABLE t ADD UNIQUE (v)",
        "ALTER ONLINE IGNORE TABLE t COMMENT 'x'",
        "SET STATEMENT sql_mode='' FOR ALTER TABLE t MODIFY v INT NOT NULL",
    ],
)
def test_what_may_change_a_value_or_the_key_stops_the_table(clauses: str) -> None:
    assert judged(clauses) != ""


def test_a_session_that_is_not_strict_may_change_any_value_that_it_defines_again() -> None:
    for clauses in ("MODIFY v INT NOT NULL", "MODIFY name VARCHAR(20)", "CONVERT TO CHARACTER SET utf8mb4"):
        assert judged(clauses) == ""
        assert judged(clauses, mode=0) != ""
        assert judged(clauses.replace("v INT", "other INT").replace("name", "other"), mode=0) == (
            "" if "MODIFY" in clauses else judged(clauses, mode=0)
        )


def test_names_of_types_that_a_session_takes_for_others_stop_the_table() -> None:
    assert judged("MODIFY v INT", mode=s.STRICT | 1 << 9) != ""


def test_zeros_keep_their_value_where_the_session_says_so() -> None:
    assert judged("MODIFY id INT NOT NULL AUTO_INCREMENT", mode=s.STRICT | s.NO_AUTO_VALUE_ON_ZERO) == ""


def test_a_column_that_grew_may_not_shrink_back() -> None:
    logged = {
        "name": LogColumn("name", 15, 80, False, charset="utf8mb4"),
        "body": LogColumn("body", 252, 3, False, charset="utf8mb4"),
        "e": LogColumn("e", 247, 1, False, charset="utf8mb4", labels=("a", "b", "c")),
        "v": LogColumn("v", 8, 0, False),
        "d": LogColumn("d", 246, 14 << 8 | 4, False),
        "at": LogColumn("at", 17, 3, False),
    }
    texts = ("MODIFY name VARCHAR(15)", "MODIFY body TEXT", "MODIFY e ENUM('a','b')")
    for clauses in (*texts, "MODIFY v INT", "MODIFY d DECIMAL(10,2)", "MODIFY at TIMESTAMP NULL"):
        assert judged(clauses) == ""
        assert judged(clauses, logged=logged) != ""
    assert judged("MODIFY name VARCHAR(20), MODIFY body LONGTEXT, MODIFY e ENUM('a','b','c')", logged=logged) == ""


TEXT_KEY = (column("s", "varchar", length=10, charset="utf8mb4", collation="utf8mb4_general_ci"), *COLUMNS)


@pytest.mark.parametrize(
    ("clauses", "goes_on"),
    [
        ("MODIFY s VARCHAR(20) NOT NULL COLLATE utf8mb4_general_ci", True),
        ("MODIFY s VARCHAR(20) COLLATE UTF8MB4_GENERAL_CI CHARACTER SET utf8mb4 NOT NULL", True),
        ("MODIFY s VARCHAR(20) NOT NULL COLLATE utf8mb4_bin", False),
        ("MODIFY s VARCHAR(10) NOT NULL", False),
        ("MODIFY s VARCHAR(10) CHARACTER SET utf8mb4 NOT NULL", False),
        ("CHANGE s s VARCHAR(20) NOT NULL", False),
        ("MODIFY name VARCHAR(20) COLLATE utf8mb4_bin", True),
    ],
)
def test_a_text_of_the_key_must_keep_its_order(clauses: str, *, goes_on: bool) -> None:
    found = judged(clauses, taken=(Taken(TEXT_KEY, ("s",)),), primary=frozenset({"s"}))
    assert (found == "") is goes_on
    assert goes_on or "collation" in found


def test_a_conversion_may_put_a_text_of_the_key_in_another_order() -> None:
    convert = "CONVERT TO CHARACTER SET utf8mb4"
    assert judged(convert, taken=(Taken(TEXT_KEY, ("id",)),)) == ""
    assert judged(convert, taken=(Taken(TEXT_KEY, ("s",)),), primary=frozenset({"s"})) != ""


def test_a_text_of_the_key_whose_order_is_unknown_may_not_be_defined_again() -> None:
    unknown = {"taken": (Taken(COLUMNS, ("name",)),), "primary": frozenset({"name"})}
    assert judged("MODIFY name VARCHAR(20) COLLATE utf8mb4_bin", **unknown) != ""
    assert judged("ADD x INT", **unknown) == ""


LOGGED = {n: LogColumn(n, 3, 0, n == "id") for n in ("id", "v", "other")}


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD COLUMN IF NOT EXISTS v INT",
        "ADD COLUMN IF NOT EXISTS V BIGINT DEFAULT 7 PRIMARY KEY",
        "ADD IF NOT EXISTS v INT REFERENCES u (id) ON DELETE CASCADE",
        "ADD COLUMN IF NOT EXISTS (v INT, other INT)",
        "ADD COLUMN IF NOT EXISTS v INT, ADD COLUMN IF NOT EXISTS x INT, DROP COLUMN other",
        "DROP COLUMN IF EXISTS name",
        "MODIFY COLUMN IF EXISTS name VARCHAR(2)",
        "CHANGE COLUMN IF EXISTS name label VARCHAR(10)",
        "CHANGE COLUMN IF EXISTS name v INT",
        "RENAME COLUMN IF EXISTS name TO v",
    ],
)
def test_what_a_condition_kept_from_happening_stops_nothing(clauses: str) -> None:
    assert judged(clauses, logged=LOGGED) == ""
    assert judged(clauses, logged=dict(LOGGED, name=LOGGED["v"])) == "" or "IF EXISTS" in clauses


@pytest.mark.parametrize(
    "clauses",
    [
        "ADD COLUMN IF NOT EXISTS name VARCHAR(10)",
        "ADD COLUMN IF NOT EXISTS (v INT, name VARCHAR(10))",
        "ADD COLUMN IF NOT EXISTS x INT PRIMARY KEY",
        "DROP COLUMN v, ADD COLUMN IF NOT EXISTS v INT DEFAULT 7",
        "DROP COLUMN IF EXISTS v, ADD COLUMN IF NOT EXISTS v INT DEFAULT 7",
        "CHANGE v w INT, ADD COLUMN IF NOT EXISTS v INT",
        "RENAME COLUMN v TO w, ADD IF NOT EXISTS v INT",
        "DROP COLUMN IF EXISTS id",
        "MODIFY COLUMN IF EXISTS v SMALLINT",
        "CHANGE COLUMN IF EXISTS v w INT",
        "RENAME COLUMN IF EXISTS v TO w",
        "RENAME COLUMN IF EXISTS other TO v",
        "DROP COLUMN IF EXISTS \ufffd",
        "RENAME COLUMN other TO name, MODIFY COLUMN IF EXISTS name SMALLINT",
    ],
)
def test_what_happened_in_spite_of_its_condition_stops_the_table(clauses: str) -> None:
    assert judged(clauses, logged=LOGGED) != ""


def test_a_column_that_was_dropped_since_the_last_description_is_not_there() -> None:
    gone = {"logged": LOGGED, "gone": frozenset({"v"})}
    assert judged("ADD COLUMN IF NOT EXISTS v INT DEFAULT 7", **gone) != ""
    assert judged("MODIFY COLUMN IF EXISTS v SMALLINT", **gone) == ""


def test_a_condition_about_a_table_that_the_log_has_not_described_may_have_held() -> None:
    assert judged("ADD COLUMN IF NOT EXISTS v INT") != ""
    assert judged("MODIFY COLUMN IF EXISTS v SMALLINT") != ""


def test_a_declared_key_rests_on_an_index_that_may_go() -> None:
    declared = {"taken": (Taken(COLUMNS, ("v",)),), "primary": frozenset[str]()}
    assert judged("DROP INDEX i") == ""
    assert judged("DROP INDEX i", **declared) != ""
    assert judged("DROP CONSTRAINT i", **declared) != ""
    assert judged("MODIFY v INT NOT NULL", **declared) == ""
    assert judged("MODIFY v INT", **declared) != ""


def test_a_key_that_rests_on_an_index_continues_when_the_primary_key_changes() -> None:
    columns = (COLUMNS[0], column("v", "int", unique=True))
    declared = {"taken": (Taken(columns, ("v",)),)}
    for clauses in ("DROP PRIMARY KEY", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)"):
        assert judged(clauses, **declared) == ""
        assert judged(clauses, mode=0, **declared) != "", "a new key rids columns of their NULLs"
    assert judged("DROP INDEX i", primary=frozenset({"v"}), **declared) != "", (
        "its own, though the primary one is alike"
    )


def test_cascades_that_the_log_shows_or_that_were_waived_do_no_harm() -> None:
    assert judged("ADD FOREIGN KEY (v) REFERENCES u (id) ON DELETE CASCADE", hides_cascades=False) == ""


def test_every_relation_of_the_table_is_asked() -> None:
    few = Taken((COLUMNS[0], COLUMNS[1]), ("id",))
    assert judged("RENAME COLUMN name TO n", taken=(few,)) == ""
    assert judged("RENAME COLUMN name TO n", taken=(few, Taken(COLUMNS, ("id",)))) != ""
