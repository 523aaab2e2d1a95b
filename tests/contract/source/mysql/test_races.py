"""Commits between the binlog and visibility, and commits around a read view: no scan and no cut takes them wrongly."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pymysql
import pytest

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE
from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.errors import Retry, SourceError
from headwater.source.mysql.binlog.gtid import MysqlGtids
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.client.ask import binlog_events, query
from headwater.source.mysql.client.session import is_mariadb
from headwater.source.mysql.reach import MysqlReach
from headwater.source.mysql.scan.cut import MysqlCut, upstream_cut
from headwater.source.mysql.scan.low import binlog_end
from headwater.source.mysql.upstream import MysqlUpstream
from support import mysql_hanging
from support.mysql import EmbeddedMySQL, MyDatabase
from support.mysql_hanging import WAIT_S, hanging_commit
from support.mysql_scan import bench
from support.wait import wait_for

WRITERS = 4


@pytest.fixture(scope="module")
def hanging_mysql(mysql: EmbeddedMySQL) -> Iterator[EmbeddedMySQL]:
    with mysql_hanging.mysql() as server:
        yield server


@pytest.fixture(scope="module")
def hanging_mariadb() -> Iterator[EmbeddedMariaDB]:
    with mysql_hanging.mariadb() as server:
        yield server


def gtids_of(database: MyDatabase, place: Position) -> MysqlGtids:
    """The transactions up to a place, out of the server's own listing of that file."""
    found = MysqlGtids()
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{place.name}'")
        for _, at, kind, _, _, info in cursor.fetchall():
            if kind == "Previous_gtids":
                found = MysqlGtids.parse(info)
            elif kind.startswith("Gtid") and at < place.offset:
                found = found.union(MysqlGtids.parse(re.findall(r"'(.*)'", info)[0]))
    return found


def processes(database: MyDatabase) -> list[tuple[Any, ...]]:
    return database.execute("SHOW FULL PROCESSLIST")


def fresh(server: Any, name: str) -> MyDatabase:
    server.execute(f"DROP DATABASE IF EXISTS {name}", database="mysql")
    server.execute(f"CREATE DATABASE {name}", database="mysql")
    database = MyDatabase(server, name)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    return database


def upstream_of(database: MyDatabase) -> MysqlUpstream:
    return MysqlUpstream(database.options, database.server.password)


@pytest.fixture(params=["ON", "OFF"], ids=["gtid", "no_gtid"])
def gtid_mode(request: pytest.FixtureRequest, hanging_mysql: EmbeddedMySQL) -> Iterator[str]:
    off = ["ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"]
    if request.param == "OFF":
        for mode in off:
            hanging_mysql.execute(f"SET GLOBAL gtid_mode = {mode}")
    yield request.param
    if request.param == "OFF":
        for mode in ["OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"]:
            hanging_mysql.execute(f"SET GLOBAL gtid_mode = {mode}")


def test_a_commit_that_is_in_the_binlog_and_not_visible_is_waited_for(
    gtid_mode: str, hanging_mysql: EmbeddedMySQL, tmp_path: Path
) -> None:
    database = fresh(hanging_mysql, "hidden")
    upstream = upstream_of(database)
    table = bench(database, tmp_path, "t")
    with hanging_commit(database, "UPDATE t SET v = 20 WHERE id = 2") as release:
        # What a watermark taken before the read would do: it lies behind the commit, which the read does not show.
        watermark = upstream.position()
        assert database.execute("SELECT v FROM t WHERE id = 2") == [(2,)]
        with pytest.raises(SourceError) as e:
            scan_span(table.job(WHOLE, lock_timeout_s=1.0))
        assert (e.value.code, e.value.retry) == ("source.lock_timeout", Retry.AUTO)
        assert "root@" in e.value.message and "semi-sync ACK" in e.value.message
        releasing = threading.Timer(0.5, release)
        releasing.start()
        result = scan_span(table.job(WHOLE, lock_timeout_s=20.0))
        releasing.join()
    assert upstream.number(result.saw) >= upstream.number(watermark)
    assert table.rows(result) == [{"id": 1, "v": 1}, {"id": 2, "v": 20}]


