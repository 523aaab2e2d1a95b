"""Scans of a real MySQL and MariaDB: every row once, whatever happens meanwhile."""

from __future__ import annotations

import pickle
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE, one_key
from headwater.decode.mysql.resultset import to_lake
from headwater.errors import DataError, HeadwaterError, Retry, SourceError
from headwater.model import Bound, Joined, Span, Test
from headwater.source.mysql.begin import prepared
from headwater.source.mysql.scan.low import binlog_end
from headwater.source.mysql.upstream import MysqlUpstream
from support.mysql import MyDatabase
from support.mysql_scan import Bench, bench
from support.wait import wait_for


def numbers(database: MyDatabase, rows: int, columns: str = "id int PRIMARY KEY", value: str = "{0}") -> None:
    """A table `t` with so many rows; `value` makes a row's literals of its number."""
    database.execute(f"CREATE TABLE t ({columns}) CHARSET utf8mb4")
    if rows:
        database.execute("INSERT INTO t VALUES " + ", ".join(f"({value.format(i)})" for i in range(1, rows + 1)))


def open_scan(table: Bench, **options: Any) -> Any:
    chosen = {"lock_timeout_s": 5.0, "batch_bytes": 1 << 20, "hooks": lambda _: None, **options}
    return table.reach.open_scan(table.table, **chosen)


def test_a_scan_that_stops_at_every_batch_resumes_without_a_gap(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1000, "id varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v int", "concat('K', {0}), {0}")
    table = bench(my_database, tmp_path, "t")
    first = scan_span(table.job(WHOLE, slice_s=0.0, batch_bytes=2_000))
    assert first.stopped_at is not None and 0 < first.rows < 1000
    found = [r["v"] for r in table.scan_all([WHOLE], slice_s=0.0, batch_bytes=4_000)]
    assert found == [v for (v,) in my_database.execute("SELECT v FROM t ORDER BY id")]


def test_a_scan_of_at_most_so_many_rows_hands_the_rest_back(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 100)
    table = bench(my_database, tmp_path, "t")
    first = scan_span(table.job(WHOLE, max_rows=30))
    assert (first.rows, first.stopped_at) == (30, Bound(("30",)))
    assert [r["id"] for r in table.scan_all([WHOLE], max_rows=30)] == list(range(1, 101))
    assert scan_span(table.job(WHOLE, max_rows=101)).stopped_at is None
    upto = Span(Bound(("70",)), Bound(("100",)))
    assert scan_span(table.job(upto, max_rows=30)).stopped_at is None, "nothing was left"


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


def test_a_connection_that_ends_in_mid_stream_is_tried_again(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 2000, "id int PRIMARY KEY, b text", "{0}, repeat('x', 20000)")
    table = bench(my_database, tmp_path, "t")
    for how in ("KILL QUERY", "KILL CONNECTION"):
        with open_scan(table, batch_bytes=100_000) as scan:
            batches = scan.batches(WHOLE)
            next(batches)
            (thread,) = (i for i, *_, info in processes(my_database) if info and info.startswith("SELECT scanned"))
            my_database.execute(f"{how} {thread}")
            with pytest.raises(SourceError) as e:
                list(batches)
            assert (e.value.code, e.value.retry) == ("source.disconnected", Retry.AUTO)


def processes(database: MyDatabase) -> list[tuple[Any, ...]]:
    return [(r[0], r[7]) for r in database.execute("SHOW FULL PROCESSLIST")]


def test_a_scan_that_is_stopped_leaves_no_session_behind(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 2000, "id int PRIMARY KEY, b text", "{0}, repeat('x', 20000)")
    table = bench(my_database, tmp_path, "t")
    result = scan_span(table.job(WHOLE, slice_s=0.0, batch_bytes=100_000))
    assert result.stopped_at is not None
    wait_for(lambda: not [1 for _, info in processes(my_database) if info and "scanned" in info], "the query ends", 10)


