"""What a session keeps from one statement to the next: views of unchanged rows, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.engine.query import read
from headwater.engine.spark.sessions import Sessions
from headwater.errors import DataError, HeadwaterError
from support.lake import definitions
from support.wait import wait_for


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each relation's rows were made a DataFrame from now on."""
    counted: Counter[str] = Counter()
    real = read.dataframe

    def dataframe(session: Any, storage: Any, relation: Any, layout: Any, overlay: Any) -> Any:
        counted[relation.name] += 1
        return real(session, storage, relation, layout, overlay)

    monkeypatch.setattr(read, "dataframe", dataframe)
    return counted


@pytest.fixture
def hw(database: Any, spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    for table in ("t", "u"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
        database.execute(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 10) i")
    with headwater.open(tmp_path / "home", spark=spark) as home, home.running():
        home.sql(definitions(database, ["t", "u"]))
        wait_for(lambda: all(t.state == "live" for t in home.status().tables), "both tables are live")
        yield home


def total(hw: Any, *tables: str) -> int:
    every = " UNION ALL ".join(f"SELECT sum(v) AS s FROM {t}" for t in tables)
    (row,) = hw.sql(f"SELECT sum(s) AS s FROM ({every})")[0].rows.to_pylist()
    return int(row["s"])


def test_a_correlated_sub_query_can_be_selected_from_tables_with_changes(hw: Any, database: Any) -> None:
    database.execute("UPDATE t SET v = v + 1")
    database.execute("UPDATE u SET v = v + 1")
    wait_for(lambda: total(hw, "t", "u") == 130, "the changes are seen")
    exists = "EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND u.v > 6)"
    found = hw.sql(f"SELECT t.id, {exists} AS high, t.v IN (SELECT u.id FROM u WHERE u.v > t.id) AS low FROM t")[0]
    rows = {r["id"]: (r["high"], r["low"]) for r in found.rows.to_pylist()}
    assert rows == {i: (i + 1 > 6, i + 1 <= 10) for i in range(1, 11)}
    grouped = f"SELECT high, count(*) AS n FROM (SELECT {exists} AS high FROM t) GROUP BY high"
    assert {r["high"]: r["n"] for r in hw.sql(grouped)[0].rows.to_pylist()} == {True: 5, False: 5}


def test_a_view_is_kept_while_its_rows_are_the_same_and_made_again_when_they_change(
    hw: Any, database: Any, made: Counter[str]
) -> None:
    assert [total(hw, "t", "u") for _ in range(3)] == [110, 110, 110]
    assert made == {"t": 1, "u": 1}
    database.execute("UPDATE t SET v = v + 1")
    wait_for(lambda: total(hw, "t", "u") == 120, "the change is seen")
    hw.sql("FOLD TABLE t")
    assert total(hw, "t", "u") == 120
    assert made["u"] == 1 and made["t"] > 1


def test_a_name_that_is_no_table_any_more_is_not_found(hw: Any, database: Any) -> None:
    assert total(hw, "T") == 55
    hw.sql("DROP TABLE t")
    with pytest.raises(HeadwaterError) as e:
        total(hw, "t")
    assert e.value.code == "name.unknown"
    assert total(hw, "u") == 55
    database.execute("DELETE FROM t WHERE id > 1")
    hw.sql("CREATE TABLE t FROM CONNECTION pg")
    wait_for(lambda: all(t.state == "live" for t in hw.status().tables), "it is live again")
    assert total(hw, "t") == 1


@pytest.fixture(params=["false", "true"])
def cased(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session that is case-sensitive or not, as the user's own may be."""
    spark.conf.set("spark.sql.caseSensitive", request.param)
    yield spark
    spark.conf.unset("spark.sql.caseSensitive")


def test_no_view_outlives_its_table_whatever_its_name(cased: SparkSession) -> None:
    with Sessions(cased).use() as pooled:
        pooled.session.conf.set("spark.sql.caseSensitive", cased.conf.get("spark.sql.caseSensitive") or "")
        for name in ("t", "Orders", "a.b", "a b", "a`b", "GRÖSSE"):
            pooled.show(name, name, lambda: pooled.session.range(1))
        assert len(pooled.session.catalog.listTables()) == 6
        pooled.only({"t"})
        assert [t.name for t in pooled.session.catalog.listTables()] == ["t"]


def test_the_changes_of_a_changelog_are_not_kept(hw: Any, database: Any) -> None:
    query = "SELECT count(*) AS n FROM changelog('pg', table => 't')"

    def count() -> int:
        return int(hw.sql(query)[0].rows.to_pylist()[0]["n"])

    before = count()
    database.execute("UPDATE t SET v = 0 WHERE id = 1")
    wait_for(lambda: count() == before + 1, "the change is listed")


def test_many_changes_are_shown_from_files_that_go_with_the_query(
    hw: Any, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "FEW_CHANGES", 3)
    database.execute("UPDATE t SET v = v")
    query = (
        "SELECT count(*) AS n, count(DISTINCT index) AS indexes, max(index) - min(index) AS width FROM changelog('pg')"
    )
    wait_for(lambda: hw.sql(query)[0].rows.to_pylist() == [{"n": 10, "indexes": 10, "width": 9}], "all are listed")
    assert not list((hw.home / "tmp" / "tail").glob("rows-*"))


def test_a_file_that_went_missing_is_reported_though_the_view_is_kept(hw: Any) -> None:
    assert total(hw, "t") == 55
    for file in (hw.home / "warehouse").glob("*/*.parquet"):
        file.unlink()
    with pytest.raises(DataError) as e:
        total(hw, "t")
    assert e.value.code == "data.base_damaged"