def test_a_transaction_that_only_runs_is_not_waited_for(
    gtid_mode: str, hanging_mysql: EmbeddedMySQL, tmp_path: Path
) -> None:
    database = fresh(hanging_mysql, "running")
    table = bench(database, tmp_path, "t")
    with database.connect() as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v = 10 WHERE id = 1")
        result = scan_span(table.job(WHOLE, lock_timeout_s=2.0))
        begins = Position.parse(upstream_of(database).position()).number
        cursor.execute("COMMIT")
    assert table.rows(result) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert not upstream_of(database).sees(result.saw, np.array([begins], np.int64))[0]


def test_mariadb_shows_where_the_visible_ends(hanging_mariadb: EmbeddedMariaDB, tmp_path: Path) -> None:
    database = fresh(hanging_mariadb, "hidden")
    upstream = upstream_of(database)
    table = bench(database, tmp_path, "t")
    begins = upstream.number(upstream.position())
    with hanging_commit(database, "UPDATE t SET v = 20 WHERE id = 2"):
        assert upstream.number(upstream.position()) > begins
        result = scan_span(table.job(WHOLE, lock_timeout_s=5.0))
        with table.reach.cut(lambda _: None) as cut:
            assert upstream.number(cut.position) <= begins
    assert table.rows(result) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    assert not upstream.sees(result.saw, np.array([begins], np.int64))[0], "the change counts when the log brings it"