def test_a_column_dropped_upstream_is_null(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1, "id int PRIMARY KEY, gone int, also json, v int", "1, 2, '[]', 3")
    table = bench(my_database, tmp_path, "t")
    my_database.execute("ALTER TABLE t DROP COLUMN gone, DROP COLUMN also")
    assert table.scan_all([WHOLE]) == [{"id": 1, "gone": None, "also": None, "v": 3}]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("ALTER TABLE t MODIFY v varchar(20)", "data.schema_changed"),
        ("ALTER TABLE t MODIFY w varchar(20) CHARACTER SET latin1", "data.schema_changed"),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", "data.schema_changed"),
        ("ALTER TABLE t MODIFY id varchar(9) COLLATE utf8mb4_bin", "data.schema_changed"),
        ("DROP TABLE t", "data.rewritten"),
    ],
)
def test_a_table_that_changed_its_form_is_not_read(
    statement: str, code: str, my_database: MyDatabase, tmp_path: Path
) -> None:
    shape = "id varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int NOT NULL, w varchar(20)"
    numbers(my_database, 1, shape, "1, 2, 'x'")
    table = bench(my_database, tmp_path, "t")
    my_database.execute(statement)
    with pytest.raises(DataError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == code


def test_a_type_that_grew_is_read(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1, "id int PRIMARY KEY, v int, w varchar(20)", "1, 2, 'x'")
    table = bench(my_database, tmp_path, "t")
    my_database.execute("ALTER TABLE t MODIFY v bigint, MODIFY w text")
    my_database.execute("INSERT INTO t VALUES (2, 9000000000, 'y')")
    result = scan_span(table.job(WHOLE))
    assert table.rows(result) == [{"id": 1, "v": 2, "w": "x"}, {"id": 2, "v": None, "w": "y"}]
    assert result.unrepresentable == {"v": 1}


def test_a_key_that_cannot_be_kept_stops_the_table(my_database: MyDatabase, tmp_path: Path) -> None:
    my_database.execute("CREATE TABLE t (id date PRIMARY KEY)")
    with my_database.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("INSERT INTO t VALUES ('0000-00-00'), ('2020-01-01')")
    table = bench(my_database, tmp_path, "t")
    with pytest.raises(DataError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == "data.key_value"
    assert not list((tmp_path / "base").glob("*"))


def test_another_server_is_not_read(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1)
    table = bench(my_database, tmp_path, "t", identity={"server": "some other"})
    with pytest.raises(SourceError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == "source.replaced"


def test_a_locked_table_is_tried_again_later(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1)
    table = bench(my_database, tmp_path, "t")
    with my_database.connect() as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        with pytest.raises(SourceError) as e:
            scan_span(table.job(WHOLE, lock_timeout_s=1.0))
        assert (e.value.code, e.value.retry) == ("source.lock_timeout", Retry.AUTO)


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


def test_each_scan_reads_the_rows_of_its_own_moment(my_database: MyDatabase, tmp_path: Path) -> None:
    """A read view that outlives its scan would read older rows than the next one says."""
    numbers(my_database, 3)
    table = bench(my_database, tmp_path, "t")
    upstream = MysqlUpstream(my_database.options, my_database.server.password)
    first = scan_span(table.job(WHOLE))
    with table.reach.walk(table.table) as walk:
        assert walk.next_bound(None, Bound(("9",)), 4) is None
        my_database.execute("INSERT INTO t VALUES (4)")
        assert walk.next_bound(None, Bound(("9",)), 4) == Bound(("4",))
    second = scan_span(table.job(WHOLE))
    assert [r["id"] for r in table.rows(second)] == [1, 2, 3, 4]
    assert upstream.number(second.saw) > upstream.number(first.high)


def test_a_truncate_waits_for_the_scan_that_reads(my_database: MyDatabase, tmp_path: Path) -> None:
    """The lock comes before the read view, so no TRUNCATE lies between them and leaves nothing to see."""
    numbers(my_database, 50)
    table = bench(my_database, tmp_path, "t")
    truncating = threading.Thread(target=lambda: my_database.execute("TRUNCATE t"))

    def hooks(point: str) -> None:
        if point == "scan.after_snapshot":
            truncating.start()
            wait_for(lambda: [1 for _, info in processes(my_database) if info == "TRUNCATE t"], "it waits", 10)

    assert scan_span(table.job(WHOLE), hooks).rows == 50
    truncating.join(20)
    assert not truncating.is_alive()
    assert scan_span(table.job(WHOLE)).rows == 0


def test_a_job_travels_to_a_task_and_its_repr_hides_the_password(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1)
    job = bench(my_database, tmp_path, "t").job(one_key(("1",)))
    assert pickle.loads(pickle.dumps(job)) == job
    assert "password" not in repr(job)


def test_a_refusal_names_no_key_value(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 1)
    table = bench(my_database, tmp_path, "t")
    with pytest.raises(HeadwaterError) as e:
        scan_span(table.job(one_key(("not-a-number-4711",))))
    assert "4711" not in str(e.value) and "4711" not in e.value.hint


def test_a_cut_reads_the_table_again_and_again_at_one_moment(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 2000, "id int PRIMARY KEY, b text", "{0}, repeat('x', 2000)")
    table = bench(my_database, tmp_path, "t")
    with table.reach.cut(lambda _: None) as cut:
        my_database.execute("DELETE FROM t WHERE id > 10")
        for _ in range(2):
            with cut.scan(table.table) as scan:
                assert scan is not None
                next(scan.batches(WHOLE))
                scan.stop()
            with cut.scan(table.table) as scan:
                assert scan is not None and sum(b.num_rows for b in scan.batches(WHOLE)) == 2000


@pytest.mark.parametrize("statement", ["TRUNCATE t", "ALTER TABLE t ENGINE = InnoDB", "ALTER TABLE t MODIFY v bigint"])
def test_a_table_rewritten_after_the_cut_cannot_be_read_there(
    statement: str, my_database: MyDatabase, tmp_path: Path
) -> None:
    numbers(my_database, 5, "id int PRIMARY KEY, v int", "{0}, {0}")
    table = bench(my_database, tmp_path, "t")
    with table.reach.cut(lambda _: None) as cut:
        my_database.execute(statement)
        with cut.scan(table.table) as scan:
            assert scan is None


def test_a_user_with_the_documented_privileges_can_do_it_all(my_database: MyDatabase, tmp_path: Path) -> None:
    numbers(my_database, 30)
    my_database.execute("CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'reader'")
    my_database.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    mine = my_database.as_user("reader")
    table = bench(mine, tmp_path, "t")
    upstream = MysqlUpstream(mine.options, mine.password)
    assert upstream.number(upstream.prepare(lambda _: None).position) <= upstream.number(upstream.position())
    assert upstream.blockers(upstream.publish(mine.name, "t")) == []
    assert len(table.scan_all(table.spans(table.plan(span_rows=10, span_bytes=1)), slice_s=0.0, batch_bytes=10)) == 30
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
