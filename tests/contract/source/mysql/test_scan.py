"""Scans of a real MySQL and MariaDB: every row once, whatever happens meanwhile."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE
from headwater.decode.mysql.resultset import to_lake
from headwater.model import Joined, Test
from headwater.source.mysql.begin import prepared
from headwater.source.mysql.scan.low import binlog_end
from headwater.source.mysql.upstream import MysqlUpstream
from support import turns
from support.mysql import MyDatabase
from support.mysql_scan import Bench, bench

pytestmark = turns.TAKEN


def numbers(database: MyDatabase, rows: int, columns: str = "id int PRIMARY KEY", value: str = "{0}") -> None:
    """A table `t` with so many rows; `value` makes a row's literals of its number."""
    database.execute(f"CREATE TABLE t ({columns}) CHARSET utf8mb4")
    if rows:
        database.execute("INSERT INTO t VALUES " + ", ".join(f"({value.format(i)})" for i in range(1, rows + 1)))


def open_scan(table: Bench, **options: Any) -> Any:
    chosen = {"lock_timeout_s": 5.0, "batch_bytes": 1 << 20, "hooks": lambda _: None, **options}
    return table.reach.open_scan(table.table, **chosen)


def test_batches_of_any_size_hold_every_row(my_database: MyDatabase, tmp_path: Path) -> None:
    """Rows and packets end anywhere in a block: long ones, short ones, and one of more than 16 MB among them."""
    my_database.server.execute("SET GLOBAL max_allowed_packet = 67108864")
    numbers(my_database, 500, "id int PRIMARY KEY, b longblob", "{0}, repeat(char(65 + {0} % 26), {0} * {0} % 9973)")
    for id, size in ((501, 20_000_000), (502, 16_777_215 - 9), (503, 16_777_215 - 8), (504, 1)):
        my_database.execute(f"INSERT INTO t VALUES ({id}, repeat('x', {size}))")
    table = bench(my_database, tmp_path, "t")
    expected = my_database.execute("SELECT id, length(b), crc32(b) FROM t ORDER BY id")
    for batch_bytes in (1, 5_000, 8 << 20):
        found = []
        with open_scan(table, batch_bytes=batch_bytes) as scan:
            for batch in scan.batches(WHOLE):
                lake, _ = to_lake(batch, table.table.columns, table.table.key)
                found += [(r["id"], len(r["b"]), zlib.crc32(r["b"])) for r in lake.to_pylist()]
        assert found == expected


def test_a_type_that_grew_is_read(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1, "id int PRIMARY KEY, v int, w varchar(20)", "1, 2, 'x'")
    table = bench(my_database, tmp_path, "t")
    my_database.execute("ALTER TABLE t MODIFY v bigint, MODIFY w text")
    my_database.execute("INSERT INTO t VALUES (2, 9000000000, 'y')")
    result = scan_span(table.job(WHOLE))
    assert table.rows(result) == [{"id": 1, "v": 2, "w": "x"}, {"id": 2, "v": None, "w": "y"}]
    assert result.unrepresentable == {"v": 1}


def test_a_filter_is_judged_by_the_bytes_of_a_text(my_database: MyDatabase, tmp_path: Path) -> None:
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(9), b bool, d datetime(6)) CHARSET latin1")
    my_database.execute(
        "INSERT INTO t VALUES (1, 'a', 1, '2020-01-01 00:00:00.5'), (2, 'A', 0, '2020-01-01'), (3, 'a ', 2, NULL), "
        "(4, 'ä', 1, '2019-12-31'), (5, NULL, NULL, '2020-01-02')"
    )
    for condition, expected in (
        (Test("v", "=", ("a",)), [1]),
        (Test("v", "<>", ("a",)), [2, 3, 4]),
        (Test("v", "in", ("A", "ä")), [2, 4]),
        (Test("v", "null"), [5]),
        (Joined("not", (Test("v", "in", ("A", "ä")),)), [1, 3]),
        (Test("b", "=", (True,)), [1, 4]),
        (Joined("and", (Test("id", ">=", (2,)), Test("id", "<", (4,)))), [2, 3]),
    ):
        table = bench(my_database, tmp_path, "t", filter=condition)
        assert [r["id"] for r in table.scan_all([WHOLE])] == expected, condition


def test_a_user_with_the_documented_privileges_can_do_it_all(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 30)
    my_database.execute("CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'reader'")
    my_database.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    mine = my_database.as_user("reader")
    table = bench(mine, tmp_path, "t")
    upstream = MysqlUpstream(mine.options, mine.password)
    assert upstream.number(upstream.prepare(lambda _: None).position) <= upstream.number(upstream.position())
    assert upstream.blockers(upstream.publish(mine.name, "t")) == []
    assert len(table.scan_all(table.spans(table.plan(span_rows=10, span_bytes=1)), scan_s=0.0, batch_bytes=10)) == 30
    with table.reach.cut(lambda _: None) as cut, cut.scan(table.table) as scan:
        assert scan is not None
        next(scan.batches(WHOLE))
        scan.stop()


def test_what_lies_behind_a_position_is_counted_over_files(my_database: MyDatabase) -> None:
    numbers(my_database, 1, "id int PRIMARY KEY, b longblob", "1, ''")
    upstream = MysqlUpstream(my_database.options, my_database.server.password)
    since = upstream.position()
    assert upstream.log_end(since).behind_bytes == 0
    for id in (2, 3):
        my_database.execute(f"INSERT INTO t VALUES ({id}, repeat('x', 50000))")
        my_database.execute("FLUSH BINARY LOGS")
    end = upstream.log_end(since)
    assert 100_000 < end.behind_bytes < 110_000
    assert upstream.number(end.position) > upstream.number(since)
    shifted = upstream.log_end(f"{since.split(' ')[0]}@5")
    assert (shifted.behind_bytes, shifted.position.split("@")[1]) == (end.behind_bytes, "5")


def test_positions_know_themselves(my_database: MyDatabase) -> None:
    upstream = MysqlUpstream(my_database.options, my_database.server.password)
    position = upstream.prepare(lambda _: None).position
    assert upstream.reads_position(position) and not upstream.reads_position("0/16B3748")
    number = upstream.number(position)
    assert upstream.txn_min(position) == number
    assert upstream.sees(position, np.array([number - 1, number, number + 1], np.int64)).tolist() == [
        True,
        False,
        False,
    ]


def test_a_changelog_does_not_begin_between_a_prepared_transaction_and_its_commit(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    upstream = MysqlUpstream(my_database.options, my_database.server.password)
    told: list[str] = []
    with my_database.connect() as session, session.cursor() as cursor:
        for statement in ("XA START 'late'", "INSERT INTO t VALUES (1)", "XA END 'late'", "XA PREPARE 'late'"):
            cursor.execute(statement)

        def commit(who: str) -> None:
            if not told:
                told.append(who)
                cursor.execute("XA COMMIT 'late'")

        made = upstream.prepare(commit)
    assert told and "late" in told[0]
    with my_database.endpoint.connect() as session:
        assert upstream.number(made.position) <= binlog_end(session).number
        assert prepared(session) == []
