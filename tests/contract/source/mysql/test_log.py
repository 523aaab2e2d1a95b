"""The log of real MySQL and MariaDB servers: every kind of event becomes rows, or a visible end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from headwater.errors import SourceError
from headwater.model import Op
from headwater.source.mysql.binlog.position import Position
from support.mysql import EmbeddedMySQL, MyDatabase
from support.mysql_log import Change, LogReader, collect, ints
from support.wait import wait_for


@pytest.fixture
def table(my_database: MyDatabase) -> Iterator[MyDatabase]:
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    yield my_database
    for _format, first, _second, xid in my_database.execute("XA RECOVER"):  # would hold the database's tables for ever
        my_database.execute(f"XA ROLLBACK '{xid[:first]}', '{xid[first:]}', {_format}")


def run(database: MyDatabase, *statements: str, **options: Any) -> None:
    """Statements in one session."""
    with database.connect(**options) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def broken(reader: LogReader, changes: list[Change]) -> str:
    """Why the table broke; the last change must say so."""
    assert changes[-1].op is Op.BREAK
    return [r.broken for r in reader.relations if r.broken][-1]


def test_inserts_updates_and_deletes_come_as_whole_images(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "INSERT INTO t VALUES (1, 'a'), (2, NULL)", "UPDATE t SET v = 'b' WHERE id = 1", "DELETE FROM t")
    changes = reader.read()
    unused = changes[0].payload[0]  # bits of the null bitmap that belong to no column
    assert unused & 3 == 0
    a, b = (bytes([unused]) + b"\x01\0\0\0\x01" + letter for letter in (b"a", b"b"))
    null = bytes([unused | 2]) + b"\x02\0\0\0"
    assert [(c.op, c.payload) for c in changes] == [
        (Op.INSERT, a),
        (Op.INSERT, null),
        (Op.UPDATE, a + b),
        (Op.DELETE, b),
        (Op.DELETE, null),
    ]
    assert [c.txn for c in changes] == sorted(c.txn for c in changes)
    assert len({c.txn for c in changes}) == 3
    (relation,) = reader.relations
    assert [(c.name, c.key, c.charset) for c in relation.columns] == [("id", True, ""), ("v", False, "utf8mb4")]


def test_a_transaction_is_one_and_ends_where_its_commit_ends(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "BEGIN", "INSERT INTO t VALUES (1, 'a')", "UPDATE t SET v = 'c'", "COMMIT")
    assert len({c.txn for c in reader.read()}) == 1
    (frames,) = reader.frames
    done = frames.transactions
    assert (done.first_index.tolist(), done.last_index.tolist()) == ([1], [2])
    assert done.commit[0] <= Position.parse(reader.position).number
    assert done.txn[0] < done.commit[0]


def test_rows_of_tables_that_nobody_follows_leave_only_a_position(table: MyDatabase) -> None:
    table.execute("CREATE TABLE other (id int PRIMARY KEY)")
    reader = LogReader(table, ("t",))
    before = Position.parse(reader.position).number
    run(table, "INSERT INTO other VALUES (1), (2)")
    assert reader.read() == []
    assert Position.parse(reader.position).number > before


def test_the_position_counts_the_transactions(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, *(f"INSERT INTO t VALUES ({i}, 'x')" for i in range(5)))
    reader.read()
    if isinstance(table.server, EmbeddedMariaDB):
        expected = table.execute("SELECT @@global.gtid_binlog_pos")[0][0]
    else:
        expected = "".join(table.execute("SELECT @@global.gtid_executed")[0][0].split())
    assert Position.parse(reader.position).gtids == expected


def test_a_log_that_is_cut_anywhere_gives_the_same_rows(table: MyDatabase) -> None:
    whole, cut = LogReader(table, ("t",)), LogReader(table, ("t",), server_id=4_000_000_002, piece_bytes=200)
    cut.position = whole.position
    many = ", ".join(f"({i}, repeat('x', {i % 40}))" for i in range(3000))
    run(table, "BEGIN", f"INSERT INTO t VALUES {many}", "UPDATE t SET v = 'y' WHERE id < 900", "COMMIT")
    run(table, "INSERT INTO t VALUES (-1, 'a')", "TRUNCATE t", "INSERT INTO t VALUES (1, 'z')")
    expected = whole.read()
    assert len(expected) == 3903
    assert cut.read() == expected
    assert cut.position == whole.position
    assert len(cut.frames) > 15
    assert [t for f in cut.frames for t in f.transactions.last_index.tolist()] == [3900, 3901, 3902, 3903]


def test_resuming_in_the_middle_gives_exactly_the_rest(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    for i in range(6):
        run(table, f"INSERT INTO t VALUES ({i}, 'a')", *(["FLUSH BINARY LOGS"] if i % 2 else []))
        assert ints(reader.read()) == [("insert", i)]
    assert reader.read() == []


def test_a_file_that_ends_is_followed_by_the_next(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(
        table,
        "INSERT INTO t VALUES (1, 'a')",
        "FLUSH BINARY LOGS",
        "FLUSH BINARY LOGS",
        "INSERT INTO t VALUES (2, 'a')",
    )
    assert ints(reader.read()) == [("insert", 1), ("insert", 2)]
    assert Position.parse(reader.position).file >= 3


def test_the_file_that_is_being_read_is_marked_when_the_log_moves_on(table: MyDatabase) -> None:
    """The one that was marked at the connect may be purged when a reset log has to be known by its mark."""
    reader = LogReader(table, ("t",))
    with reader.flow() as log:
        first = log.standing.identity["file"]
        table.execute("FLUSH BINARY LOGS")
        run(table, "INSERT INTO t VALUES (1, 'a')")
        reader.frame(log, *collect(log))
        log.acknowledge(reader.position)
        marked = log.standing.identity
    assert marked["file"] == Position.parse(reader.position).name != first
    with reader.flow() as log:  # which compares it
        assert log.standing.identity["file"] == marked["file"]
    reader.identity = {**marked, "file_mark": marked["file_mark"][:-1] + "x"}
    with pytest.raises(SourceError) as e, reader.flow():
        raise AssertionError("another file goes unnoticed")
    assert e.value.code == "source.slot_lost"


def test_an_idle_server_says_where_its_log_stands(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "FLUSH BINARY LOGS")
    with reader.flow() as log:
        collect(log)  # waits until a heartbeat or an event reaches the end
        log.beat()


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_checksums_make_no_difference(table: MyDatabase, checksum: str) -> None:
    before = table.execute("SELECT @@global.binlog_checksum")[0][0]
    try:
        reader = LogReader(table, ("t",))
        run(table, "INSERT INTO t VALUES (1, 'a')", f"SET GLOBAL binlog_checksum = {checksum}")
        run(table, "INSERT INTO t VALUES (2, 'a')")
        assert ints(reader.read()) == [("insert", 1), ("insert", 2)]
        run(table, "INSERT INTO t VALUES (3, 'a')")
        assert ints(reader.read()) == [("insert", 3)]
    finally:
        table.execute(f"SET GLOBAL binlog_checksum = {before}")


def test_compressed_transactions_are_unpacked(mysql_database: MyDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    reader = LogReader(mysql_database, ("t",))
    many = ", ".join(f"({i}, 'aaaaaaaaaaaaaaaa')" for i in range(2000))
    run(mysql_database, "SET binlog_transaction_compression = ON", f"INSERT INTO t VALUES {many}", "DELETE FROM t")
    changes = reader.read()
    assert ints(changes) == [("insert", i) for i in range(2000)] + [("delete", i) for i in range(2000)]
    run(mysql_database, "INSERT INTO t VALUES (1, 'a')")
    assert ints(reader.read()) == [("insert", 1)]  # the position after a compressed transaction is a good one


def test_compressed_events_are_unpacked(mariadb_database: MyDatabase) -> None:
    mariadb_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    reader = LogReader(mariadb_database, ("t",))
    try:
        mariadb_database.execute("SET GLOBAL log_bin_compress = ON")
        many = ", ".join(f"({i}, repeat('a', 40))" for i in range(500))
        run(mariadb_database, f"INSERT INTO t VALUES {many}", "UPDATE t SET v = 'b'", "DELETE FROM t")
        run(mariadb_database, f"TRUNCATE TABLE t /* {'x' * 400} */")
    finally:
        mariadb_database.execute("SET GLOBAL log_bin_compress = OFF")
    expected = [(op, i) for op in ("insert", "update", "delete") for i in range(500)]
    assert ints(reader.read()) == [*expected, ("truncate", 0)]


def test_a_row_above_16_mb_comes_whole(my_server: EmbeddedServer, my_database: MyDatabase) -> None:
    before = my_server.execute("SELECT @@global.max_allowed_packet")[0][0]
    my_server.execute("SET GLOBAL max_allowed_packet = 134217728")
    try:
        my_database.execute("CREATE TABLE t (id int PRIMARY KEY, v longblob)")
        reader = LogReader(my_database, ("t",))
        run(my_database, "INSERT INTO t VALUES (1, repeat('ab', 17000000))", "INSERT INTO t VALUES (2, 'c')")
        first, second = reader.read()
        assert first.payload[1:] == b"\x01\0\0\0" + (34_000_000).to_bytes(4, "little") + b"ab" * 17_000_000
        assert second.payload[1:] == b"\x02\0\0\0\x01\0\0\0c"
    finally:
        my_server.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_truncate_is_a_row_of_its_own(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "INSERT INTO t VALUES (1, 'a')", "TRUNCATE TABLE t", "INSERT INTO t VALUES (2, 'a')")
    assert ints(reader.read()) == [("insert", 1), ("truncate", 0), ("insert", 2)]
    run(table, "TRUNCATE t")
    assert ints(reader.read()) == [("truncate", 0)]


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("DROP TABLE t", "dropped"),
        ("DROP TABLE IF EXISTS nothing, t", "dropped"),
        ("RENAME TABLE t TO u", "renamed"),
        ("RENAME TABLE s TO u, t TO s", "renamed"),
        ("ALTER TABLE t RENAME TO u", "renamed"),
        ("ALTER TABLE t TRUNCATE PARTITION p1", "TRUNCATE PARTITION"),
        ("ALTER TABLE t DROP PARTITION p1", "DROP PARTITION"),
        ("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE s", "EXCHANGE PARTITION"),
    ],
)
def test_a_table_breaks_where_the_log_does_not_tell_rows(my_database: MyDatabase, statement: str, says: str) -> None:
    shape = "(id int PRIMARY KEY, v varchar(40))"
    parts = "PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN MAXVALUE)"
    run(my_database, f"CREATE TABLE t {shape} {parts}", f"CREATE TABLE s {shape}")
    reader = LogReader(my_database, ("t",))
    run(my_database, "INSERT INTO t VALUES (1, 'a')", statement)
    changes = reader.read()
    assert [c.op for c in changes] == [Op.INSERT, Op.BREAK]
    assert says in broken(reader, changes)


def test_a_dropped_database_breaks_its_tables(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    session = table.server.connect("mysql")
    with session, session.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {table.name}")
        cursor.execute(f"CREATE DATABASE {table.name}")
    assert "dropped" in broken(reader, reader.read())


def test_temporary_tables_of_the_same_name_do_no_harm(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "CREATE TEMPORARY TABLE t (id int)", "INSERT INTO t VALUES (1)", "DROP TEMPORARY TABLE t")
    assert reader.read() == []


def test_rows_that_were_logged_as_a_statement_break_the_table(table: MyDatabase) -> None:
    table.execute("CREATE TABLE other (id int PRIMARY KEY)")
    reader = LogReader(table, ("t",))
    run(table, "SET SESSION binlog_format = STATEMENT", "INSERT INTO other VALUES (1)", "INSERT INTO t VALUES (1, 'a')")
    changes = reader.read()
    assert [c.op for c in changes] == [Op.BREAK]
    assert "statement" in broken(reader, changes)


def test_updates_that_tell_json_in_part_come_whole(mysql_database: MyDatabase) -> None:
    run(mysql_database, "CREATE TABLE t (id int PRIMARY KEY, v varchar(40))", "INSERT INTO t VALUES (1, 'a')")
    run(mysql_database, "CREATE TABLE d (id int PRIMARY KEY, j json)", """INSERT INTO d VALUES (1, '{"a": "b"}')""")
    reader = LogReader(mysql_database, ("t", "d"))
    partial = "SET binlog_row_value_options = PARTIAL_JSON"
    run(mysql_database, partial, "UPDATE t SET v = 'b'", "UPDATE d SET j = JSON_SET(j, '$.a', 'c')")
    plain, document = reader.read()
    unused = plain.payload[0]
    images = [bytes([unused]) + b"\x01\0\0\0\x01" + letter for letter in (b"a", b"b")]
    assert (plain.op, plain.payload) == (Op.UPDATE, b"".join(images))
    half = len(document.payload) // 2
    assert document.payload[half:] == document.payload[: half - 1] + b"c"
    run(mysql_database, partial, "SET binlog_row_image = MINIMAL", "UPDATE t SET v = 'c'")
    assert "binlog_row_image" in broken(reader, reader.read())


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_row_images_that_lack_columns_break_the_table(my_database: MyDatabase, image: str) -> None:
    my_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40), b text)")
    my_database.execute("INSERT INTO t VALUES (1, 'a', 'b')")
    reader = LogReader(my_database, ("t",))
    run(my_database, f"SET SESSION binlog_row_image = {image}", "UPDATE t SET v = 'b'")
    changes = reader.read()
    assert [c.op for c in changes] == [Op.BREAK]
    assert "SET GLOBAL binlog_row_image = FULL" in broken(reader, changes)


def test_prepared_rows_count_when_they_commit(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "XA START 'a'", "INSERT INTO t VALUES (1, 'x'), (2, 'x')", "XA END 'a'", "XA PREPARE 'a'")
    run(table, "XA START 'b', 'q', 7", "INSERT INTO t VALUES (3, 'x')", "XA END 'b', 'q', 7", "XA PREPARE 'b', 'q', 7")
    run(table, "INSERT INTO t VALUES (4, 'x')")
    assert ints(reader.read()) == [("insert", 4)]  # and the next read is a new connection
    run(table, "XA COMMIT 'a'", "XA ROLLBACK 'b', 'q', 7", "INSERT INTO t VALUES (5, 'x')")
    changes = reader.read()
    assert ints(changes) == [("insert", 1), ("insert", 2), ("insert", 5)]
    assert changes[0].txn == changes[1].txn < changes[2].txn
    assert not any(name.startswith("xa-") for name in reader.memory.kept)


def test_a_large_prepared_transaction_is_kept_in_parts(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",), piece_bytes=2000)
    many = ", ".join(f"({i}, repeat('x', 30))" for i in range(1000))
    run(table, "XA START 'a'", f"INSERT INTO t VALUES {many}", "XA END 'a'", "XA PREPARE 'a'")
    assert reader.read() == []
    (parts,) = (len(parts) for name, parts in reader.memory.kept.items() if name.startswith("xa-"))
    assert parts > 3
    run(table, "XA COMMIT 'a'")
    assert ints(reader.read()) == [("insert", i) for i in range(1000)]


def test_an_xa_transaction_of_one_phase_counts_at_once(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "XA START 'a'", "INSERT INTO t VALUES (1, 'x')", "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
    assert ints(reader.read()) == [("insert", 1)]


def test_a_transaction_that_was_prepared_before_the_beginning_breaks_the_tables(table: MyDatabase) -> None:
    run(table, "XA START 'a'", "INSERT INTO t VALUES (1, 'x')", "XA END 'a'", "XA PREPARE 'a'")
    reader = LogReader(table, ("t",))
    run(table, "XA COMMIT 'a'")
    assert "prepared before" in broken(reader, reader.read())


def test_a_savepoint_changes_nothing(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(table, "BEGIN", "INSERT INTO t VALUES (1, 'a')", "SAVEPOINT s", "INSERT INTO t VALUES (2, 'a')")
    assert reader.read() == []
    run(table, "BEGIN", "INSERT INTO t VALUES (3, 'a')", "SAVEPOINT s", "INSERT INTO t VALUES (4, 'a')",
        "ROLLBACK TO s", "INSERT INTO t VALUES (5, 'a')", "COMMIT")  # fmt: skip
    assert ints(reader.read()) == [("insert", 3), ("insert", 5)]


def test_a_table_that_is_made_from_a_query_comes_as_rows(table: MyDatabase) -> None:
    reader = LogReader(table, ("made",))
    run(table, "CREATE TABLE made (id int PRIMARY KEY) SELECT 1 AS id UNION SELECT 2")
    assert sorted(ints(reader.read())) == [("insert", 1), ("insert", 2)]


def test_an_altered_table_is_described_again(table: MyDatabase) -> None:
    reader = LogReader(table, ("t",))
    run(
        table,
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN n bigint unsigned",
        "INSERT INTO t VALUES (2, 'b', 3)",
    )
    changes = reader.read()
    assert [c.op for c in changes] == [Op.INSERT, Op.INSERT]
    assert [(r.row, [c.name for c in r.columns]) for r in reader.relations] == [(0, ["id", "v"]), (1, ["id", "v", "n"])]
    assert reader.relations[-1].columns[-1].unsigned


def test_tagged_transactions_are_counted_by_tag(mysql_database: MyDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    reader = LogReader(mysql_database, ("t",))
    run(
        mysql_database,
        "SET gtid_next = 'AUTOMATIC:blue'",
        "INSERT INTO t VALUES (1, 'a')",
        "INSERT INTO t VALUES (2, 'a')",
    )
    run(mysql_database, "SET gtid_next = 'AUTOMATIC:red'", "INSERT INTO t VALUES (3, 'a')")
    run(mysql_database, "INSERT INTO t VALUES (4, 'a')")
    assert ints(reader.read()) == [("insert", i) for i in (1, 2, 3, 4)]
    executed = "".join(mysql_database.execute("SELECT @@global.gtid_executed")[0][0].split())
    assert "blue:" in executed
    assert Position.parse(reader.position).gtids == executed
    moments = [int(t) for f in reader.frames for t in f.transactions.commit_time_us]
    assert moments == sorted(moments)
    assert any(m % 1_000_000 for m in moments)


def test_a_purged_binlog_is_a_visible_end(own_server: EmbeddedServer) -> None:
    database = MyDatabase(own_server, "test")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    reader = LogReader(database, ("t",))
    run(database, "INSERT INTO t VALUES (1, 'a')")
    reader.read()
    run(database, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    if isinstance(own_server, EmbeddedMariaDB):
        run(database, "SET GLOBAL slave_connections_needed_for_purge = 0")
    last = database.execute("SHOW BINARY LOGS")[-1][0]

    def purge() -> bool:  # a file that an ended dump still has open stays
        run(database, f"PURGE BINARY LOGS TO '{last}'")
        return len(database.execute("SHOW BINARY LOGS")) == 1

    wait_for(purge, "the purge", 30)
    with pytest.raises(SourceError) as e:
        reader.read()
    assert e.value.code == "source.slot_lost"
    assert "purged" in e.value.message


def test_a_reset_log_is_a_visible_end(own_server: EmbeddedServer) -> None:
    database = MyDatabase(own_server, "test")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    reader = LogReader(database, ("t",))
    reader.read()
    mariadb = isinstance(own_server, EmbeddedMariaDB)
    run(database, "RESET MASTER" if mariadb else "RESET BINARY LOGS AND GTIDS")
    while Position.parse(reader.position).offset > database.execute("SHOW BINARY LOGS")[-1][1]:
        run(database, "INSERT INTO t VALUES (1, repeat('x', 40))", "DELETE FROM t")
    with pytest.raises(SourceError) as e:
        reader.read()
    assert e.value.code == "source.slot_lost"
    assert "reset" in e.value.message


@pytest.fixture(params=[EmbeddedMariaDB, EmbeddedMySQL])
def own_server(request: pytest.FixtureRequest) -> Any:
    """A server whose log a test may ruin."""
    if request.param is EmbeddedMySQL:
        request.getfixturevalue("mysql")  # skipped, and told, where it cannot run
    with request.param() as server:
        yield server
