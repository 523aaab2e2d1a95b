"""What CREATE CONNECTION checks on MySQL and MariaDB: each refusal says what mends it, and that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from headwater.demo.mariadb import EmbeddedServer
from headwater.errors import HeadwaterError
from headwater.source.mysql.catalog.checks import CheckedConnection, check_connection, check_server, notices_of
from headwater.source.mysql.catalog.find import find_table
from headwater.source.mysql.client.register import register
from headwater.source.mysql.client.session import Session
from headwater.source.mysql.server import DAY_S, LogStatus, describe_server, log_files, log_status
from support.mysql import MyDatabase
from support.wait import wait_for

OWN_ID = "3000000001"


def check(database: MyDatabase, server_id: str = OWN_ID) -> CheckedConnection:
    return check_connection(database.endpoint, {**database.options, "server.id": server_id})


def refusal(database: MyDatabase, server_id: str = OWN_ID) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as e:
        check(database, server_id)
    assert e.value.hint.endswith((".", ";")), "a hint is a sentence or a statement"
    return e.value


def _log_end(session: Session) -> tuple[str, int]:
    status = log_status(session)
    return status.file, status.offset


def _passes(database: MyDatabase) -> bool:
    try:
        return bool(check(database))
    except HeadwaterError:
        return False


@pytest.fixture
def reader(my_database: MyDatabase) -> Iterator[MyDatabase]:
    """The database for a user who may do nothing yet."""
    my_database.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'reader'")
    yield my_database.as_user("reader")
    my_database.execute("DROP USER reader@'127.0.0.1'")


@pytest.fixture
def given(my_server: EmbeddedServer) -> Iterator[None]:
    """Leaves the server's settings as they were."""
    names = ("binlog_format", "binlog_row_image", "binlog_row_metadata", "binlog_expire_logs_seconds")
    before = {n: my_server.execute(f"SELECT @@global.{n}")[0][0] for n in names}
    yield
    for name, value in before.items():
        my_server.execute(f"SET GLOBAL {name} = {value!r}")


def test_a_ready_server_passes_and_says_who_it_is(my_database: MyDatabase) -> None:
    server = check(my_database).server
    assert (server.flavour, server.user) == (my_database.server.name, "root@127.0.0.1")
    assert server.version[0] in (9, 11) and server.gtids
    assert server.identity["server"] and server.identity["server"] in server.life


def test_privileges_may_come_by_a_role(my_database: MyDatabase, reader: MyDatabase) -> None:
    my_database.execute("CREATE ROLE reading")
    try:
        my_database.execute(f"GRANT SELECT ON `{my_database.name}`.* TO reading")
        my_database.execute("GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO reading")
        my_database.execute("GRANT reading TO reader@'127.0.0.1'")
        to = "FOR" if my_database.server.name == "mariadb" else "TO"
        my_database.execute(f"SET DEFAULT ROLE reading {to} reader@'127.0.0.1'")
        assert check(reader)
    finally:
        my_database.execute("DROP ROLE reading")


