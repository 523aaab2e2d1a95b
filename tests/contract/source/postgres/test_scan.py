"""Scans of PostgreSQL alone: what no other upstream has, and what has lost rows elsewhere (hazards 1, 32, 38, 39)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE
from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError, Retry
from headwater.model import Bound, ScanResult
from headwater.source.postgres.client.session import lsn_to_int
from headwater.source.postgres.reach import PostgresReach
from headwater.source.postgres.scan.snapshot import Snapshot, sees
from support.backfill import bench, endpoint_of
from support.hanging import hanging_commit, server_with_silent_standby
from support.wait import wait_for


def saw(result: ScanResult, txn: int) -> bool:
    return bool(sees(result.saw, np.array([txn], np.int64))[0])


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """A server of its own, for tests that change its settings or end it."""
    with EmbeddedPostgres(18) as server:
        yield server


class Own:
    """The `postgres` database of such a server, in the shape of the shared fixture."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server, self.name = server, "postgres"
        self.execute, self.connect = server.execute, server.connect


def test_a_commit_that_is_in_the_log_but_invisible_is_judged_unseen(tmp_path: Path) -> None:
    """Hazard 1, exactly: a commit waits for a standby that never answers."""
    with server_with_silent_standby() as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
        server.execute("INSERT INTO t VALUES (1, 10)")
        server.execute("CREATE PUBLICATION p FOR TABLE t")
        server.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        table = bench(Own(server), tmp_path, "t")
        with hanging_commit(server, "UPDATE t SET v = 11") as commit:
            peek = "SELECT data FROM pg_logical_slot_peek_binary_changes('s', NULL, NULL, 'proto_version', '1', %s)"
            decoded = server.execute(peek.replace("%s", "'publication_names', 'p'"))
            result = scan_span(table.job(WHOLE))
        assert any(message[:1] == b"U" for (message,) in decoded), "the log already had the new row"
        assert table.rows(result) == [{"id": 1, "v": 10}]
        assert not saw(result, commit.txn)
        assert saw(scan_span(table.job(WHOLE)), commit.txn)


def test_a_scan_does_not_hang_where_commits_wait_for_a_standby(tmp_path: Path) -> None:
    with server_with_silent_standby() as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY)")
        table = bench(Own(server), tmp_path, "t")
        server.execute("ALTER ROLE postgres SET synchronous_commit = on")
        result = scan_span(table.job(WHOLE))
        flushed = server.execute("SELECT pg_current_wal_flush_lsn()::text")
        assert lsn_to_int(flushed[0][0]) > lsn_to_int(result.high)


