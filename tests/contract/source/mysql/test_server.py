"""The embedded servers and our sessions on them: MariaDB and MySQL alike."""

from __future__ import annotations

import pickle
import socket
import time
from dataclasses import replace
from typing import Any

import pytest
from pymysql.err import OperationalError

from headwater.demo.server import EmbeddedServer
from headwater.errors import HeadwaterError, Retry
from headwater.source.mysql.client.ask import query, records
from headwater.source.mysql.client.refusals import Address, translate
from headwater.source.mysql.client.session import Endpoint, quote_identifier, quote_literal
from headwater.source.mysql.server import describe_server, expect_server, parse_version
from support.mysql import MyDatabase
from support.wait import wait_for


def test_a_session_has_fixed_settings_whatever_the_server_has(my_database: MyDatabase) -> None:
    with my_database.endpoint.connect() as session:
        (row,) = query(
            session, "SELECT @@autocommit, @@sql_mode, @@time_zone, @@character_set_results, @@lock_wait_timeout"
        )
    assert row == (1, "NO_BACKSLASH_ESCAPES", "+00:00", "utf8mb4", 10)


def test_literals_and_names_survive_quoting(my_database: MyDatabase) -> None:
    texts = ["", "plain", "it's", "back\\slash", "\\'", "''", 'double"', "%s", "😀", "a`b", "\n\0\x1a"]
    names = ["plain", "it's", "back\\slash", 'double"', "a`b", "``", "%s", "größe", "select"]
    with my_database.endpoint.connect() as session:
        assert query(session, "SELECT " + ", ".join(quote_literal(t) for t in texts)) == [tuple(texts)]
        rows = records(session, "SELECT " + ", ".join(f"1 AS {quote_identifier(n)}" for n in names))
    assert list(rows[0]) == names


def test_an_endpoint_hides_its_password_and_can_travel(my_database: MyDatabase) -> None:
    endpoint = my_database.endpoint
    assert endpoint.password and f"'{endpoint.password}'" not in repr(endpoint).replace(f"user='{endpoint.user}'", "")
    assert pickle.loads(pickle.dumps(endpoint)) == endpoint


def refused(to: MyDatabase, /, **changed: Any) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as e:
        replace(to.endpoint, **changed).connect()
    assert e.value.__cause__ is not None
    return e.value


def test_a_wrong_password_is_reported_without_any_password(my_database: MyDatabase) -> None:
    e = refused(my_database, password="Geheim-wörd")
    address = f"127.0.0.1:{my_database.server.port}"
    assert e.code == "source.authentication" and e.retry is Retry.AFTER_FIX
    assert e.message.startswith(f"{address} refused user root: Access denied for user 'root'@'127.0.0.1'")
    assert e.hint == "Correct username and password of the connection, or create the user upstream."
    assert "Geheim" not in e.message + e.hint
    assert refused(my_database, user="nobody").code == "source.authentication"


def test_passwords_of_any_characters_open_a_session(my_database: MyDatabase) -> None:
    password = "pässwörd 😀 '\\\""
    with my_database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER umlaut@'127.0.0.1' IDENTIFIED BY %s", (password,))
        cursor.execute(f"GRANT SELECT ON `{my_database.name}`.* TO umlaut@'127.0.0.1'")
    try:
        for mode in ("disable", "prefer"):
            with replace(my_database.endpoint, user="umlaut", password=password, ssl_mode=mode).connect() as session:
                assert query(session, "SELECT 1") == [(1,)]
    finally:
        my_database.execute("DROP USER umlaut@'127.0.0.1'")


def test_a_locked_account_and_an_expired_password_are_reported(my_database: MyDatabase) -> None:
    my_database.execute("CREATE USER idle@'127.0.0.1' IDENTIFIED BY 'idle' ACCOUNT LOCK")
    try:
        my_database.execute(f"GRANT SELECT ON `{my_database.name}`.* TO idle@'127.0.0.1'")
        assert "UNLOCK" in refused(my_database, user="idle", password="idle").hint
        my_database.execute("ALTER USER idle@'127.0.0.1' ACCOUNT UNLOCK")
        my_database.execute("ALTER USER idle@'127.0.0.1' PASSWORD EXPIRE")
        with pytest.raises(HeadwaterError) as e, my_database.as_user("idle").endpoint.connect() as session:
            query(session, "SELECT 1")  # MariaDB lets the user in, to set another
        assert e.value.code == "source.authentication" and "IDENTIFIED BY" in e.value.hint
    finally:
        my_database.execute("DROP USER idle@'127.0.0.1'")


