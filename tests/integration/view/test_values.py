"""Values that depend on more than the rows: the session's time zone, the width of a number, whether there are any."""

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


def test_a_sum_that_fits_is_followed_although_what_went_and_came_does_not(quick: SparkSession) -> None:
    tables = {"t": Table(schema_of("id BIGINT; k INT; v BIGINT", "id"))}
    tables["t"].put((1, 1, 5 * 10**18), (2, 1, 4 * 10**18), (3, 2, 1))
    view = View(quick, "SELECT k, sum(v) AS s, avg(v) AS a FROM t GROUP BY k", tables)
    settle(tables)
    tables["t"].put((1, 1, -5 * 10**18))
    assert view.follow() == "groups"
    view.check()


def test_a_value_of_groups_that_are_excluded_may_be_one_that_cannot_be_computed(quick: SparkSession) -> None:
    tables = {"t": Table(schema_of("id BIGINT; k INT; v INT", "id"))}
    tables["t"].put((1, 1, 7), (2, 1, -7), (3, 2, 5))
    view = View(quick, "SELECT k, 100 / s AS share FROM (SELECT k, sum(v) AS s FROM t GROUP BY k) WHERE s <> 0", tables)
    view.check()
    for v in (8, 7):  # the group appears, and is hidden again
        settle(tables)
        tables["t"].put((1, 1, v))
        assert view.follow() == "groups"
        view.check()


def test_an_aggregate_over_everything_keeps_its_row_when_the_last_row_below_goes(quick: SparkSession) -> None:
    tables = {"t": Table(schema_of("id BIGINT; v INT", "id"))}
    tables["t"].put((1, 7), (2, None))
    view = View(quick, "SELECT count(*) AS n, sum(v) AS s, avg(v) AS a FROM t WHERE id < 9", tables)
    for gone in (1, 2):
        settle(tables)
        tables["t"].drop(gone)
        assert view.follow() == "groups"
        view.check()
    settle(tables)
    tables["t"].put((9, 1), (3, 4))
    assert view.follow() == "groups"
    view.check()