@pytest.mark.parametrize("rewrite", ["TRUNCATE t", "ALTER TABLE t ALTER COLUMN v TYPE int USING v + 1"])
def test_a_rewrite_while_the_scan_waits_for_its_lock_is_seen_whole(rewrite: str, database: Any, tmp_path: Path) -> None:
    """Hazard 32: the lock comes before the snapshot, so the scan sees what the rewrite left."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 10) i")
    table = bench(database, tmp_path, "t")
    results: list[ScanResult] = []
    with database.connect() as writer:
        writer.execute("BEGIN")
        writer.execute(rewrite)
        writer.execute("INSERT INTO t VALUES (99, 99)")
        (txn,) = writer.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        scan = threading.Thread(target=lambda: results.append(scan_span(table.job(WHOLE))))
        scan.start()
        wait_for(
            lambda: bool(database.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"))
        )
        writer.execute("COMMIT")
        scan.join(20)
    (result,) = results
    assert saw(result, txn)
    assert [r["id"] for r in table.rows(result)] == [i for (i,) in database.execute("SELECT id FROM t ORDER BY id")]


def test_rows_written_between_snapshot_and_rows_are_unseen(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = bench(database, tmp_path, "t")
    inserted: list[int] = []

    def at(point: str) -> None:
        if point in ("scan.before_snapshot", "scan.before_rows"):
            number = len(inserted) + 1
            inserted.append(
                database.execute(f"INSERT INTO t VALUES ({number}) RETURNING pg_current_xact_id()::text::bigint")[0][0]
            )

    result = scan_span(table.job(WHOLE), hooks=at)
    assert table.rows(result) == [{"id": 1}]
    assert [saw(result, txn) for txn in inserted] == [True, False]


def test_no_reader_or_writer_waits_for_a_scan(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute("INSERT INTO t VALUES (1, 1)")
    table = bench(database, tmp_path, "t")

    def at(point: str) -> None:
        if point == "scan.before_rows":
            with database.connect() as other:
                other.execute("SET lock_timeout = '1ms'")
                for statement in (
                    "UPDATE t SET v = 2",
                    "DELETE FROM t",
                    "INSERT INTO t VALUES (1, 3)",
                    "SELECT * FROM t FOR UPDATE",
                    "CREATE INDEX ON t (v)",
                ):
                    other.execute(statement)

    assert scan_span(table.job(WHOLE), hooks=at).rows == 1


def test_row_level_security_is_an_error_and_not_a_smaller_table(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1), (2)")
    database.execute("DROP ROLE IF EXISTS limited")
    database.execute("CREATE ROLE limited LOGIN PASSWORD 'limited'")
    database.execute("GRANT SELECT ON t TO limited")
    table = bench(database, tmp_path, "t")
    mine = replace(table, reach=PostgresReach(endpoint_of(database.server, database.name, "limited", "limited")))
    try:
        assert scan_span(mine.job(WHOLE)).rows == 2
        database.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
        database.execute("CREATE POLICY p ON t USING (id = 1)")
        with pytest.raises(HeadwaterError) as e:
            scan_span(mine.job(WHOLE))
        assert e.value.code == "table.row_security"
        with pytest.raises(HeadwaterError) as e:
            mine.plan()
        assert e.value.code == "table.row_security"
        database.execute("REVOKE SELECT ON t FROM limited")
        with pytest.raises(HeadwaterError) as e:
            scan_span(mine.job(WHOLE))
        assert e.value.code == "source.privilege"
    finally:
        database.execute("DROP TABLE t")
        database.execute("DROP ROLE limited")


def test_a_standby_is_refused(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Hazard 39: on a standby the snapshot's list of running transactions is empty, so all would look seen."""
    server.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = bench(Own(server), tmp_path, "t")
    (server.data / "standby.signal").touch()
    server.restart()
    with pytest.raises(HeadwaterError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == "source.standby"


def test_another_life_of_the_server_is_told_apart(server: EmbeddedPostgres, tmp_path: Path) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = bench(Own(server), tmp_path, "t")
    first, second = (scan_span(table.job(WHOLE)).server_life for _ in range(2))
    server.crash()
    server.start()
    assert first == second != scan_span(table.job(WHOLE)).server_life


def test_a_server_that_dies_in_the_middle_leaves_no_file_and_is_retried(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    server.execute("INSERT INTO t SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 50000) i")
    table = bench(Own(server), tmp_path, "t")
    seen: list[str] = []

    def at(point: str) -> None:
        seen.append(point)
        if point == "scan.batch" and seen.count(point) == 2:
            server.crash()

    with pytest.raises(HeadwaterError) as e:
        scan_span(table.job(WHOLE, batch_bytes=1 << 16), hooks=at)
    assert e.value.retry is Retry.AUTO
    assert not list((tmp_path / "base").glob("*"))


def test_operators_of_an_extension_compare_its_keys(database: Any, tmp_path: Path) -> None:
    """The fixed search_path is empty, so a bare `>` would not find them (or, worse, find those of plain text)."""
    database.execute("CREATE EXTENSION vector")  # the wheel that the lock file names carries it
    database.execute("CREATE TABLE t (a int, id vector(2), v int, PRIMARY KEY (a, id))")
    database.execute(
        "INSERT INTO t SELECT i % 2, ('[' || (i * 37 % 101) || ',' || i || ']')::vector, i "
        "FROM generate_series(1, 200) i"
    )
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan(span_rows=30, span_bytes=1))
    assert len(parts) == 8
    found = table.scan_all(parts, scan_s=0.0, batch_bytes=500)
    expected = database.execute("SELECT v FROM t ORDER BY a, id")
    assert [r["v"] for r in found] == [v for (v,) in expected]


def test_bounds_follow_the_database_where_its_order_is_not_ours(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id numeric PRIMARY KEY, v int)")
    database.execute("INSERT INTO t SELECT (i * 7919 % 10007) / 13.0, i FROM generate_series(1, 1000) i")
    table = bench(database, tmp_path, "t")
    assert not table.columns[0].upstream.ordered
    found = table.scan_all(table.spans(table.plan(span_rows=90, span_bytes=1)))
    assert [r["v"] for r in found] == [v for (v,) in database.execute("SELECT v FROM t ORDER BY id")]


def test_an_enum_key_is_read_in_the_order_of_its_labels(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'A')")
    database.execute("CREATE TABLE t (id mood, n int, PRIMARY KEY (id, n))")
    database.execute("INSERT INTO t SELECT m, i FROM unnest(enum_range(NULL::mood)) m, generate_series(1, 50) i")
    table = bench(database, tmp_path, "t")
    found = table.scan_all(table.spans(table.plan(span_rows=30, span_bytes=1)), scan_s=0.0, batch_bytes=200)
    assert [(r["id"], r["n"]) for r in found] == database.execute("SELECT id::text, n FROM t ORDER BY t.id, n")


def test_names_are_quoted_everywhere(database: Any, tmp_path: Path) -> None:
    database.execute('CREATE SCHEMA "My.Schema"')
    database.execute(
        'CREATE TABLE "My.Schema"."or""der" ("Select" int, "a b" text, "naïve" int, PRIMARY KEY ("a b", "Select"))'
    )
    database.execute('INSERT INTO "My.Schema"."or""der" SELECT i, i % 7, i FROM generate_series(1, 500) i')
    table = bench(database, tmp_path, 'or"der', "My.Schema")
    found = table.scan_all(table.spans(table.plan(span_rows=60, span_bytes=1)))
    assert sorted(r["naïve"] for r in found) == list(range(1, 501))


def test_stale_statistics_do_not_hurt_a_plan(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY) WITH (autovacuum_enabled = false)")
    database.execute("INSERT INTO t SELECT generate_series(1, 2000)")
    database.execute("ANALYZE t")
    database.execute("DELETE FROM t WHERE id BETWEEN 10 AND 1990")
    database.execute("INSERT INTO t VALUES (9000000000000000000)")
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan(span_rows=100, span_bytes=1))
    assert len(parts) == 2
    assert len(table.scan_all(parts)) == 20