def test_a_server_that_accepts_and_says_nothing_is_given_up(mariadb_database: MyDatabase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        e = refused(mariadb_database, port=silent.getsockname()[1], connect_timeout_s=1)
    assert e.code in ("source.unreachable", "source.disconnected") and e.retry is Retry.AUTO
    assert time.monotonic() - began < 20


def test_a_session_that_is_ended_is_retried(my_database: MyDatabase) -> None:
    with my_database.endpoint.connect() as session:
        my_database.execute(f"KILL {session.thread_id()}")
        for _ in range(2):  # the server's refusal, then a session that is known to be closed
            with pytest.raises(HeadwaterError) as e:
                query(session, "SELECT 1")
            assert e.value.code == "source.disconnected" and e.value.retry is Retry.AUTO


def test_a_table_that_stays_locked_is_retried(my_database: MyDatabase) -> None:
    my_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with my_database.connect() as other, other.cursor() as cursor, my_database.endpoint.connect() as session:
        cursor.execute("LOCK TABLES t WRITE")
        query(session, "SET SESSION lock_wait_timeout = 1")
        with pytest.raises(HeadwaterError) as e:
            query(session, "SELECT * FROM t")
    assert e.value.code == "source.lock_timeout" and e.value.retry is Retry.AUTO


def test_an_error_of_a_statement_holds_no_values(my_database: MyDatabase) -> None:
    with my_database.endpoint.connect() as session:
        for statement in ("SELECT 1 FROM WHERE x = 'secret value'", "SELECT CAST(x'FF' AS CHAR(2)) COLLATE nonsense"):
            with pytest.raises(HeadwaterError) as e:
                query(session, statement)
            assert e.value.code == "source.failed" and "secret" not in e.value.message
        with pytest.raises(HeadwaterError) as gone:
            query(session, "SELECT nothing FROM mysql.db")
        assert gone.value.code == "data.schema_changed"


def test_a_plugin_that_lacks_a_package_is_reported_with_another_way() -> None:
    address = Address("db", 3306, "u", "d")
    missing = translate(address, RuntimeError("'pynacl' package is required for ed25519_password auth method"))
    assert missing.code == "source.authentication" and "mysql_native_password" in missing.hint
    assert "PyNaCl" in missing.hint
    unknown = OperationalError(2059, "Authentication plugin 'auth_gssapi_client' not configured")
    assert "caching_sha2_password" in translate(address, unknown).hint


def tls_cipher(endpoint: Endpoint) -> str:
    with endpoint.connect() as session:
        return str(query(session, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1])


def test_tls_is_used_where_the_server_offers_it_and_checked_as_asked(mysql_database: MyDatabase) -> None:
    endpoint = mysql_database.endpoint
    root = str(mysql_database.server.data / "ca.pem")
    assert tls_cipher(replace(endpoint, ssl_mode="disable")) == ""
    for mode in ("prefer", "require"):
        assert tls_cipher(replace(endpoint, ssl_mode=mode))
    for mode in ("require", "verify-ca"):
        assert tls_cipher(replace(endpoint, ssl_mode=mode, ssl_root_cert=root))
    name = refused(mysql_database, ssl_mode="verify-full", ssl_root_cert=root)  # the certificate names no host
    unknown = refused(mysql_database, ssl_mode="verify-ca")
    assert {name.code, unknown.code} == {"source.unreachable"} and name.retry is Retry.AFTER_FIX
    assert "ssl.root.cert" in unknown.hint and "not trusted" in unknown.message
    missing = refused(mysql_database, ssl_mode="verify-ca", ssl_root_cert="/no/such.pem")
    assert missing.code == "sql.bad_option" and "/no/such.pem" in missing.message


def test_a_server_without_tls_is_refused_where_tls_is_required(mariadb_database: MyDatabase) -> None:
    assert tls_cipher(replace(mariadb_database.endpoint, ssl_mode="prefer")) == ""
    e = refused(mariadb_database, ssl_mode="require")
    assert e.code == "source.unreachable" and "no TLS" in e.message and e.retry is Retry.AFTER_FIX


def test_a_server_that_starts_again_keeps_its_rows_and_its_identity_but_has_another_life(
    my_server: EmbeddedServer,
) -> None:
    with type(my_server)() as server:
        database = MyDatabase(server, server.database)
        with database.endpoint.connect() as session:
            first = describe_server(session)
            assert expect_server(session, first.identity) == first.life == describe_server(session).life
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        server.execute("INSERT INTO t VALUES (1)")
        wait_for(lambda: time.time() > first.started + 1, "a start in another second can be told", 5)
        server.crash()
        server.start()
        server.execute("INSERT INTO t VALUES (2)")
        with database.endpoint.connect() as session:
            second = describe_server(session)
        server.restart()
        assert server.execute("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
        assert second.identity == first.identity and second.life != first.life
        with MyDatabase(my_server, my_server.database).endpoint.connect() as session:
            assert expect_server(session, {})
            with pytest.raises(HeadwaterError) as e:
                expect_server(session, first.identity)
        assert e.value.code == "source.replaced"
        root = server.root
    assert not root.exists()


def test_versions_are_read_as_the_servers_write_them() -> None:
    assert parse_version("9.7.4-2") == (9, 7, 4)
    assert parse_version("11.4.5-MariaDB-log") == (11, 4, 5)
    assert parse_version("5.5.5-10.11.6-MariaDB-1:10.11.6+maria~deb12") == (10, 11, 6)
