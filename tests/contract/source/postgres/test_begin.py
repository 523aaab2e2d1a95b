"""Publication, slot and the wait at the beginning, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from headwater.source.postgres import begin
from headwater.source.postgres.begin import begin_xid, needs_second_alter, next_xid, older_than
from headwater.source.postgres.client.session import Endpoint, lsn_to_int
from headwater.source.postgres.replication import publication, slot
from headwater.source.postgres.upstream import PostgresUpstream
from support.hanging import hanging_commit, server_with_silent_standby


def endpoint_of(database: Any, **changes: Any) -> Endpoint:
    server = database.server
    values = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "database": database.name,
        **changes,
    }
    return Endpoint(**values)


@pytest.fixture
def session(database: Any) -> Iterator[Any]:
    with database.connect() as connection:
        yield connection


def test_what_we_published_outlives_a_crash_of_a_server_that_does_not_wait_for_its_disk() -> None:
    """Nothing flushes for it: the log's writer sleeps. Otherwise changes of the table would be lost without a word."""
    settings = {"synchronous_commit": "off", "wal_writer_delay": "10000", "wal_writer_flush_after": "1GB"}
    with EmbeddedPostgres(18, settings) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        server.execute("CHECKPOINT")
        options = {"hostname": server.host, "port": str(server.port), "username": server.user}
        options |= {"database.name": "postgres", "publication.name": "carrier"}
        with server.connect() as session:
            publication.ensure(session, "carrier")
        PostgresUpstream(options, server.password).publish("public", "t")
        server.execute("CREATE TABLE undone (id int PRIMARY KEY)")
        server.crash()
        server.start()
        assert server.execute("SELECT to_regclass('undone')") == [(None,)], "the server waited for its disk"
        with server.connect() as session:
            assert publication.holds(session, "carrier", "public", "t")


def decoded(session: Any, name: str, publication_name: str) -> list[bytes]:
    rows = session.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1', "
        "'publication_names', %s)",
        (name, publication_name),
    ).fetchall()
    return [r[0] for r in rows]


# publication


def test_a_publication_is_made_once_and_carries_everything(session: Any) -> None:
    made = publication.ensure(session, "Our pub")
    assert made.complete
    assert made.via_root
    assert made.generated == (session.info.server_version >= 180000)
    assert publication.ensure(session, "Our pub") == made
    publication.drop(session, "Our pub")
    publication.drop(session, "Our pub")
    assert publication.find(session, "Our pub") is None


def test_a_missing_publication_that_may_not_be_made_gives_the_statement(session: Any) -> None:
    with pytest.raises(HeadwaterError) as e:
        publication.ensure(session, "theirs", create=False)
    assert e.value.code == "source.publication_missing"
    session.execute(e.value.hint.split(": ", 1)[1])  # the statement in the hint mends it
    publication.ensure(session, "theirs", create=False)
    session.execute("CREATE TABLE t (a int PRIMARY KEY)")
    with pytest.raises(HeadwaterError) as e:
        publication.add_table(session, "theirs", "public", "t", create=False)
    assert e.value.code == "source.publication_missing"
    session.execute(e.value.hint.split(": ", 1)[1])
    publication.add_table(session, "theirs", "public", "t", create=False)


@pytest.mark.parametrize("options", ["publish = 'insert'", "publish_via_partition_root = false"])
def test_a_publication_that_leaves_out_changes_is_refused_with_the_statement(session: Any, options: str) -> None:
    session.execute(f"CREATE PUBLICATION theirs WITH ({options})")
    with pytest.raises(HeadwaterError) as e:
        publication.ensure(session, "theirs")
    assert e.value.code == "source.publication_unusable"
    session.execute(e.value.hint.split(": ", 1)[1])
    publication.ensure(session, "theirs")


@pytest.mark.parametrize("target", ["t WHERE (a > 0)", "t (a)"])
def test_filtered_rows_and_columns_are_refused(session: Any, target: str) -> None:
    session.execute(f"CREATE TABLE t (a int PRIMARY KEY, b int); CREATE PUBLICATION p FOR TABLE {target}")
    session.execute("ALTER PUBLICATION p SET (publish_via_partition_root = true)")
    with pytest.raises(HeadwaterError) as e:
        publication.add_table(session, "p", "public", "t")
    assert e.value.code == "source.publication_unusable"
    session.execute(e.value.hint.split(": ", 1)[1])
    publication.add_table(session, "p", "public", "t")


