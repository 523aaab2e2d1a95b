"""Captures of PostgreSQL alone: slots, publications, timelines, 64-bit transaction numbers."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.process import PASSWORD
from headwater.meta import connections, segments
from headwater.model import ConnectionState
from headwater.source.postgres.client.session import lsn_to_int
from headwater.source.postgres.log import PostgresSource
from headwater.source.postgres.resume import holds_timeline
from support.capture import Captured, Upstream, Writers, captured
from support.wait import wait_for


def check_random_writers(dsn: str, path: Path) -> None:
    upstream = Upstream.prepare(dsn)
    Writers.prepare(upstream)
    with captured(path, upstream) as c:
        c.start()
        with Writers(dsn, seed=int.from_bytes(os.urandom(2), "big")) as writers:
            wait_for(lambda: writers.commits > 300)
        c.wait_caught_up()
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()


def test_an_older_server_is_captured_alike_and_transaction_numbers_have_64_bits(tmp_path: Path) -> None:
    with EmbeddedPostgres(16, database="older") as pg:
        pg.end(signal.SIGINT)
        reset = [str(pg.bin / "pg_resetwal"), "-e", "3", "-D", str(pg.data)]
        subprocess.run(reset, check=True, capture_output=True, **pg.as_account())
        pg.start()
        check_random_writers(pg.dsn(), tmp_path / "random")
        pg.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        pg.execute("DROP PUBLICATION headwater_test")
        upstream = Upstream.prepare(pg.dsn())
        with captured(tmp_path / "txn", upstream) as c:
            with upstream.connect() as session, session.transaction():
                session.execute("INSERT INTO item VALUES (-1, 1, '')")
                txn = int(session.execute("SELECT pg_current_xact_id()::text").fetchone()[0])
            assert txn > 3 << 32
            c.start()
            c.wait_caught_up()
            with c.home.meta.read() as m:
                (segment,) = segments.in_range(m, c.id, 0, 10)
            assert segment.txn_min == segment.txn_max == txn == c.info().last_txn
            c.close()


def test_an_idle_database_with_a_busy_neighbour_moves_its_slot(database: Any, tmp_path: Path) -> None:
    upstream = Upstream.prepare(database.dsn)
    with captured(tmp_path, upstream) as c:
        c.start()
        c.wait_caught_up()
        before = lsn_to_int(c.info().position)
        database.server.execute(
            "CREATE TABLE IF NOT EXISTS busy AS SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g"
        )
        goal = lsn_to_int(upstream.position())
        assert goal > before + 1_000_000
        wait_for(lambda: lsn_to_int(c.confirmed()) >= goal)
        assert c.info().last_index == 0 and list(c.home.storage.list("changelog")) == []
        assert any(line.startswith("published 0 ") for line in c.lines)
        database.server.execute("DROP TABLE busy")
        assert c.close() == 0


def test_positions_that_were_acknowledged_are_in_meta_first(database: Any, tmp_path: Path) -> None:
    upstream = Upstream.prepare(database.dsn)
    Writers.prepare(upstream)
    with captured(tmp_path, upstream) as c:
        c.start()
        with Writers(database.dsn, seed=7, threads=1):
            for _ in range(100):
                confirmed = lsn_to_int(c.confirmed())  # first: meta may only be further
                assert confirmed <= lsn_to_int(c.info().resume_position)


def test_a_busy_slot_is_waited_for_and_shown(database: Any, tmp_path: Path) -> None:
    upstream = Upstream.prepare(database.dsn)
    with captured(tmp_path, upstream) as c:
        holder = PostgresSource.of(c.info().options, PASSWORD).open_log(c.info().position, {})
        holder.begin(c.info().position)
        c.start()
        error = c.wait_state(ConnectionState.RETRYING, "source.slot_busy")
        ((pid,),) = upstream.execute(f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{upstream.slot}'")
        assert str(pid) in error["message"]
        holder.close()
        c.wait_caught_up()
        assert c.info().error is None


def test_a_table_altered_between_two_rows_has_two_schema_versions(database: Any, tmp_path: Path) -> None:
    upstream = Upstream.prepare(database.dsn)
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with captured(tmp_path, upstream) as c:
        c.start()
        upstream.execute("INSERT INTO t VALUES (1)")
        upstream.execute("ALTER TABLE t ADD COLUMN extra numeric(10, 2)")
        upstream.execute("INSERT INTO t VALUES (2, 3)")
        c.wait_caught_up()
        with c.home.meta.read() as m:
            first, second = segments.schemas(m, c.id)
        assert (first.schema, first.table, first.identity, first.from_index) == ("public", "t", "d", 1)
        assert [(x.name, x.key) for x in first.columns] == [("id", True)]
        assert second.from_index == 2 and second.columns[1].modifier == ((10 << 16) | 2) + 4
        assert c.close() == 0


def test_a_server_without_a_logical_log_fails_visibly(tmp_path: Path) -> None:
    with EmbeddedPostgres(18, settings={"wal_level": "replica"}, database="plain") as pg:
        upstream = Upstream(pg.dsn(), "slot", "oracle")
        with captured(tmp_path, upstream, position="0/1") as c:
            assert c.start().wait(60) == 1
            error = c.info().error
            assert error is not None and error["code"] == "source.wal_level"


def test_a_publication_that_is_gone_or_made_again_fails_visibly(database: Any, tmp_path: Path) -> None:
    upstream = Upstream.prepare(database.dsn)
    with captured(tmp_path, upstream) as c:
        c.start()
        c.wait_caught_up()
        upstream.execute("DROP PUBLICATION headwater_test")
        c.wait_state(ConnectionState.FAILED, "source.publication_missing")
        upstream.execute("CREATE PUBLICATION headwater_test FOR ALL TABLES")
        assert c.start().wait(60) == 1
        error = c.info().error
        assert error is not None and "re-created" in error["message"] and "Resync" in error["hint"]


def test_a_timeline_that_left_ours_before_our_position_is_another_server() -> None:
    history = "1\t0/3000060\tno recovery target specified\n\n2\t0/5000000\tbefore 2000-01-01\n"
    assert holds_timeline(history, 1, "0/3000060")
    assert not holds_timeline(history, 1, "0/3000061")
    assert holds_timeline(history, 2, "0/4FFFFFF")
    assert not holds_timeline(history, 3, "0/1")
    assert not holds_timeline("", 1, "0/1")


def test_a_promoted_server_is_followed_onto_its_new_timeline(tmp_path: Path) -> None:
    with EmbeddedPostgres(18, database="promoted") as pg:
        upstream = Upstream.prepare(pg.dsn())
        upstream.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with captured(tmp_path, upstream) as c:
            c.start()
            upstream.execute("INSERT INTO t VALUES (1)")
            c.wait_caught_up()
            pg.end(signal.SIGINT)
            (pg.data / "standby.signal").touch()
            pg.start()
            wait_for(lambda: (c.info().error or {}).get("code") == "source.standby", "it is met as a standby", 60)
            pg.execute("SELECT pg_promote()")
            upstream.execute("INSERT INTO t VALUES (2)")
            c.wait_caught_up()
            assert c.info().identity["timeline"] == "2"
            assert c.info().last_index == 2
            with c.home.meta.read() as m:
                assert connections.server_life(m, c.id).split("/")[1] == "2"
            assert c.close() == 0


def test_the_defined_options_suffice(database: Any, tmp_path: Path) -> None:
    """No heartbeat: keepalives alone still move an idle position."""
    upstream = Upstream.prepare(database.dsn)
    it = Captured.define(tmp_path, upstream, **{"heartbeat.interval": "0"})
    with it as c:
        c.start()
        c.wait_caught_up()
        assert c.close() == 0
    it.home.meta.close()


def test_a_capture_reads_the_settings_of_its_home(database: Any, tmp_path: Path) -> None:
    """A transaction of a megabyte is one segment by default; a setting cuts it into pieces."""
    upstream = Upstream.prepare(database.dsn)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    (tmp_path / "headwater.toml").write_text('[flush]\nbytes = "64KB"\n')
    with captured(tmp_path, upstream) as c:
        c.start()
        database.execute("INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i")
        c.wait_caught_up()
        with c.home.meta.read() as m:
            assert len(segments.in_range(m, c.id, 0, 1000)) > 4
        assert c.close() == 0
    (tmp_path / "headwater.toml").write_text("flush.bites = 1\n")
    process = c.start()
    assert process.wait(60) == 2, "what is wrong with the file is said, and nothing is captured"
    assert "there is no setting flush.bites" in c.log()
    wait_for(lambda: any(line.startswith('refused {"code": "settings.unknown"') for line in c.lines), "it is told")
