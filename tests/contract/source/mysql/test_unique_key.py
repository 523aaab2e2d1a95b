"""A declared key that rests on a unique index, beside a primary key that is of no concern. On real servers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headwater.model import Column, Op
from headwater.source.frames import Taken
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.catalog import watch
from support.mysql import MyDatabase
from support.mysql_log import LogReader
from support.mysql_values import TableLog, columns_of

SHAPE = "(id int PRIMARY KEY, k int NOT NULL, v int, w int NOT NULL, UNIQUE by_k (k), KEY by_v (v))"
KEY = ("k",)
GOES_ON, STOPS = (False, False), (True, True)


@dataclass(frozen=True)
class Case:
    """Statements over the table {t}: whether the log stops it, and whether the catalog does where it is silent."""

    statements: tuple[str, ...]
    stops: bool
    lost: bool
    mode: str = "STRICT_ALL_TABLES"


CASES = (
    Case(("ALTER TABLE {t} DROP PRIMARY KEY",), *GOES_ON),
    Case(("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (w)", "INSERT INTO {t} VALUES (1, 9, 9, 9)"), *GOES_ON),
    Case(("ALTER TABLE {t} DROP PRIMARY KEY, ADD PRIMARY KEY (v)",), True, False, mode=""),
    Case(("ALTER TABLE {t} ADD UNIQUE (w)", "ALTER TABLE {t} RENAME INDEX by_k TO other"), *GOES_ON),
    Case(("ALTER TABLE {t} DROP INDEX by_k",), *STOPS),
    Case(("DROP INDEX by_k ON {t}", "INSERT INTO {t} VALUES (5, 1, 1, 1)"), *STOPS),
    Case(("ALTER TABLE {t} DROP INDEX by_k, ADD UNIQUE by_k (k, w)",), *STOPS),
    Case(("ALTER TABLE {t} DROP INDEX by_k, ADD UNIQUE by_k (w)",), *STOPS),
    Case(("ALTER TABLE {t} MODIFY k int NULL",), *STOPS),
    Case(("ALTER TABLE {t} MODIFY k bigint NOT NULL",), *GOES_ON),
)  # fmt: skip


def followed(database: MyDatabase, table: str) -> tuple[Column, ...]:
    return columns_of(database, table, key=KEY)


def shape(database: MyDatabase, table: str) -> str:
    number = table_number(database.name, table)
    with database.endpoint.connect() as session:
        return watch.fingerprints(session, database.name, [number])[number]


def carry_out(database: MyDatabase, case: Case, table: str, *first: str) -> None:
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in (f"SET sql_mode = '{case.mode}'", *first, *case.statements):
            cursor.execute(statement.format(t=table))


def test_rows_are_told_apart_by_the_declared_key_whatever_the_primary_key_is(my_database: MyDatabase) -> None:
    my_database.execute(f"CREATE TABLE t {SHAPE}")
    columns, log = followed(my_database, "t"), TableLog(my_database, "t")
    for statement in (
        "INSERT INTO t VALUES (1, 10, 1, 1), (2, 20, 2, 2)",
        "UPDATE t SET id = 3 WHERE k = 10",
        "UPDATE t SET k = 30 WHERE k = 20",
        "DELETE FROM t WHERE k = 10",
    ):
        my_database.execute(statement)
    rows = log.changes(columns, KEY).table.to_pylist()
    assert [(r["__op"], r["k"], r["id"], r["__old"]) for r in rows] == [
        (Op.INSERT, 10, 1, None),
        (Op.INSERT, 20, 2, None),
        (Op.UPDATE, 10, 3, None),
        (Op.UPDATE, 30, 2, {"k": 20}),
        (Op.DELETE, 10, None, None),
    ]


def test_a_change_of_the_index_that_the_key_rests_on_stops_the_table_and_of_the_primary_key_does_not(
    my_database: MyDatabase,
) -> None:
    tables = [f"t{i}" for i in range(len(CASES))]
    for table in tables:
        my_database.execute(f"CREATE TABLE {table} {SHAPE}")
        my_database.execute(f"INSERT INTO {table} VALUES (1, 1, 1, 1), (2, 2, 2, 2)")
    reader = LogReader(my_database, tuple(tables))
    for id, table in reader.ids.items():
        reader.memory.relations[id] = Taken(followed(my_database, table), KEY)
    for case, table in zip(CASES, tables, strict=True):
        carry_out(my_database, case, table)
    broken = {c.table for c in reader.read() if c.op is Op.BREAK}
    assert [c for c, t in zip(CASES, tables, strict=True) if c.stops != (t in broken)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.statements[0])
def test_an_index_that_went_without_a_word_in_the_log_stops_the_table(my_database: MyDatabase, case: Case) -> None:
    my_database.execute(f"CREATE TABLE t {SHAPE}")
    before = shape(my_database, "t")
    carry_out(my_database, case, "t", "SET sql_log_bin = 0")
    error = watch.verdict(before, shape(my_database, "t"), "lake_t", KEY)
    if not case.lost:
        assert error is None
    else:
        assert error and "lost its unique index by_k (k)" in error.message and "RESYNC TABLE lake_t" in error.hint