def test_a_grant_on_single_tables_is_a_notice(my_database: MyDatabase, reader: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    my_database.execute(f"GRANT SELECT ON `{my_database.name}`.t TO reader@'127.0.0.1'")
    my_database.execute("GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO reader@'127.0.0.1'")
    assert any("may not read every table" in n and "GRANT SELECT" in n for n in check(reader).notices)


@pytest.mark.usefixtures("given")
@pytest.mark.parametrize(
    ("name", "value"), [("binlog_format", "STATEMENT"), ("binlog_row_image", "MINIMAL"), ("binlog_row_image", "NOBLOB")]
)
def test_a_log_without_whole_rows_is_refused_until_the_hint_is_followed(
    my_database: MyDatabase, name: str, value: str
) -> None:
    my_database.execute(f"SET GLOBAL {name} = '{value}'")
    e = refusal(my_database)
    assert e.code == "source.wal_level" and name in e.message and value in e.message
    my_database.execute(e.hint.removeprefix("Run upstream: ").split(";")[0])
    assert check(my_database)


@pytest.mark.usefixtures("given")
def test_metadata_that_is_not_full_and_a_short_expiry_are_notices(my_database: MyDatabase) -> None:
    my_database.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    my_database.execute("SET GLOBAL binlog_expire_logs_seconds = 7200")
    notices = check(my_database).notices
    assert any("SET GLOBAL binlog_row_metadata = 'FULL';" in n for n in notices)
    assert any("after 2 h" in n and "binlog_expire_logs_seconds" in n for n in notices)
    my_database.execute("SET GLOBAL binlog_expire_logs_seconds = 0")
    assert any("never removes" in n for n in check(my_database).notices)
    my_database.execute(f"SET GLOBAL binlog_expire_logs_seconds = {7 * DAY_S}")
    my_database.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    assert check(my_database).notices == ()


def test_a_limit_of_the_logs_size_is_a_notice(mariadb_database: MyDatabase) -> None:
    mariadb_database.execute("SET GLOBAL max_binlog_total_size = 1000000000")
    try:
        assert any("1000000000 bytes" in n for n in check(mariadb_database).notices)
    finally:
        mariadb_database.execute("SET GLOBAL max_binlog_total_size = 0")


def test_the_servers_own_number_and_a_replicas_are_refused(my_database: MyDatabase) -> None:
    own = refusal(my_database, "1")
    assert own.code == "sql.bad_option" and "server.id 1 " in own.message
    with my_database.endpoint.connect() as replica:
        register(replica, int(OWN_ID))
        taken = refusal(my_database)
        assert taken.code == "sql.bad_option" and OWN_ID in taken.message
    wait_for(lambda: _passes(my_database), "the number is free again", 10)


def test_a_version_that_is_too_old_is_refused(my_database: MyDatabase) -> None:
    with my_database.endpoint.connect() as session:
        server = describe_server(session)
    check_server(server)
    with pytest.raises(HeadwaterError) as e:
        check_server(replace(server, version=(5, 7, 44)))
    assert e.value.code == "source.version" and "5.7.44" in e.value.message


def test_filters_hide_what_they_name_or_what_they_do_not() -> None:
    nothing = LogStatus("binlog.000001", 4, "", frozenset(), frozenset())
    assert not nothing.hides("a")
    assert not replace(nothing, only=frozenset({"a"})).hides("a")
    assert replace(nothing, only=frozenset({"b"})).hides("a")
    assert replace(nothing, ignored=frozenset({"a", "b"})).hides("a")


def test_the_end_of_the_log_moves_with_a_commit_and_lies_in_its_last_file(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with my_database.endpoint.connect() as session:
        before = _log_end(session)
        my_database.execute("INSERT INTO t VALUES (1)")
        after = _log_end(session)
        assert after[0] == before[0] and after[1] > before[1]
        assert log_files(session)[-1][0] == after[0]
        my_database.execute("FLUSH BINARY LOGS")
        assert _log_end(session)[0] > after[0]


def without_log(server: EmbeddedServer) -> Iterator[MyDatabase]:
    settings = {"skip_log_bin": None} | ({"innodb_native_foreign_keys": "ON"} if server.name == "mysql" else {})
    with type(server)(settings) as other:
        yield MyDatabase(other, other.database)


def test_a_server_without_a_log_or_with_native_cascades_is_refused(my_server: EmbeddedServer) -> None:
    for database in without_log(my_server):
        e = refusal(database)
        assert e.code == "source.wal_level" and "log_bin" in e.hint
        database.execute("CREATE TABLE p (id INT PRIMARY KEY)")
        database.execute(
            "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"
        )
        with database.endpoint.connect() as session, pytest.raises(HeadwaterError) as hidden:
            find_table(session, database.name, "c", None, (), database.options)
        assert hidden.value.code == "table.cascade"
        assert my_server.name == "mariadb" or "innodb_native_foreign_keys = OFF" in hidden.value.hint


REPLICATE = {
    "mariadb": "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'x', MASTER_PASSWORD = 'x'",
    "mysql": "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_USER = 'x', SOURCE_PASSWORD = 'x'",
}


def test_logs_that_leave_out_a_database_or_what_a_replica_gets_are_refused(my_server: EmbeddedServer) -> None:
    own = {
        "mysql": {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF", "log_replica_updates": "OFF"},
        "mariadb": {"log_slave_updates": "OFF"},
    }[my_server.name]
    with type(my_server)({**own, "binlog_ignore_db": "hidden"}, database="hidden") as other:
        e = refusal(MyDatabase(other, "hidden"))
        assert e.code == "source.log_incomplete" and "binlog_ignore_db" in e.message
        other.execute("CREATE DATABASE shown")
        shown = MyDatabase(other, "shown")
        assert ("gtid_mode" in " ".join(check(shown).notices)) == (my_server.name == "mysql")
        if my_server.name == "mysql":
            _check_process_is_needed_without_gtids(shown)
        other.execute(REPLICATE[my_server.name])
        replica = refusal(shown)
        assert replica.code == "source.log_incomplete" and "updates = ON" in replica.hint


def test_a_log_that_holds_only_named_databases_is_refused_for_any_other(my_server: EmbeddedServer) -> None:
    with type(my_server)({"binlog_do_db": "kept"}, database="hidden") as other:
        hidden = MyDatabase(other, "hidden")
        hidden.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        with hidden.endpoint.connect() as session:
            before = _log_end(session)
            hidden.execute("INSERT INTO t VALUES (1)")
            assert _log_end(session) == before, "the change is in no log"
        e = refusal(hidden)
        assert e.code == "source.log_incomplete" and "binlog_do_db" in e.message
        assert e.hint.startswith("Add binlog_do_db = hidden to [mysqld]")
        other.execute("CREATE DATABASE kept")
        assert check(MyDatabase(other, "kept"))


def _check_process_is_needed_without_gtids(database: MyDatabase) -> None:
    database.execute("CREATE USER reader@'127.0.0.1' IDENTIFIED BY 'reader'")
    database.execute(f"GRANT SELECT ON `{database.name}`.* TO reader@'127.0.0.1'")
    database.execute("GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO reader@'127.0.0.1'")
    e = refusal(database.as_user("reader"))
    assert e.code == "source.privilege" and "GRANT PROCESS ON *.*" in e.hint
    database.execute(e.hint.removeprefix("Run upstream: "))
    assert check(database.as_user("reader"))


def test_a_server_that_keeps_its_log_for_long_has_no_notices(my_database: MyDatabase) -> None:
    with my_database.endpoint.connect() as session:
        server = describe_server(session)
    assert notices_of(replace(server, expire_s=30 * DAY_S)) == []
