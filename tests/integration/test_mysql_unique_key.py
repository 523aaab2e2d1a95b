"""Tables of MySQL and MariaDB whose declared key is a unique index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.errors import HeadwaterError
from support import upstreams
from support.lake import assert_equal

pytestmark = [pytest.mark.mariadb, pytest.mark.mysql]


def rows(hw: Any, query: str) -> list[dict[str, Any]]:
    return list(hw.sql(query)[0].rows.to_pylist())


def test_a_declared_unique_key_is_followed_and_a_table_that_cannot_begin_holds_up_no_other(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    upstream = upstreams.fresh(request, upstreams.choose(upstreams.FAMILY)[0])
    upstream.execute(
        "CREATE TABLE keyed (a int NOT NULL, b varchar(20) NOT NULL, v int, UNIQUE pair (b, a), UNIQUE (v))"
    )
    upstream.fill("keyed", 500, "i % 7, concat('k', i), i")
    upstream.execute("CREATE TABLE lost (id int NOT NULL, v int, UNIQUE (id))")
    upstream.fill("lost", 10, "i, i")
    declare = "CREATE TABLE {0} ({1}, PRIMARY KEY ({2})) FROM CONNECTION my WITH (backfill.rows_per_span = 90);\n"
    text = upstream.definitions(()) + declare.format("lost", "id int, v int", "id")
    text += declare.format("keyed", "a int, b string, v int", "b, a")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.sql(text)
        upstream.execute("DROP INDEX id ON lost")
        with pytest.raises(HeadwaterError) as e:
            hw.run(once=True)
        assert e.value.code == "table.no_key"
        assert {t.name: (t.state, t.scanned_rows) for t in hw.status().tables} == {
            "lost": ("failed", 0),
            "keyed": ("live", 500),
        }
        upstream.execute("UPDATE keyed SET a = a + 10, v = v + 1000 WHERE v <= 100")
        upstream.execute("DELETE FROM keyed WHERE v BETWEEN 200 AND 250")
        upstream.execute("INSERT INTO keyed VALUES (1, 'new', 7777)")
        hw.sql("DROP TABLE lost")
        hw.run(once=True)
        assert rows(hw, "SELECT count(*) AS n, sum(v) AS s FROM keyed") == [
            {"n": int(n), "s": int(s)} for n, s in upstream.execute("SELECT count(*), sum(v) FROM keyed")
        ]
        with hw.running():  # a comparison needs the captures
            assert_equal(hw.verify("keyed"))