def test_children_by_inheritance_are_not_read(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)")
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("INSERT INTO child VALUES (2)")
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan())
    assert parts[-1].lo == Bound(("1",), after=True)
    assert table.scan_all([WHOLE]) == [{"id": 1}]


def test_values_that_cannot_be_kept_are_counted(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, d date, n numeric(10,2))")
    database.execute("INSERT INTO t VALUES (1, 'infinity', 'NaN'), (2, '-infinity', 1), (3, NULL, NULL)")
    result = scan_span(bench(database, tmp_path, "t").job(WHOLE))
    assert result.unrepresentable == {"d": 2, "n": 1}


def test_the_log_moves_past_high_on_an_idle_database(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    result = scan_span(bench(database, tmp_path, "t").job(WHOLE))
    flushed = database.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    assert lsn_to_int(flushed) > lsn_to_int(result.high)


def test_what_a_scan_saw_is_what_the_database_says(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with database.connect() as a, database.connect() as b:
        a.execute("BEGIN")
        (running,) = a.execute("INSERT INTO t VALUES (1) RETURNING pg_current_xact_id()::text::bigint").fetchone()
        (over,) = b.execute("INSERT INTO t VALUES (2) RETURNING pg_current_xact_id()::text::bigint").fetchone()
        table = bench(database, tmp_path, "t")
        result = scan_span(table.job(WHOLE))
        a.execute("COMMIT")
        (later,) = b.execute("INSERT INTO t VALUES (3) RETURNING pg_current_xact_id()::text::bigint").fetchone()
    assert table.rows(result) == [{"id": 2}]
    assert Snapshot.parse(result.saw).sees(np.array([running, over, later])).tolist() == [False, True, False]