def test_tables_are_added_and_dropped_any_number_of_times(session: Any) -> None:
    session.execute('CREATE TABLE "We ird" (a int PRIMARY KEY); CREATE TABLE child () INHERITS ("We ird")')
    session.execute("CREATE TABLE p (a int PRIMARY KEY) PARTITION BY LIST (a); CREATE TABLE p1 PARTITION OF p DEFAULT")
    publication.ensure(session, "ours")
    for _ in range(2):
        publication.add_table(session, "ours", "public", "We ird")
        publication.add_table(session, "ours", "public", "p")
    held = session.execute("SELECT tablename FROM pg_publication_tables WHERE pubname = 'ours' ORDER BY 1").fetchall()
    assert held == [("We ird",), ("p",)]  # neither the child nor the partition
    for _ in range(2):
        publication.drop_table(session, "ours", "public", "We ird")
    assert not publication.holds(session, "ours", "public", "We ird")
    assert publication.holds(session, "ours", "public", "p")


def test_tables_of_others_give_the_statement_for_their_owner(database: Any, pg: EmbeddedPostgres) -> None:
    database.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE of_superuser (a int PRIMARY KEY)")
    pg.execute("CREATE ROLE guest LOGIN REPLICATION PASSWORD 'p'; CREATE ROLE host")
    database.execute("ALTER TABLE t OWNER TO host")
    try:
        with endpoint_of(database, user="guest", password="p").connect() as session:
            with pytest.raises(HeadwaterError) as e:
                publication.ensure(session, "ours")
            assert e.value.code == "source.privilege"
            assert e.value.hint.startswith("Run as ")
            assert 'CREATE PUBLICATION "ours"' in e.value.hint
            database.execute(f"GRANT CREATE ON DATABASE {database.name} TO guest")
            publication.ensure(session, "ours")
            with pytest.raises(HeadwaterError) as e:
                publication.add_table(session, "ours", "public", "t")
            assert e.value.code == "source.privilege"
            assert 'Run as a superuser: ALTER PUBLICATION "ours" ADD TABLE ONLY "public"."t";' in e.value.hint
            assert 'Or, for all tables of its owner: GRANT "host" TO "guest";' in e.value.hint
            with pytest.raises(HeadwaterError) as e:
                publication.add_table(session, "ours", "public", "of_superuser")
            assert "GRANT" not in e.value.hint, "nobody should become a superuser"
            pg.execute("GRANT host TO guest")
            publication.add_table(session, "ours", "public", "t")
    finally:
        database.execute("DROP PUBLICATION IF EXISTS ours; DROP OWNED BY guest, host; DROP ROLE guest, host")


def test_default_names_are_valid_and_differ(session: Any) -> None:
    for connection in ("pg_connection", "Ä b/c", "x" * 100):
        name = publication.default_name(connection)
        assert name != publication.default_name(connection)
        assert len(name) <= 63
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        slot.drop_slot(session, name)


# slot


@dataclass(frozen=True)
class SlotStatus:
    active: bool
    wal_status: str  # reserved | extended | unreserved | lost
    confirmed: str  # acknowledged position


