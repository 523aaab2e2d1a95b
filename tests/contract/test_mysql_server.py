"""The embedded servers and our sessions on them: MariaDB and MySQL alike."""

from __future__ import annotations

import pickle

from headwater.demo.mariadb import EmbeddedServer
from headwater.source.mysql.ask import query, records
from headwater.source.mysql.session import quote_identifier, quote_literal
from support.mysql import MyDatabase


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


def test_committed_rows_survive_a_crash_and_a_restart(my_server: EmbeddedServer) -> None:
    with type(my_server)() as server:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        server.execute("INSERT INTO t VALUES (1)")
        server.crash()
        server.start()
        server.execute("INSERT INTO t VALUES (2)")
        server.restart()
        assert server.execute("SELECT id FROM t ORDER BY id") == [(1,), (2,)]
        root = server.root
    assert not root.exists()