@pytest.fixture(params=["mariadb", "mysql"], ids=["mariadb", "mysql without gtids"])
def without_gtids(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Servers that tell by their sessions alone who commits a prepared transaction."""
    if request.param == "mariadb":
        yield request.getfixturevalue("hanging_mariadb")
        return
    server: EmbeddedMySQL = request.getfixturevalue("hanging_mysql")
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
        server.execute(f"SET GLOBAL gtid_mode = {mode}")
    yield server
    for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
        server.execute(f"SET GLOBAL gtid_mode = {mode}")


def prepare(database: MyDatabase, name: str, statement: str) -> None:
    """Leaves a prepared transaction behind, of no session any more."""
    with database.connect() as session, session.cursor() as cursor:
        for text in (f"XA START '{name}'", statement, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            cursor.execute(text)
        thread = session.thread_id()
    # one that its own session is still letting go of must not be committed: the server would forget its rows
    wait_for(lambda: all(p[0] != thread for p in processes(database)), "its session is gone", WAIT_S)


def test_a_prepared_transaction_is_waited_for_while_somebody_commits_it(without_gtids: Any, tmp_path: Path) -> None:
    database = fresh(without_gtids, "prepared")
    table = bench(database, tmp_path, "t")
    prepare(database, "held", "UPDATE t SET v = 20 WHERE id = 2")
    # nobody commits it: it is in nobody's way
    result = scan_span(table.job(WHOLE, lock_timeout_s=5.0))
    assert table.rows(result) == [{"id": 1, "v": 1}, {"id": 2, "v": 2}]
    with hanging_commit(database, "/* app */ XA  COMMIT /* now */ 'held'") as release:
        with pytest.raises(SourceError) as e:
            scan_span(table.job(WHOLE, lock_timeout_s=1.0))
        assert (e.value.code, e.value.retry) == ("source.lock_timeout", Retry.AUTO)
        releasing = threading.Timer(0.5, release)
        releasing.start()
        result = scan_span(table.job(WHOLE, lock_timeout_s=20.0))
        releasing.join()
    assert table.rows(result) == [{"id": 1, "v": 1}, {"id": 2, "v": 20}]


def test_a_user_who_sees_no_sessions_waits_for_every_prepared_transaction(
    hanging_mariadb: EmbeddedMariaDB, tmp_path: Path
) -> None:
    database = fresh(hanging_mariadb, "unseen")
    database.execute("CREATE OR REPLACE USER reader IDENTIFIED BY 'reader'")
    database.execute("GRANT SELECT ON unseen.* TO reader")
    database.execute("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO reader")
    table = bench(database.as_user("reader"), tmp_path, "t")
    prepare(database, "unseen", "UPDATE t SET v = 20 WHERE id = 2")
    with pytest.raises(SourceError) as e:
        scan_span(table.job(WHOLE, lock_timeout_s=1.0))
    assert e.value.code == "source.lock_timeout" and "GRANT PROCESS" in e.value.hint
    database.execute("XA ROLLBACK 'unseen'")
    assert scan_span(table.job(WHOLE, lock_timeout_s=5.0)).rows == 2
    database.execute("DROP USER reader")


@pytest.mark.soak
def test_mariadb_cuts_agree_with_the_binlog_while_prepared_transactions_commit(
    hanging_mariadb: EmbeddedMariaDB,
) -> None:
    """About one read view in 150 lacks the rows of such a commit that lies before its place, if it is taken blindly."""
    database = fresh(hanging_mariadb, "two_phases")
    database.execute("FLUSH BINARY LOGS")
    since = Position.parse(upstream_of(database).position())
    numbers, stop, cuts = itertools.count(100), threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            number = next(numbers)
            prepare(database, f"x{number}", f"INSERT INTO t VALUES ({number}, 0)")
            database.execute(f"XA COMMIT 'x{number}'")

    threads = [threading.Thread(target=write) for _ in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(800):
            with upstream_cut(database.endpoint, lambda _: None) as cut:
                rows = query(cut._session, "SELECT id FROM t")
                cuts.append((Position.parse(cut.position).number, {id for (id,) in rows}))
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
    ends = {}
    for _, _, _, _, end, info in database.execute(f"SHOW BINLOG EVENTS IN '{since.name}' FROM {since.offset}"):
        if found := re.match(r"XA COMMIT X'(\w+)'", info or ""):
            ends[int(bytes.fromhex(found[1])[1:])] = Position.of(since.name, end).number
    # what the server lost by itself (it forgets rows of a session that ends at that moment) is in no read view at all
    kept = {id for (id,) in database.execute("SELECT id FROM t")}
    ends = {id: end for id, end in ends.items() if id in kept}
    for position, found_rows in cuts:
        assert {row for row, end in ends.items() if end <= position} == found_rows & ends.keys()


def test_a_table_is_planned_once_every_commit_before_it_was_followed_is_visible(
    gtid_mode: str, hanging_mysql: EmbeddedMySQL
) -> None:
    assert_begin_waits(fresh(hanging_mysql, "followed"))


def test_mariadb_too_waits_before_a_table_is_planned(hanging_mariadb: EmbeddedMariaDB) -> None:
    assert_begin_waits(fresh(hanging_mariadb, "followed"))


def assert_begin_waits(database: MyDatabase) -> None:
    upstream = upstream_of(database)
    assert upstream.blockers(upstream.publish(database.name, "t")) == []
    with hanging_commit(database, "UPDATE t SET v = 20 WHERE id = 2") as release:
        ticket = upstream.publish(database.name, "t")
        for _ in range(2):  # it may be asked again
            (who,) = upstream.blockers(ticket)
            assert "root@" in who and "semi-sync ACK" in who
        release()
        wait_for(lambda: upstream.blockers(ticket) == [], "it is visible", WAIT_S)  # InnoDB lists it a moment longer


def test_no_cut_is_made_while_a_commit_hangs(
    gtid_mode: str, hanging_mysql: EmbeddedMySQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.source.mysql.scan.cut.CALM_S", 1.5)
    database = fresh(hanging_mysql, "cut")
    table = bench(database, tmp_path, "t")
    heard: list[str] = []
    with hanging_commit(database, "UPDATE t SET v = 20 WHERE id = 2") as release:
        with pytest.raises(SourceError) as e, table.reach.cut(heard.append):
            raise AssertionError("a cut that is none")
        assert e.value.retry is Retry.AUTO and heard
        release()
        with table.reach.cut(heard.append) as cut, cut.scan(table.table) as scan:
            assert scan is not None and sum(b.num_rows for b in scan.batches(WHOLE)) == 2


@contextmanager
def writers(database: MyDatabase) -> Iterator[None]:
    """Sessions that insert one row per commit, with gaps of their own, as fast as they can."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write(first: int) -> None:
        try:
            with database.connect() as session, session.cursor() as cursor:
                number = first
                while not stop.is_set():
                    cursor.execute(f"INSERT INTO t VALUES ({number}, {first})")
                    number += WRITERS
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=write, args=(100 + i,)) for i in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)
        assert not failures


