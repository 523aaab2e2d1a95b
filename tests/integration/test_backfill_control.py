"""A backfill in the user's hands: pace, pause, cancel, no history, blocks, resync."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.backfill.pace import QUANTUM_S
from headwater.errors import DefinitionError, InputError, SqlError
from headwater.meta import relations, spans
from headwater.model import SpanState
from support.lake import assert_equal, definitions
from support.wait import wait_for

ROWS = 4000


def rows(hw: Any, query: str) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in hw.sql(query)[0].rows.to_pylist()]


def state(hw: Any, table: str) -> str:
    return next(t.state for t in hw.status().tables if t.name == table)


@contextmanager
def running(database: Any, spark: SparkSession, home: Path, *tables: str) -> Iterator[Any]:
    """A running home with a connection, and an upstream with the tables."""
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, note text)")
        database.execute(f"INSERT INTO {table} SELECT i, i % 10, 'x' FROM generate_series(1, {ROWS}) i")
    with headwater.open(home, spark=spark) as hw, hw.running():
        hw.sql(definitions(database, ()))
        yield hw


def scanned(hw: Any, table: str) -> int:
    with hw._home.meta.read() as c:
        relation = relations.find(c, table)
        assert relation is not None
        return spans.rows(c, (relations.replacement(c, relation.id) or relation).id)


def quiet(hw: Any, table: str) -> bool:
    """No scan of the table is under way."""
    with hw._home.meta.read() as c:
        relation = relations.find(c, table)
        assert relation is not None
        return not spans.counts(c, relation.id).get(SpanState.SCANNING)


def test_a_backfill_keeps_its_pace_pauses_and_continues(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    with running(database, spark, tmp_path / "home", "t") as hw:
        limit = 200
        hw.sql(f"CREATE TABLE t FROM CONNECTION pg WITH (backfill.rate_limit = {limit});")
        wait_for(lambda: scanned(hw, "t") > 0, "the first rows are read")
        began, first = time.monotonic(), scanned(hw, "t")
        wait_for(lambda: scanned(hw, "t") >= first + 3 * limit, "more rows are read")
        read, took = scanned(hw, "t") - first, time.monotonic() - began
        assert read <= limit * (took + 2 * QUANTUM_S), f"{read} rows in {took:.1f} s"
        hw.sql("PAUSE BACKFILL t")
        wait_for(lambda: quiet(hw, "t"), "scans have ended")
        held = scanned(hw, "t")
        assert state(hw, "t") == "paused"
        with pytest.raises(SqlError, match="cannot be changed"):
            hw.sql("ALTER TABLE t SET (delivery = 'at-least-once')")
        hw.sql("ALTER TABLE t SET (backfill.rate_limit = 1000000, backfill.parallelism = 1)")
        database.execute("UPDATE t SET n = n + 100 WHERE id % 7 = 0")
        assert scanned(hw, "t") == held < ROWS, "a paused backfill reads nothing"
        hw.sql("RESUME BACKFILL t")
        wait_for(lambda: state(hw, "t") == "live", "the table is complete")
        assert scanned(hw, "t") == ROWS
        assert_equal(hw.verify())
        with pytest.raises(DefinitionError, match="complete"):
            hw.sql("PAUSE BACKFILL t")
        # live options are no part of the definition: the file that made the table can be run again
        assert "exists" in hw.sql("CREATE TABLE t FROM CONNECTION pg;")[0].message


def test_without_history_only_changes_count(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    big = "repeat(md5(random()::text), 400)"  # is stored aside, so that an update of another column does not carry it
    with running(database, spark, tmp_path / "home", "t", "u") as hw:
        database.execute("ALTER TABLE t ALTER note SET STORAGE EXTERNAL")
        database.execute(f"UPDATE t SET note = {big} WHERE id IN (10, 11)")
        hw.sql("CREATE TABLE t FROM CONNECTION pg WITH (snapshot = false);")
        wait_for(lambda: state(hw, "t") == "live", "there is nothing to read")
        assert rows(hw, "SELECT count(*) FROM t") == [(0,)]
        database.execute("INSERT INTO t VALUES (100001, 1, 'new'), (100002, 2, 'gone')")
        database.execute("UPDATE t SET n = 5 WHERE id IN (10, 20)")
        database.execute("UPDATE t SET id = 200011 WHERE id = 11")
        database.execute("DELETE FROM t WHERE id IN (30, 100002)")
        expected = database.execute("SELECT id, n, note FROM t WHERE id IN (10, 20, 100001, 200011) ORDER BY id")
        wait_for(lambda: rows(hw, "SELECT * FROM t ORDER BY id") == expected, "what changed is there")
        assert [v.skipped != "" for v in hw.verify("t")] == [True]
        with pytest.raises(DefinitionError, match="without history"):
            hw.sql("RESYNC TABLE t")
        # giving up a backfill leaves what was read, and changes go on
        hw.sql("CREATE TABLE u FROM CONNECTION pg WITH (backfill.rate_limit = 200);")
        wait_for(lambda: rows(hw, "SELECT count(*) > 0 FROM u") == [(True,)], "a part is readable")
        hw.sql("CANCEL BACKFILL u")
        wait_for(lambda: state(hw, "u") == "live", "nothing more is read")
        ((count, highest),) = rows(hw, "SELECT count(*), max(id) FROM u")
        assert 0 < count == highest < ROWS
        database.execute(f"UPDATE u SET n = -1 WHERE id IN (1, {ROWS})")
        wait_for(
            lambda: rows(hw, "SELECT id FROM u WHERE n = -1 ORDER BY id") == [(1,), (ROWS,)], "changes count everywhere"
        )
        with pytest.raises(DefinitionError, match="complete"):
            hw.sql("RESUME BACKFILL u")
        hw.sql("RESYNC TABLE u")
        hw.sql("ALTER TABLE u SET (backfill.rate_limit = 1000000)")
        wait_for(lambda: rows(hw, "SELECT count(*) FROM u") == [(ROWS,)], "a resync reads the history")
        assert_equal(hw.verify("u"))


def test_tables_of_one_block_become_readable_at_the_same_epoch(
    database: Any, spark: SparkSession, tmp_path: Path
) -> None:
    with running(database, spark, tmp_path / "home", "a", "b") as hw:
        with pytest.raises(DefinitionError):
            hw.sql("BEGIN; CREATE TABLE a FROM CONNECTION pg; CREATE TABLE nothing FROM CONNECTION pg; COMMIT;")
        assert not hw.status().tables, "all or none"
        options = "WITH (backfill.rate_limit = {})"
        hw.sql(
            f"BEGIN; CREATE TABLE a FROM CONNECTION pg; CREATE TABLE b FROM CONNECTION pg {options.format(0)}; COMMIT;"
        )
        wait_for(lambda: state(hw, "a") == "live", "one is complete")
        both = "SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b"
        (result,) = hw.sql(both)
        assert result.rows.to_pylist() == [{"a": 0, "b": 0}]
        assert any("readable together with b" in w for w in result.warnings), result.warnings
        hw.sql("ALTER TABLE b SET (backfill.rate_limit = 1000)")
        seen = set()
        while (ROWS, ROWS) not in seen:
            seen |= set(rows(hw, both))
        assert seen == {(0, 0), (ROWS, ROWS)}
        assert_equal(hw.verify())


def test_a_resync_takes_the_tables_place_at_an_epoch(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    with running(database, spark, tmp_path / "home", "t") as hw:
        hw.sql("CREATE TABLE t FROM CONNECTION pg;")
        wait_for(lambda: state(hw, "t") == "live", "the table is complete")
        # a rewrite whose new values are in no log: the table stops, its rows stay
        database.execute("ALTER TABLE t ALTER n TYPE text USING (n * 2)::text")
        database.execute("INSERT INTO t VALUES (100001, 'after', 'x')")
        wait_for(lambda: state(hw, "t") == "failed", "the rewrite is noticed")
        assert "RESYNC TABLE" in next(t.hint for t in hw.status().tables)
        assert rows(hw, "SELECT count(*) FROM t") == [(ROWS,)]
        hw.sql("ALTER TABLE t SET (backfill.rate_limit = 0)")
        hw.sql("RESYNC TABLE t")
        assert "already" in hw.sql("RESYNC TABLE t")[0].message
        assert rows(hw, "SELECT count(*), typeof(max(n)) FROM t") == [(ROWS, "int")]
        hw.sql("ALTER TABLE t SET (backfill.rate_limit = 3000)")
        seen = set()
        while (ROWS + 1, "string") not in seen:
            seen |= set(rows(hw, "SELECT count(*), typeof(max(n)) FROM t"))
        assert seen <= {(ROWS, "int"), (ROWS + 1, "string")}, "the old rows until the new ones are complete"
        assert [t.name for t in hw.status().tables] == ["t"] and state(hw, "t") == "live"
        assert_equal(hw.verify())
        hw.sql("RESYNC TABLE t")
        hw.sql("DROP TABLE t")
        with hw._home.meta.read() as c:
            assert not relations.all(c), "a resync goes with its table"


def test_a_filter_holds_for_the_history_and_for_changes(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    big = "repeat(md5(i::text), 400)"  # stored aside: an update of another column does not carry it
    database.execute("CREATE TABLE f (id int PRIMARY KEY, kind text, n numeric(8,2), at timestamptz, note text)")
    database.execute("ALTER TABLE f ALTER note SET STORAGE EXTERNAL")
    database.execute(
        "INSERT INTO f SELECT i, (ARRAY['a','b','it''s \\'])[i % 3 + 1], "
        "CASE WHEN i % 11 = 0 THEN 'NaN'::numeric ELSE i % 50 END, "
        f"'2026-01-01Z'::timestamptz + i * interval '1 hour', CASE WHEN i % 5 = 0 THEN {big} ELSE 'short' END "
        "FROM generate_series(1, 600) i"
    )
    wanted = "kind IN ('a', 'it''s \\') AND NOT n > 20 AND at >= '2026-01-02 00:00:00+00'"
    count = f"SELECT count(*) FROM f WHERE n <> 'NaN' AND {wanted}"
    with running(database, spark, tmp_path / "home") as hw:
        with pytest.raises(DefinitionError, match="can be ordered only by the database"):
            hw.sql("CREATE TABLE f FROM CONNECTION pg WITH (backfill.filter = 'kind < ''b''');")
        quoted = wanted.replace("'", "''")
        hw.sql(f"CREATE TABLE f FROM CONNECTION pg WITH (backfill.filter = '{quoted}', backfill.rows_per_span = 100);")
        wait_for(lambda: state(hw, "f") == "live", "the table is complete")
        assert rows(hw, "SELECT count(*) FROM f") == database.execute(count)
        for statement in (
            "UPDATE f SET n = 100 WHERE id % 10 = 1",  # leave
            "UPDATE f SET n = 1 WHERE id % 10 = 2",  # enter or stay
            "UPDATE f SET kind = 'a' WHERE id % 10 = 5",  # enter without the value that is stored aside
            "UPDATE f SET id = id + 10000, n = 3 WHERE id % 10 = 3",
            "DELETE FROM f WHERE id % 10 = 4",
            "INSERT INTO f VALUES (20001, 'a', 1, '2026-05-01Z', 'new'), (20002, 'b', 1, '2026-05-01Z', 'new')",
        ):
            database.execute(statement)
        expected = database.execute(count)
        wait_for(lambda: rows(hw, "SELECT count(*) FROM f") == expected, "rows came and went")
        wait_for(lambda: state(hw, "f") == "live", "what entered is read")
        hw.sql("FOLD TABLE f")
        assert_equal(hw.verify())
        assert rows(hw, "SELECT count(*) FROM f") == expected


def test_a_run_ends_at_a_place_in_the_log(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 100)")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.run(definitions(database, ["t"]), once=True)
        database.execute("INSERT INTO t VALUES (101)")
        ((position,),) = database.execute("SELECT pg_current_wal_insert_lsn()::text")
        database.execute("INSERT INTO t VALUES (102)")
        hw.run(until=position)
        assert rows(hw, "SELECT count(*), max(id) FROM t") == [(101, 101)]
        hw.run(until=position)  # it is there already
        assert rows(hw, "SELECT count(*), max(id) FROM t") == [(101, 101)]
        hw.run(once=True)
        assert rows(hw, "SELECT count(*), max(id) FROM t") == [(102, 102)]
        with pytest.raises(InputError, match="neither a position nor a time"):
            hw.run(until="tomorrow")
