"""Every upstream that cannot be followed is refused with its code and with the statement that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from headwater.source.postgres.catalog.checks import (
    CheckedTable,
    check_connection,
    check_server,
    check_table,
    notices_of,
)
from headwater.source.postgres.client.session import Endpoint
from headwater.source.postgres.server import describe_server
from support.wait import wait_for


def endpoint(server: EmbeddedPostgres, database: str = "postgres", **changes: Any) -> Endpoint:
    values = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "database": database,
        "connect_timeout_s": 5,
        **changes,
    }
    return Endpoint(**values)


def refusal(call: Any, *arguments: Any, **named: Any) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as e:
        call(*arguments, **named)
    assert "postgres:postgres" not in str(e.value)
    return e.value


def table_refusal(database: Any, definition: str, table: str = "t", **named: Any) -> HeadwaterError:
    database.execute(definition)
    with database.connect() as session:
        return refusal(check_table, session, "public", table, **named)


def checked(database: Any, table: str = "t", **named: Any) -> CheckedTable:
    with database.connect() as session:
        return check_table(session, "public", table, **named)


# connections


@pytest.fixture(scope="module")
def replica_server() -> Iterator[EmbeddedPostgres]:
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with EmbeddedPostgres(16, settings) as server:
        yield server


def test_a_log_that_is_not_logical_gets_the_statement(replica_server: EmbeddedPostgres) -> None:
    error = refusal(check_connection, endpoint(replica_server))
    assert error.code == "source.wal_level"
    assert "ALTER SYSTEM SET wal_level = 'logical';" in error.hint


def test_no_free_slot_and_no_free_walsender_are_told_apart(replica_server: EmbeddedPostgres) -> None:
    replica_server.execute("ALTER SYSTEM SET wal_level = 'logical'")
    (replica_server.data / "postgresql.conf").write_text(
        (replica_server.data / "postgresql.conf").read_text().replace("wal_level = 'replica'", "")
    )
    replica_server.restart()
    check_connection(endpoint(replica_server))
    replica_server.execute("SELECT pg_create_logical_replication_slot('old_one', 'pgoutput')")
    error = refusal(check_connection, endpoint(replica_server))
    assert error.code == "source.no_free_slot"
    assert "ALTER SYSTEM SET max_replication_slots = 11;" in error.hint
    assert "SELECT pg_drop_replication_slot('old_one');" in error.hint
    check_connection(endpoint(replica_server), slot="old_one")  # its own slot is no obstacle
    left = "SELECT count(*) FROM pg_stat_get_wal_senders()"
    wait_for(lambda: replica_server.execute(left) == [(0,)], "the walsender of the check has ended")
    with endpoint(replica_server).connect(replication=True):
        error = refusal(check_connection, endpoint(replica_server), slot="old_one")
        assert error.code == "source.no_free_walsender"
        assert "max_wal_senders" in error.hint


def test_old_versions_and_standbys_are_refused(pg: EmbeddedPostgres) -> None:
    from dataclasses import replace

    with pg.connect() as session:
        server = describe_server(session)
    assert refusal(check_server, replace(server, version_num=130012)).code == "source.version"
    error = refusal(check_server, replace(server, in_recovery=True))
    assert error.code == "source.standby"
    assert "primary" in error.hint


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        *[("*", True), ('"*"', True), ("ANY 1 (a, *)", True), ("FIRST 1 (*)", True), ('"headwater capture"', True)],
        *[("", False), ("standby1, standby2", False), ('ANY 2 (a, "b*")', False)],
    ],
)
def test_a_synchronous_standby_pattern_that_catches_us_is_reported(
    pg: EmbeddedPostgres, names: str, warned: bool
) -> None:
    from dataclasses import replace

    with pg.connect() as session:
        server = replace(describe_server(session), synchronous_standby_names=names)
    notices = notices_of(server)
    assert bool(notices) == warned
    if warned:
        assert "synchronous_standby_names" in notices[0]


# tables


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("CREATE VIEW t AS SELECT 1 AS a", "a view"),
        ("CREATE MATERIALIZED VIEW t AS SELECT 1 AS a", "a materialized view"),
        ("CREATE SEQUENCE t", "a sequence"),
        ("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER f FOREIGN DATA WRAPPER w; "
         "CREATE FOREIGN TABLE t (a int) SERVER f", "a foreign table"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(database: Any, definition: str, words: str) -> None:
    error = table_refusal(database, definition)
    assert error.code == "table.not_plain"
    assert words in error.message


def test_an_unlogged_table_gets_the_statement(database: Any) -> None:
    error = table_refusal(database, "CREATE UNLOGGED TABLE t (a int PRIMARY KEY)")
    assert error.code == "table.not_plain"
    assert 'ALTER TABLE "public"."t" SET LOGGED;' in error.hint


def test_an_unlogged_partition_is_found_and_a_partition_leads_to_its_root(database: Any) -> None:
    error = table_refusal(
        database,
        "CREATE TABLE t (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE UNLOGGED TABLE t1 PARTITION OF t DEFAULT",
    )
    assert error.code == "table.not_plain"
    assert 'ALTER TABLE "public"."t1" SET LOGGED;' in error.hint
    with database.connect() as session:
        error = refusal(check_table, session, "public", "t1")
    assert error.code == "table.not_plain"
    assert "TABLE 'public.t'" in error.hint


def test_a_deferrable_key_is_refused(database: Any) -> None:
    assert table_refusal(database, "CREATE TABLE t (a int PRIMARY KEY DEFERRABLE)").code == "table.deferrable_key"


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER TABLE t REPLICA IDENTITY NOTHING",
        "CREATE UNIQUE INDEX other ON t (b); ALTER TABLE t REPLICA IDENTITY USING INDEX other",
    ],
)
def test_an_identity_that_is_not_our_key_gets_the_statement(database: Any, alter: str) -> None:
    error = table_refusal(database, f"CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL); {alter}")
    assert error.code == "table.bad_identity"
    assert 'ALTER TABLE "public"."t" REPLICA IDENTITY DEFAULT;' in error.hint


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "CREATE UNIQUE INDEX other ON t (b, a); ALTER TABLE t REPLICA IDENTITY USING INDEX other",
    ],
)
def test_full_identity_and_an_index_on_the_key_columns_pass(database: Any, alter: str) -> None:
    database.execute(f"CREATE TABLE t (a int, b int, PRIMARY KEY (a, b)); {alter}")
    assert checked(database).key == ("a", "b")


def test_one_bad_leaf_is_found(database: Any) -> None:
    error = table_refusal(
        database,
        "CREATE TABLE t (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1);"
        "CREATE TABLE t2 PARTITION OF t DEFAULT; ALTER TABLE t2 REPLICA IDENTITY NOTHING",
    )
    assert error.code == "table.bad_identity"
    assert 'ALTER TABLE "public"."t2" REPLICA IDENTITY DEFAULT;' in error.hint


def test_row_security_and_missing_grants_get_their_statements(database: Any, pg: EmbeddedPostgres) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY)")
    pg.execute("CREATE ROLE reader LOGIN REPLICATION PASSWORD 'p'")
    try:
        with endpoint(pg, database.name, user="reader", password="p").connect() as session:
            error = refusal(check_table, session, "public", "t")
            assert error.code == "source.privilege"
            assert 'GRANT SELECT ON "public"."t" TO "reader";' in error.hint
            database.execute("GRANT SELECT ON t TO reader")
            check_table(session, "public", "t")
            database.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
            error = refusal(check_table, session, "public", "t")
            assert error.code == "table.row_security"
            assert 'ALTER ROLE "reader" BYPASSRLS;' in error.hint
            pg.execute("ALTER ROLE reader BYPASSRLS")
            check_table(session, "public", "t")
            database.execute("CREATE SCHEMA shut; CREATE TABLE shut.t (a int PRIMARY KEY)")
            error = refusal(check_table, session, "shut", "t")
            assert error.code == "source.privilege"
            assert 'GRANT USAGE ON SCHEMA "shut" TO "reader"; GRANT SELECT ON "shut"."t"' in error.hint
    finally:
        database.execute("DROP OWNED BY reader; DROP ROLE reader")


def test_columns_that_differ_only_in_case_are_refused_unless_one_is_left_out(database: Any) -> None:
    error = table_refusal(database, 'CREATE TABLE t (id int PRIMARY KEY, a int, "A" int)')
    assert error.code == "table.column_case"
    assert [c.name for c in checked(database, columns=["id", "A"]).columns] == ["id", "A"]


def test_names_that_only_need_quotes_pass(database: Any) -> None:
    database.execute('CREATE TABLE t ("select" int PRIMARY KEY, "ä.b" int, "quo""te" int, "back`tick" int)')
    assert len(checked(database).columns) == 4


def test_generated_columns_that_the_log_lacks_are_left_out_with_a_notice(database: Any) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY, c int GENERATED ALWAYS AS (a + 1) STORED)")
    result = checked(database)
    assert [c.name for c in result.columns] == ["a"]
    assert "column c is generated" in result.notices[0]
    assert [c.name for c in checked(database, generated_in_log=True).columns] == ["a", "c"]
    with database.connect() as session:
        assert refusal(check_table, session, "public", "t", columns=["a", "c"]).code == "table.column_missing"


def test_inheritance_children_are_noticed(database: Any) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE child (b int) INHERITS (t)")
    assert "inheritance" in checked(database).notices[0]