def commits(database: MyDatabase, since: Position) -> dict[int, int]:
    """Per inserted row the place in the binlog at which its transaction ends, out of the server's own listing."""
    ends: dict[int, int] = {}
    open: list[int] = []
    with database.connect(cursorclass=pymysql.cursors.SSCursor) as session, session.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{since.name}' FROM {since.offset}")
        for _, _, kind, _, end, info in cursor:
            if found := re.search(r"INSERT INTO t VALUES \((\d+),", info or ""):
                open.append(int(found[1]))
            elif kind == "Xid":
                ends |= dict.fromkeys(open, Position.of(since.name, end).number)
                open = []
    return ends


def test_a_changelog_starts_with_exactly_the_transactions_before_it(hanging_mysql: EmbeddedMySQL) -> None:
    """A failover would send again what is missing from the set, and never what is too much in it."""
    database = fresh(hanging_mysql, "started")
    database.execute("FLUSH BINARY LOGS")
    upstream = upstream_of(database)
    with writers(database):
        started = [Position.parse(upstream.prepare(lambda _: None).position) for _ in range(10)]
    assert len({p.number for p in started}) > 1
    for place in started:
        assert place.gtids == str(gtids_of(database, place))


def test_mariadb_starts_a_changelog_with_the_last_transaction_before_it(hanging_mariadb: EmbeddedMariaDB) -> None:
    database = fresh(hanging_mariadb, "started")
    upstream = upstream_of(database)
    place = Position.parse(upstream.prepare(lambda _: None).position)
    assert place.gtids == database.execute("SELECT @@global.gtid_binlog_pos")[0][0]
    assert str(place).startswith(upstream.position())


def test_a_cut_under_a_lock_is_exact_too(
    hanging_mysql: EmbeddedMySQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.source.mysql.scan.cut.CALM_S", 0.0)  # as on a server that never stands still
    database = fresh(hanging_mysql, "locked")
    table = bench(database, tmp_path, "t")
    reach = MysqlReach(database.endpoint, may_lock=True)
    database.execute("FLUSH BINARY LOGS")
    since = Position.parse(upstream_of(database).position())
    with writers(database):
        wait_for(lambda: database.execute("SELECT count(*) FROM t")[0][0] > 20, "writers write", WAIT_S)
        with reach.cut(lambda _: None) as cut, cut.scan(table.table) as scan:
            assert scan is not None
            found = {r["id"] for b in scan.batches(WHOLE) for r in table.lake(b)}
    ends = commits(database, since)
    assert {row for row, end in ends.items() if end <= upstream_of(database).number(cut.position)} == found - {1, 2}


def test_statements_in_any_charset_are_among_the_events_of_a_binlog(my_database: MyDatabase) -> None:
    """A server repeats what changed rows as it came, if it does."""
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(9))")
    with my_database.endpoint.connect() as session:
        began = binlog_end(session)
        with my_database.connect(charset="latin1") as other, other.cursor() as cursor:
            told = "binlog_annotate_row_events" if is_mariadb(session) else "binlog_rows_query_log_events"
            cursor.execute(f"SET SESSION {told} = ON")
            cursor.execute("INSERT INTO t VALUES (1, '\u00f6\u00e4')")
        events = binlog_events(session, began.name, began.offset)
        assert any("VALUES (1, '\u00f6\u00e4')" in e["info"] for e in events), events
        assert binlog_events(session, began.name, began.offset, 1)[0]["pos"] == str(began.offset)
        assert query(session, "SELECT '\u00f6'") == [("\u00f6",)], "everything else is decoded as before"


def test_a_table_that_a_cut_sees_empty_by_a_later_truncate_is_not_read_there(
    my_database: MyDatabase, tmp_path: Path
) -> None:
    """TRUNCATE is visible before it is in the binlog: a cut between the two has the place before it, without rows."""
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    my_database.execute("INSERT INTO t VALUES (1)")
    table, endpoint = bench(my_database, tmp_path, "t"), my_database.endpoint
    with upstream_cut(endpoint, print, may_lock=True) as before:
        place = Position.parse(before.position)
    my_database.execute("TRUNCATE t")
    with upstream_cut(endpoint, print, may_lock=True) as after, after.scan(table.table) as scan:
        assert scan is not None, "an empty table can be read"
    with upstream_cut(endpoint, print, may_lock=True) as after:
        between = MysqlCut(endpoint, after._session, place, after._life)
        with between.scan(table.table) as spoiled:
            assert spoiled is None