def slot_status(session: Any, name: str) -> SlotStatus | None:
    """How the slot stands, or None if it is gone."""
    found = session.execute(
        "SELECT active, wal_status::text, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    return None if found is None else SlotStatus(*found)


def test_a_slot_is_made_once_and_dropped_any_number_of_times(database: Any, session: Any) -> None:
    assert slot_status(session, "begin_a") is None
    first = slot.ensure_slot(endpoint_of(database), "begin_a")
    made = slot_status(session, "begin_a")
    again = slot.ensure_slot(endpoint_of(database), "begin_a")
    assert slot_status(session, "begin_a") == made, "it is not made again"
    assert lsn_to_int(again.position) >= lsn_to_int(first.position) > 0
    assert first.txn <= again.txn
    assert made == SlotStatus(active=False, wal_status="reserved", confirmed=first.position)
    for _ in range(2):
        slot.drop_slot(session, "begin_a")
    assert slot_status(session, "begin_a") is None


def test_a_slot_of_another_kind_is_refused(database: Any, session: Any) -> None:
    session.execute("SELECT pg_create_physical_replication_slot('begin_b')")
    with pytest.raises(HeadwaterError) as e:
        slot.ensure_slot(endpoint_of(database), "begin_b")
    assert e.value.code == "source.slot_busy"
    assert "slot.name" in e.value.hint
    slot.drop_slot(session, "begin_b")


def test_a_slot_waits_for_older_transactions_and_says_for_whom(database: Any, session: Any) -> None:
    session.execute("CREATE TABLE t (a int)")
    writer = database.connect(application_name="old writer")
    writer.execute("BEGIN; INSERT INTO t VALUES (1)")
    seen: list[str] = []

    def on_wait(waiting: Any) -> None:
        seen.extend(str(w) for w in waiting)
        writer.execute("COMMIT")

    slot.ensure_slot(endpoint_of(database), "begin_c", on_wait=on_wait)
    assert slot_status(session, "begin_c") is not None
    assert any("old writer" in s and "idle in transaction" in s for s in seen)
    writer.close()
    slot.drop_slot(session, "begin_c")


def test_dropping_ends_our_own_reader_but_not_a_strangers(database: Any, session: Any) -> None:
    publication.ensure(session, "ours")
    slot.ensure_slot(endpoint_of(database), "begin_d")
    start = "START_REPLICATION SLOT begin_d LOGICAL 0/0 (proto_version '1', publication_names 'ours')"
    stranger = database.connect(application_name="stranger", replication="database")
    stranger.pgconn.exec_(start.encode())
    with pytest.raises(HeadwaterError) as e:
        slot.drop_slot(session, "begin_d", timeout_s=0.5)
    assert e.value.code == "source.slot_busy"
    assert "pg_drop_replication_slot('begin_d')" in e.value.hint
    stranger.close()
    ours = endpoint_of(database).connect(replication=True)
    while ours.pgconn.exec_(start.encode()).status == 7:  # FATAL_ERROR until the stranger's walsender has gone
        pass
    status = slot_status(session, "begin_d")
    assert status is not None
    assert status.active
    slot.drop_slot(session, "begin_d")
    assert slot_status(session, "begin_d") is None
    ours.close()


# the wait


def test_the_wait_is_over_at_once_on_an_idle_server(session: Any) -> None:
    xid = begin_xid(session)
    assert older_than(session, xid) == []
    assert next_xid(session) > xid


def test_the_wait_names_open_and_prepared_transactions_and_ignores_newer_ones(database: Any, session: Any) -> None:
    session.execute("CREATE TABLE t (a int)")
    with database.connect(application_name="open one") as open_one, database.connect() as prepared:
        open_one.execute("BEGIN; INSERT INTO t VALUES (1)")
        prepared.execute("BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION 'begin test'")
        xid = begin_xid(session)
        with database.connect() as newer:
            newer.execute("BEGIN; INSERT INTO t VALUES (3)")
            assert {(w.kind, w.name) for w in older_than(session, xid)} == {
                ("session", str(open_one.info.backend_pid)),
                ("prepared", "begin test"),
            }
            open_one.execute("ROLLBACK")
            assert [str(w).split(",")[0] for w in older_than(session, xid)] == [
                f"prepared transaction begin test of postgres in {database.name}"
            ]
            prepared.execute("COMMIT PREPARED 'begin test'")
            assert older_than(session, xid) == []
            newer.execute("ROLLBACK")


def test_a_user_who_may_not_see_others_still_waits(database: Any, pg: EmbeddedPostgres) -> None:
    pg.execute("CREATE ROLE blind LOGIN PASSWORD 'p'")
    try:
        with endpoint_of(database, user="blind", password="p").connect() as session, database.connect() as other:
            other.execute("BEGIN; SELECT pg_current_xact_id()")
            xid = begin_xid(session)
            (waiting,) = older_than(session, xid)
            assert str(waiting) == f"process {other.info.backend_pid} of postgres in {database.name}"
            other.execute("COMMIT")
            assert older_than(session, xid) == []
    finally:
        pg.execute("DROP ROLE blind")


def test_a_change_made_before_publishing_is_not_in_the_log_but_visible_after_the_wait(
    database: Any, session: Any
) -> None:
    """Hazard 4: without the wait such a row would be in neither the scan nor the log."""
    session.execute("CREATE TABLE t (a int PRIMARY KEY)")
    publication.ensure(session, "ours")
    slot.ensure_slot(endpoint_of(database), "begin_e")
    early = database.connect()
    early.execute("BEGIN; INSERT INTO t VALUES (1)")
    publication.add_table(session, "ours", "public", "t")
    xid = begin_xid(session)
    assert older_than(session, xid) != []
    assert session.execute("SELECT count(*) FROM t").fetchone() == (0,)  # a scan now would miss it
    early.execute("COMMIT")
    early.close()
    assert older_than(session, xid) == []
    assert session.execute("SELECT count(*) FROM t").fetchone() == (1,)
    session.execute("INSERT INTO t VALUES (2)")
    inserts = [d for d in decoded(session, "begin_e", "ours") if d[:1] == b"I"]
    assert len(inserts) == 1
    slot.drop_slot(session, "begin_e")


def test_a_commit_that_hangs_after_its_record_is_still_waited_for() -> None:
    """Hazards 1 and 4: the commit is in the log but visible to nobody; the snapshot's xmin knows."""
    with server_with_silent_standby() as server, server.connect() as session:
        session.execute("CREATE TABLE t (a int PRIMARY KEY)")
        with hanging_commit(server, "INSERT INTO t VALUES (1)") as commit:
            xid = begin_xid(session)
            assert [w.name for w in older_than(session, xid)] == [str(commit.pid)]
        assert older_than(session, xid) == []


@pytest.mark.parametrize(
    ("version", "needed"),
    [(140017, True), (140018, False), (150012, True), (160008, True), (160009, False), (170004, True), (180000, False)],
)
def test_old_releases_need_one_more_alter(version: int, needed: bool) -> None:
    assert needs_second_alter(version) == needed


def test_refreshing_a_publication_changes_nothing(session: Any) -> None:
    before = publication.ensure(session, "ours")
    assert publication.refresh(session, "ours", next_xid(session)) == []
    assert publication.find(session, "ours") == before


def test_the_second_alter_of_anothers_publication_is_asked_of_its_owner(
    database: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(begin.MENDED, 18, 190000)
    role = f"follower_{database.name}"
    session.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION theirs FOR TABLE t")
    session.execute("ALTER PUBLICATION theirs SET (publish_via_partition_root = true)")
    session.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT SELECT ON t TO {role}")
    options = {"hostname": database.server.host, "port": str(database.server.port), "database.name": database.name}
    options |= {"publication.name": "theirs", "publication.create": "false"}
    try:
        upstream = PostgresUpstream(options | {"username": role}, "x")
        ticket = upstream.publish("public", "t")
        (who,) = upstream.blockers(ticket)
        statement = who.split("run now: ")[1]
        assert "the owner of the publication theirs" in who and upstream.blockers(ticket) == [who]
        session.execute(statement)
        assert upstream.blockers(ticket) == []
        owner = PostgresUpstream(options | {"username": database.server.user}, database.server.password)
        assert owner.blockers(owner.publish("public", "t")) == []
    finally:
        session.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_what_committed_before_a_table_was_published_is_before_its_beginning(database: Any, session: Any) -> None:
    """So that a resync need not understand how rows were written before it."""
    options = {"hostname": database.server.host, "port": str(database.server.port), "database.name": database.name}
    options |= {"publication.name": "ours", "username": database.server.user}
    session.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    publication.ensure(session, "ours")
    ((before,),) = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
    upstream = PostgresUpstream(options, database.server.password)
    ticket = upstream.publish("public", "t")
    assert lsn_to_int(upstream.begun(ticket)) > lsn_to_int(before)
    with database.connect() as other:
        other.execute("BEGIN; INSERT INTO t VALUES (2)")
        later = upstream.publish("public", "t")
        assert upstream.blockers(ticket) == [] and len(upstream.blockers(later)) == 1
