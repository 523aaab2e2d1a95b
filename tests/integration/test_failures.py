"""What goes wrong stays where it is, says so, and is mended by what the hint says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

import headwater
from headwater.engine.commit.folds import Folds
from headwater.engine.results import TableStatus
from headwater.errors import DefinitionError, HeadwaterError, SourceError, StaleWarning
from headwater.meta import connections
from headwater.meta.tables import connection
from headwater.model import ConnectionState
from support import upstreams
from support.lake import assert_equal, definitions
from support.upstreams import Upstream
from support.wait import wait_for


def table(hw: Any, name: str) -> TableStatus:
    return next(t for t in hw.status().tables if t.name == name)


def two_tables(upstream: Upstream, hw: Any) -> None:
    """`good` and `bad`, live in the lake."""
    for name in ("good", "bad"):
        upstream.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        upstream.fill(name, 200, "i, concat(i, '')")
    hw.sql(upstream.definitions(["good", "bad"]))
    wait_for(lambda: all(t.state == "live" for t in hw.status().tables), "both tables are live")


@upstreams.ONE_OF
def test_one_failing_table_does_not_stop_another_and_is_fixed_by_its_hint(
    kinds: tuple[type[Upstream], ...], request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    upstream = upstreams.fresh(request, upstreams.choose(kinds)[0])
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        two_tables(upstream, hw)
        for statement in upstream.shout:
            upstream.execute(statement.format("bad"))
        wait_for(lambda: table(hw, "bad").state == "failed", "the rewritten table has stopped", 60.0)
        assert table(hw, "bad").hint == "RESYNC TABLE bad reads it again."
        upstream.execute("INSERT INTO good VALUES (1000, 'fresh')")
        query = "SELECT v FROM good WHERE id = 1000"
        wait_for(lambda: hw.sql(query)[0].rows.to_pylist() == [{"v": "fresh"}], "the other table goes on")
        assert_equal(hw.verify("good"))
        hw.sql("RESYNC TABLE bad")
        wait_for(lambda: table(hw, "bad").state == "live", "the table is filled anew")
        assert_equal(hw.verify("bad"))
        assert hw.sql("SELECT v FROM bad WHERE id = 1")[0].rows.to_pylist() == [{"v": "1!"}]


def test_a_capture_that_is_too_far_ahead_waits_and_says_so_until_a_fold_has_caught_up(
    database: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folds, "tick", lambda self: None)  # nothing is folded until somebody asks for it
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    ahead = {"changelog.ahead_bytes": "1"}
    with headwater.open(tmp_path / "home", spark=spark, settings=ahead) as hw, hw.running():
        hw.sql(definitions(database, ["t"]))
        wait_for(lambda: table(hw, "t").state == "live", "the table is live")
        database.execute("INSERT INTO t VALUES (1)")
        wait_for(lambda: "changelog.ahead" in {c.code for c in hw.status().connections}, "it says that it waits", 60.0)
        database.execute("INSERT INTO t VALUES (2)")
        hw.sql("FOLD TABLE t")
        query = "SELECT id FROM t ORDER BY id"
        wait_for(lambda: hw.sql(query)[0].rows.to_pylist() == [{"id": 1}, {"id": 2}], "it goes on after the fold", 60.0)


@upstreams.ONE_OF
def test_a_table_whose_type_changed_stays_as_it_was_and_no_other_stops(
    kinds: tuple[type[Upstream], ...], request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    upstream = upstreams.fresh(request, upstreams.choose(kinds)[0])
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        two_tables(upstream, hw)
        upstream.execute(upstream.retype.format("bad"))
        upstream.execute("UPDATE bad SET v = 'x' WHERE id = 1")
        upstream.execute("INSERT INTO good VALUES (1000, 'fresh')")
        query = "SELECT v FROM good WHERE id = 1000"
        wait_for(lambda: hw.sql(query)[0].rows.to_pylist() == [{"v": "fresh"}], "the other table goes on", 60.0)
        wait_for(lambda: table(hw, "bad").state == "failed", "the changed table has stopped", 60.0)
        (result,) = hw.sql("SELECT count(*) AS n, max(v) AS v FROM bad WHERE id < 2")
        assert result.rows.to_pylist() == [{"n": 1, "v": "1"}]
        assert any("stopped" in w for w in result.warnings), result.warnings
        with pytest.raises(DefinitionError, match="stopped"):
            hw.sql("SELECT count(*) FROM bad", require_complete=True)
        (compared,) = hw.verify("bad")
        assert compared.code == table(hw, "bad").code and "RESYNC TABLE" in compared.hint
        assert compared.error.startswith("it has stopped: ") and not compared.skipped, "the command ends with an error"
        upstream.execute(upstream.widen.format("good"))
        upstream.execute("INSERT INTO good VALUES (5000000000, 'far')")
        query = "SELECT count(*) AS n FROM good WHERE id = 1000 OR v = 'far'"

        def stopped() -> bool:  # whoever comes first: a query, or the watcher
            (result,) = hw.sql(query)
            assert result.rows.to_pylist() == [{"n": 1}], "the table stays as it was, at every epoch"
            return any("good: stopped" in w for w in result.warnings)

        wait_for(stopped, "a query says that the key has outgrown its type", 60.0)
        wait_for(lambda: table(hw, "good").state == "failed", "the table with the wider key has stopped", 60.0)
        hw.sql("RESYNC TABLE good; RESYNC TABLE bad")
        wait_for(lambda: [t.state for t in hw.status().tables] == ["live"] * 2, "both are read in their new form")
        assert hw.sql("SELECT max(id) AS id FROM good")[0].rows.to_pylist() == [{"id": 5000000000}]
        assert_equal(hw.verify("good"))
        assert_equal(hw.verify("bad"))


def test_a_missing_table_does_not_stop_the_others_and_a_fixed_one_is_not_reported_again(
    database: Any, spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("a", "c"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
    text = definitions(database, ["a", "b", "c"]).replace("CREATE TABLE b", "SELECT 1;\nCREATE TABLE b")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        notices: list[str] = []
        hw.on_notice = notices.append
        with pytest.raises(HeadwaterError) as e:
            hw.run(text, once=True, fold=False)
        assert (e.value.code, e.value.exit_status) == ("sql.refused", 1)
        assert "1 of 4 statements was not executed:\nline 4: " in e.value.message
        assert "(table.missing)\n  → " in e.value.message
        assert {t.name: t.state for t in hw.status().tables} == {"a": "live", "c": "live"}
        assert notices[0] == f"created the home {tmp_path / 'home'}"
        assert [n.split(";")[0] for n in notices[1:]][-1].startswith("line 4: the database")
        with hw._home.meta.write() as c:  # as an earlier start left it
            wrong = SourceError("source.authentication", "wrong password", "Correct it.")
            connections.set_state(c, 1, ConnectionState.FAILED, wrong)
    database.execute("CREATE TABLE b (id int PRIMARY KEY)")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.run(text, once=True, fold=False)
        assert {t.name: t.state for t in hw.status().tables} == {"a": "live", "b": "live", "c": "live"}


def test_files_that_were_removed_from_outside_are_an_error_with_the_way_out(
    database: Any, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT generate_series(1, 100)")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.run(definitions(database, ["t"]), once=True)
    for file in (tmp_path / "home" / "warehouse").rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        with pytest.raises(HeadwaterError) as e:
            hw.sql("SELECT sum(id) FROM t")
        assert (e.value.code, e.value.exit_status) == ("data.base_damaged", 1)
        assert "RESYNC TABLE" in e.value.hint


def test_an_answer_says_how_old_it_is_and_one_that_is_too_old_is_refused(
    database: Any, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.run(definitions(database, ["t"]), once=True, fold=False)
        with hw._home.meta.write() as c:  # its last word came twelve minutes ago
            c.execute(sa.update(connection).values(position_at=time.time() - 720))
        for query in ("SELECT count(*) AS n FROM t", "SELECT count(*) AS n FROM changelog('pg', table => 't')"):
            with pytest.warns(StaleWarning, match="pg: 12 min behind: no server is running"):
                (result,) = hw.sql(query, max_age_s=3600)
            assert [(b.connection, b.reason) for b in result.behind] == [("pg", "no server is running")]
            with pytest.raises(HeadwaterError, match="pg: 12 min behind") as e:
                hw.sql(query, max_age_s=60)
            assert (e.value.code, e.value.exit_status) == ("query.stale", 1)
        with pytest.warns(StaleWarning, match="12 min"):
            assert hw.table("t").count() == 1
        assert hw.sql("SELECT 1 AS n", max_age_s=1)[0].rows.to_pylist() == [{"n": 1}], "it reads nothing that is old"


REFUSED = (
    ("SELECT nothing FROM t", "sql.query", "`nothing` cannot be resolved"),
    ("SELECT\n  id FROM t WHERE (id = 1", "sql.query", "line 2, column"),
    ("SELECT 1 / (id - id) FROM t", "sql.query", "Division by zero"),
    ("SELECT * FROM tt", "name.unknown", "no table tt"),
    ("SELECT p:nested.a[0] FROM (SELECT '{}' AS p FROM t)", "sql.query", "not variant type"),
)


def test_a_query_that_spark_refuses_is_reported_in_one_line(
    database: Any, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.run(definitions(database, ["t"]), once=True, fold=False)
        capfd.readouterr()
        for query, code, words in REFUSED:
            with pytest.raises(HeadwaterError) as e:
                hw.sql(query)
            assert e.value.code == code and words in e.value.message and "\n" not in e.value.message
        assert "SQLQueryContextLogger" not in "".join(capfd.readouterr())
