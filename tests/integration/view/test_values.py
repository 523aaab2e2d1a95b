"""Values that depend on more than the rows: the session's time zone, the width of a decimal."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from support.view_moves import Table, View, schema_of, settle

pytestmark = pytest.mark.spark

TIME_ZONE = "spark.sql.session.timeZone"


@pytest.mark.parametrize("condition", ["id > 0", "current_date() IS NOT NULL"])  # by its plan, and as it is written
def test_a_view_is_computed_in_utc_wherever_the_users_spark_is(
    quick: SparkSession, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    ordinary = quick.newSession

    def elsewhere() -> SparkSession:
        session = ordinary()
        session.conf.set(TIME_ZONE, "America/New_York")
        return session

    monkeypatch.setattr(quick, "newSession", elsewhere)
    table = Table(schema_of("id BIGINT; ts TIMESTAMP", "id"))
    table.put((1, datetime(2024, 3, 10, 3, tzinfo=UTC)), (2, datetime(2024, 3, 10, 23, tzinfo=UTC)))
    View(quick, f"SELECT id, date_trunc('day', ts) AS day FROM t WHERE {condition}", {"t": table}).check()


def test_an_average_of_decimals_as_wide_as_a_sum_of_integers_is_followed(quick: SparkSession) -> None:
    tables = {"t": Table(schema_of("id BIGINT; d DECIMAL(30,0)", "id"))}
    tables["t"].put((1, Decimal(10**28)), (2, Decimal(3)))
    view = View(quick, "SELECT id % 2 AS g, avg(d) AS a FROM t GROUP BY 1", tables)
    view.check()
    settle(tables)
    tables["t"].put((3, Decimal(10**29 + 1)))
    assert view.follow() == "groups"
    view.check()
