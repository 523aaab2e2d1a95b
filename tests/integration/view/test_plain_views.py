"""Plain views: their query stands wherever their name does, at the epoch of the statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.errors import HeadwaterError, SqlError
from support.lake import definitions
from support.wait import wait_for


@pytest.fixture
def hw(database: Any, spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    for table in ("t", "u"):
        database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v int)")
        database.execute(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, 10) i")
    with headwater.open(tmp_path / "home", spark=spark) as home, home.running():
        home.sql(definitions(database, ["t", "u"]))
        wait_for(lambda: all(t.state == "live" for t in home.status().tables), "both tables are live")
        yield home


def rows(hw: Any, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hw.sql(text)[-1].rows.to_pylist()
    return found


def refused(hw: Any, text: str) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        hw.sql(text)
    return caught.value


def test_a_plain_view_is_expanded_where_it_is_named_and_inside_others(hw: Any, database: Any) -> None:
    hw.sql(
        "CREATE VIEW big AS // some\n SELECT * FROM t WHERE v > 5; CREATE VIEW Both AS SELECT b.id FROM BIG b JOIN u"
    )
    assert rows(hw, "SELECT count(*) AS n FROM big") == [{"n": 5}]
    assert rows(hw, "WITH t AS (SELECT 1) SELECT (SELECT count(*) FROM t) AS a, count(*) AS n FROM both") == [
        {"a": 1, "n": 50}
    ]
    database.execute("INSERT INTO t VALUES (11, 11)")
    wait_for(lambda: rows(hw, "SELECT count(*) AS n FROM both") == [{"n": 60}], "the change is seen through both")
    assert rows(hw, "DESCRIBE Both") == [{"column": "id", "type": "INT", "key": None, "upstream_type": None}]
    shown = rows(hw, "SHOW VIEWS")
    assert [(v["name"], v["inputs"]) for v in shown] == [("big", "t"), ("Both", "big, u")]
    assert rows(hw, "SHOW CREATE VIEW BOTH")[0]["statement"].startswith("CREATE VIEW Both AS\nSELECT b.id")
    assert "t" in rows(hw, "EXPLAIN SELECT * FROM both")[0]["plan"]
    assert refused(hw, "DROP TABLE t").message == "table t is used by views Both and big"
    assert hw.sql("DROP VIEW big CASCADE")[0].message == "view big dropped, with view Both"
    assert refused(hw, "SELECT * FROM big").code == "name.unknown"


def test_a_changelog_can_be_named_in_a_plain_view(hw: Any, database: Any) -> None:
    hw.sql("CREATE VIEW logged AS SELECT op FROM changelog('pg', table => 'u')")
    database.execute("DELETE FROM u WHERE id = 1")
    query = "SELECT count(*) AS n FROM logged l WHERE l.op IN (SELECT op FROM changelog('pg') WHERE op = 'd')"
    wait_for(lambda: rows(hw, query) == [{"n": 1}], "the change is in the log")
    hw.sql("DROP VIEW logged")


def test_errors_name_the_view_and_the_place(hw: Any) -> None:
    error = refused(hw, "CREATE VIEW w AS\nSELECT id, vv FROM t")
    assert isinstance(error, SqlError) and (error.code, error.line, error.column) == ("sql.query", 2, 12)
    assert refused(hw, "CREATE VIEW w AS SELECT * FROM tt").hint == "Did you mean t?"
    assert refused(hw, "CREATE VIEW w AS SELECT * FROM w").code == "view.input"
    hw.sql("CREATE VIEW w AS SELECT id AS a FROM t")
    error = refused(hw, "SELECT b FROM w")
    assert isinstance(error, SqlError) and (error.code, error.line, error.column) == ("sql.query", 1, 8)
    assert refused(hw, "SELECT * FROM w2").hint == "Did you mean w?"
    hw.sql("DROP VIEW w")
