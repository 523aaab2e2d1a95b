"""Scans of a real PostgreSQL: every row once, whatever the key and whatever happens meanwhile."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE, one_key
from headwater.errors import DataError, HeadwaterError
from headwater.model import Bound, Span
from headwater.source.postgres.session import lsn_to_int
from headwater.source.postgres.snapshot import Snapshot, sees
from support.backfill import bench
from support.wait import wait_for

SHAPES = {
    "int4": ("id int PRIMARY KEY", "SELECT i, {v} FROM generate_series(1, {n}) i"),
    "sparse_int8": (
        "id bigint PRIMARY KEY",
        "SELECT i::bigint * 1000003 * 1000 - 5, {v} FROM generate_series(1, {n}) i",
    ),
    "text_c": ('id text COLLATE "C" PRIMARY KEY', "SELECT md5(i::text), {v} FROM generate_series(1, {n}) i"),
    "text_odd": ("id text PRIMARY KEY", "SELECT E'it''s \\\\ \"é\" ' || i, {v} FROM generate_series(1, {n}) i"),
    "uuid": ("id uuid PRIMARY KEY", "SELECT md5(i::text)::uuid, {v} FROM generate_series(1, {n}) i"),
    "timestamptz": (
        "id timestamptz PRIMARY KEY",
        "SELECT '1999-12-31 23:59:59.000001+02'::timestamptz + i * interval '1.000001 s', {v} "
        "FROM generate_series(1, {n}) i",
    ),
    "date": ("id date PRIMARY KEY", "SELECT '0044-03-15'::date + i, {v} FROM generate_series(1, {n}) i"),
    "numeric": ("id numeric(20,4) PRIMARY KEY", "SELECT i / 7.0, {v} FROM generate_series(1, {n}) i"),
    "bytea": ("id bytea PRIMARY KEY", "SELECT sha256(i::text::bytea), {v} FROM generate_series(1, {n}) i"),
    "double": ("id float8 PRIMARY KEY", "SELECT sqrt(i) - 20, {v} FROM generate_series(1, {n}) i"),
    "char": ("id char(12) PRIMARY KEY", "SELECT (i * 7919 % 10007)::text, {v} FROM generate_series(1, {n}) i"),
    "boolean": ("id boolean PRIMARY KEY", "SELECT i = 1, {v} FROM generate_series(1, 2) i"),
}


def odd_columns() -> str:
    return "i * 2, 'row ' || i, (i / 3.0)::numeric(12,2)"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_of_many_spans_reads_every_row_once(shape: str, database: Any, tmp_path: Path) -> None:
    key, fill = SHAPES[shape]
    database.execute(f"CREATE TABLE t ({key}, a bigint, b text, c numeric(12,2))")
    database.execute("INSERT INTO t " + fill.format(v=odd_columns(), n=3000))
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan(span_rows=700, span_bytes=1))
    assert len(parts) >= (2 if shape == "boolean" else 5)
    found = table.scan_all(parts)
    expected = database.execute("SELECT a, b, c FROM t ORDER BY id")
    assert [(r["a"], r["b"], r["c"]) for r in found] == expected


@pytest.mark.parametrize("shape", SHAPES)
def test_a_scan_that_stops_at_every_batch_resumes_without_a_gap(shape: str, database: Any, tmp_path: Path) -> None:
    key, fill = SHAPES[shape]
    database.execute(f"CREATE TABLE t ({key}, a bigint, b text, c numeric(12,2))")
    database.execute("INSERT INTO t " + fill.format(v=odd_columns(), n=1000))
    table = bench(database, tmp_path, "t")
    first = scan_span(table.job(WHOLE, slice_s=0.0, batch_bytes=10_000))
    assert shape == "boolean" or (first.stopped_at is not None and first.rows < 1000)
    found = table.scan_all([WHOLE], slice_s=0.0, batch_bytes=10_000)
    assert [(r["a"], r["b"], r["c"]) for r in found] == database.execute("SELECT a, b, c FROM t ORDER BY id")


def test_a_scan_of_at_most_so_many_rows_hands_the_rest_back(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 100)")
    table = bench(database, tmp_path, "t")
    first = scan_span(table.job(WHOLE, max_rows=30))
    assert (first.rows, first.stopped_at) == (30, Bound(("30",)))
    assert [r["id"] for r in table.scan_all([WHOLE], max_rows=30)] == list(range(1, 101))
    assert scan_span(table.job(WHOLE, max_rows=101)).stopped_at is None
    upto = Span(Bound(("70",)), Bound(("100",)))
    assert scan_span(table.job(upto, max_rows=30)).stopped_at is None, "nothing was left"


def test_rows_beyond_the_limit_are_not_read_upstream(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY) WITH (autovacuum_enabled = false)")
    database.execute("INSERT INTO t SELECT generate_series(1, 50000)")
    table = bench(database, tmp_path, "t")

    def tuples_read() -> int:
        database.execute("SELECT pg_stat_force_next_flush()")
        return int(database.execute("SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 't'")[0][0])

    before = tuples_read()
    assert scan_span(table.job(WHOLE, max_rows=100)).rows == 100
    wait_for(lambda: tuples_read() > before)
    assert tuples_read() - before < 1000


def test_a_composite_key_whose_first_column_repeats_is_cut_inside_it(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (a int, b text, c date, v int, PRIMARY KEY (b, a, c))")
    database.execute("INSERT INTO t SELECT i % 3, 'same', '2020-01-01'::date + i, i FROM generate_series(1, 2000) i")
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan(span_rows=300, span_bytes=1))
    assert len(parts) == 8
    found = table.scan_all(parts, slice_s=0.0, batch_bytes=2_000)
    assert [r["v"] for r in found] == [v for (v,) in database.execute("SELECT v FROM t ORDER BY b, a, c")]


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
    found = table.scan_all(table.spans(table.plan(span_rows=30, span_bytes=1)), slice_s=0.0, batch_bytes=200)
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


def test_an_empty_table_is_one_span_that_nobody_needs_to_scan(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = bench(database, tmp_path, "t")
    plan = table.plan()
    assert table.spans(plan) == [WHOLE]
    assert plan.beyond_result.files == () and plan.beyond_result.rows == 0
    assert scan_span(table.job(WHOLE)).files == ()


def test_one_row_is_one_span_and_the_open_end(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (-7)")
    table = bench(database, tmp_path, "t")
    last = Bound(("-7",), after=True)
    assert table.spans(table.plan()) == [Span(None, last), Span(last, None)]
    assert table.scan_all([one_key(("-7",))]) == [{"id": -7}]


def test_planning_resumes_at_the_last_planned_bound(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id text PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT md5(i::text) FROM generate_series(1, 1000) i")
    table = bench(database, tmp_path, "t")
    plan = table.plan(span_rows=100, span_bytes=1)
    everything = table.spans(plan)
    assert everything[:4] + table.spans(plan, after=everything[3].hi, done=4) == everything
    assert table.spans(plan, after=plan.last, done=10) == [plan.beyond]


def test_rows_above_the_planned_end_belong_to_the_open_span_only(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 100)")
    table = bench(database, tmp_path, "t")
    plan = table.plan(span_rows=30, span_bytes=1)
    inserted = database.execute("INSERT INTO t VALUES (101) RETURNING pg_current_xact_id()::text::bigint")
    assert table.scan_all(table.spans(plan)[:-1])[-1] == {"id": 100}
    assert not sees(plan.beyond_result.saw, np.array([inserted[0][0]], np.int64))[0]


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


def test_a_partitioned_table_is_read_through_its_root(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int, v int, PRIMARY KEY (id)) PARTITION BY HASH (id)")
    for i in range(3):
        database.execute(f"CREATE TABLE t{i} PARTITION OF t FOR VALUES WITH (MODULUS 3, REMAINDER {i})")
    database.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i")
    database.execute("ANALYZE t")
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan(span_rows=200, span_bytes=1))
    assert len(parts) == 6
    assert [r["v"] for r in table.scan_all(parts)] == list(range(1, 1001))


def test_children_by_inheritance_are_not_read(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("CREATE TABLE child (PRIMARY KEY (id)) INHERITS (t)")
    database.execute("INSERT INTO t VALUES (1)")
    database.execute("INSERT INTO child VALUES (2)")
    table = bench(database, tmp_path, "t")
    parts = table.spans(table.plan())
    assert parts[-1].lo == Bound(("1",), after=True)
    assert table.scan_all([WHOLE]) == [{"id": 1}]


def test_a_column_dropped_upstream_is_null(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, gone_int int, gone_json jsonb, v int)")
    database.execute("INSERT INTO t VALUES (1, 2, '{}', 3)")
    table = bench(database, tmp_path, "t")
    database.execute("ALTER TABLE t DROP COLUMN gone_int, DROP COLUMN gone_json")
    assert table.scan_all([WHOLE]) == [{"id": 1, "gone_int": None, "gone_json": None, "v": 3}]


def test_values_that_cannot_be_kept_are_counted(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, d date, n numeric(10,2))")
    database.execute("INSERT INTO t VALUES (1, 'infinity', 'NaN'), (2, '-infinity', 1), (3, NULL, NULL)")
    result = scan_span(bench(database, tmp_path, "t").job(WHOLE))
    assert result.unrepresentable == {"d": 2, "n": 1}


def test_a_key_that_cannot_be_kept_stops_the_table(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id numeric(10,2) PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES ('NaN'), (1)")
    table = bench(database, tmp_path, "t")
    with pytest.raises(DataError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == "data.key_value"
    assert not list((tmp_path / "base").glob("*"))


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


def test_a_job_travels_to_a_task_and_its_repr_hides_the_password(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    job = bench(database, tmp_path, "t").job(one_key(("1",)))
    assert pickle.loads(pickle.dumps(job)) == job
    assert "password='" not in repr(job)


def test_a_refusal_names_no_key_value(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = bench(database, tmp_path, "t")
    with pytest.raises(HeadwaterError) as e:
        scan_span(table.job(one_key(("not-a-number-4711",))))
    assert "4711" not in str(e.value) and "4711" not in e.value.hint
