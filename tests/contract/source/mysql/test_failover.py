"""A connection whose server is replaced by a replica with the same transactions; and logs that do not name columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from headwater.demo.mariadb import EmbeddedMariaDB, EmbeddedServer
from headwater.errors import SourceError
from headwater.model import Op
from headwater.source.mysql.binlog.position import Position
from support.mysql import EmbeddedMySQL, MyDatabase
from support.mysql_log import LogReader, ints
from support.wait import wait_for


@pytest.fixture(params=[EmbeddedMariaDB, EmbeddedMySQL], scope="module")
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """A server and its replica, which writes a log of its own."""
    kind = request.param
    if kind is EmbeddedMySQL:
        request.getfixturevalue("mysql")  # skipped, and told, where it cannot run
    updates = "log_slave_updates" if kind is EmbeddedMariaDB else "log_replica_updates"
    with kind() as first, kind({"server_id": "2", updates: "ON", "log_bin": "other"}) as second:
        follow(first, second)
        yield first, second


def follow(first: EmbeddedServer, second: EmbeddedServer) -> None:
    account = "CREATE USER r@'%' IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO r@'%'"
    for statement in account:
        first.execute(statement)
    if isinstance(first, EmbeddedMariaDB):
        second.execute("RESET MASTER")
        second.execute("SET GLOBAL gtid_slave_pos = ''")
        second.execute("DROP DATABASE IF EXISTS test", "mysql")
        second.execute("RESET MASTER", "mysql")
        second.execute(
            f"CHANGE MASTER TO MASTER_HOST='{first.host}', MASTER_PORT={first.port}, MASTER_USER='r', "
            "MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos, MASTER_SSL=0",
            "mysql",
        )
        second.execute("START SLAVE", "mysql")
    else:
        second.execute("RESET BINARY LOGS AND GTIDS", "mysql")
        second.execute("DROP DATABASE IF EXISTS test", "mysql")
        second.execute("RESET BINARY LOGS AND GTIDS", "mysql")
        second.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='{first.host}', SOURCE_PORT={first.port}, SOURCE_USER='r', "
            "SOURCE_PASSWORD='r', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
            "mysql",
        )
        second.execute("START REPLICA", "mysql")


def has(server: EmbeddedServer, table: str, rows: int) -> Any:
    def there() -> bool:
        exists = server.execute(f"SELECT count(*) FROM information_schema.tables WHERE table_name = '{table}'", "mysql")
        return bool(exists[0][0]) and server.execute(f"SELECT count(*) FROM test.{table}", "mysql")[0][0] == rows

    return wait_for(there, f"{rows} rows in the replica", 60)


def test_a_replica_with_the_same_transactions_continues(pair: tuple[EmbeddedServer, EmbeddedServer]) -> None:
    first, second = pair
    database = MyDatabase(first, "test")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
    reader = LogReader(database, ("t",))
    for i in range(3):
        database.execute(f"INSERT INTO t VALUES ({i}, 'a')")
    assert ints(reader.read()) == [("insert", i) for i in range(3)]
    before = Position.parse(reader.position)
    for i in range(3, 6):
        database.execute(f"INSERT INTO t VALUES ({i}, 'a')")
    has(second, "t", 6)
    reader.database = replace(database, server=second)
    assert ints(reader.read()) == [("insert", i) for i in range(3, 6)]
    after = Position.parse(reader.position)
    assert after.base == "other"
    assert after.shift != before.shift
    assert after.number > before.number
    assert reader.identity["shift"] == str(after.shift)
    assert [c for f in reader.frames for c in f.txn.tolist()] == sorted(
        c for f in reader.frames for c in f.txn.tolist()
    )
    database.execute("INSERT INTO t VALUES (6, 'a')")
    has(second, "t", 7)
    assert ints(reader.read()) == [("insert", 6)]  # by its own position now
    reader.database = database
    database.execute("INSERT INTO t VALUES (7, 'a')")
    assert ints(reader.read()) == [("insert", 7)]  # and back


def test_another_server_without_our_transactions_is_refused(pair: tuple[EmbeddedServer, EmbeddedServer]) -> None:
    first, second = pair
    database = MyDatabase(second, "test")
    has(second, "t", 8)
    database.execute("CREATE TABLE own (id int PRIMARY KEY)")  # which the first server does not have
    reader = LogReader(database, ("t",))
    reader.read()
    reader.database = replace(database, server=first)
    with pytest.raises(SourceError) as e:
        reader.read()
    assert e.value.code == "source.replaced"
    assert "Resync" in e.value.hint


def test_another_server_is_refused_where_transactions_have_no_numbers(mysql: EmbeddedMySQL) -> None:
    with EmbeddedMySQL({"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}) as server:
        database = MyDatabase(server, "test")
        database.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(40))")
        reader = LogReader(database, ("t",))
        database.execute("INSERT INTO t VALUES (1, 'a')")
        assert ints(reader.read()) == [("insert", 1)]
        assert Position.parse(reader.position).gtids == ""
        database.execute("INSERT INTO t VALUES (2, 'a')")
        assert ints(reader.read()) == [("insert", 2)]
        reader.database = replace(database, server=mysql)
        with pytest.raises(SourceError) as e:
            reader.read()
        assert e.value.code == "source.replaced"


@pytest.fixture
def nameless(my_server: EmbeddedServer, my_database: MyDatabase) -> Iterator[MyDatabase]:
    """A database whose log does not name columns."""
    least = "NO_LOG" if isinstance(my_server, EmbeddedMariaDB) else "MINIMAL"
    my_server.execute(f"SET GLOBAL binlog_row_metadata = {least}")
    my_database.execute("CREATE TABLE t (id int unsigned PRIMARY KEY, a varchar(9) CHARSET latin1, e enum('x', 'y'))")
    yield my_database
    my_server.execute("SET GLOBAL binlog_row_metadata = FULL")


def names(reader: LogReader) -> list[list[str]]:
    return [[c.name for c in r.columns] for r in reader.relations]


def test_names_come_from_the_upstream_where_the_log_has_none(nameless: MyDatabase) -> None:
    reader = LogReader(nameless, ("t",))
    nameless.execute("INSERT INTO t VALUES (1, 'a', 'y')")
    assert len(reader.read()) == 1
    (relation,) = reader.relations
    id, a, e = relation.columns
    assert (id.name, id.key, id.unsigned) == ("id", True, True)
    assert (a.name, a.charset) == ("a", "latin1")
    assert (e.name, e.labels) == ("e", ("x", "y"))
    nameless.execute("INSERT INTO t VALUES (2, 'a', 'y')")
    assert len(reader.read()) == 1
    assert reader.relations == [relation, relation]


def test_labels_come_from_the_upstream_whatever_they_hold(nameless: MyDatabase) -> None:
    nameless.execute(r"CREATE TABLE odd (id int PRIMARY KEY, e enum('back\\slash', 'it''s', 'line\nbreak', 'a,b'))")
    reader = LogReader(nameless, ("odd",))
    nameless.execute("INSERT INTO odd VALUES (1, 'a,b')")
    assert [c.op for c in reader.read()] == [Op.INSERT]
    assert reader.relations[0].columns[1].labels == ("back\\slash", "it's", "line\nbreak", "a,b")


def without_a(database: MyDatabase) -> LogReader:
    """Reads the table for a relation that leaves out its column a, which may then have any name."""
    reader = LogReader(database, ("t",))
    ((id, taken),) = reader.memory.relations.items()
    reader.memory.relations[id] = replace(taken, columns=tuple(c for c in taken.columns if c.name != "a"))
    return reader


def test_a_renamed_column_has_its_new_name_behind_the_rename(nameless: MyDatabase) -> None:
    reader = without_a(nameless)
    nameless.execute("INSERT INTO t VALUES (1, 'a', 'y')")
    assert len(reader.read()) == 1
    assert names(reader) == [["id", "a", "e"]]
    nameless.execute("ALTER TABLE t CHANGE COLUMN a b varchar(9) CHARSET latin1")
    nameless.execute("INSERT INTO t VALUES (2, 'b', 'y')")
    changes = reader.read()
    assert [c.op for c in changes] == [Op.INSERT]
    assert names(reader)[-1] == ["id", "b", "e"]


def test_rows_that_were_named_by_a_later_table_break_it(nameless: MyDatabase) -> None:
    reader = without_a(nameless)
    nameless.execute("INSERT INTO t VALUES (1, 'a', 'y')")
    nameless.execute("ALTER TABLE t CHANGE COLUMN a b varchar(9) CHARSET latin1")  # before we could look
    nameless.execute("INSERT INTO t VALUES (2, 'b', 'y')")
    changes = reader.read()
    assert Op.BREAK in [c.op for c in changes]
    assert any("binlog_row_metadata = FULL" in r.broken for r in reader.relations)


def test_rows_of_a_shape_that_is_gone_break_the_table(nameless: MyDatabase) -> None:
    reader = LogReader(nameless, ("t",))
    nameless.execute("INSERT INTO t VALUES (1, 'a', 'y')")
    nameless.execute("ALTER TABLE t DROP COLUMN a")
    changes = reader.read()
    assert changes[0].op is Op.BREAK
    assert "binlog_row_metadata = FULL" in reader.relations[0].broken


def test_hidden_columns_of_mariadb_do_no_harm(mariadb: EmbeddedMariaDB, mariadb_database: MyDatabase) -> None:
    mariadb.execute("SET GLOBAL binlog_row_metadata = NO_LOG")
    try:
        mariadb_database.execute("CREATE TABLE t (id int PRIMARY KEY, b blob, UNIQUE (b))")
        reader = LogReader(mariadb_database, ("t",))
        mariadb_database.execute("INSERT INTO t VALUES (1, 'a')")
        assert [c.op for c in reader.read()] == [Op.INSERT]
        assert names(reader) == [["id", "b", "DB_ROW_HASH_1"]]
    finally:
        mariadb.execute("SET GLOBAL binlog_row_metadata = FULL")
