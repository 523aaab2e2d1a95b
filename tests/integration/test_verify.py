"""The comparison of a lake with its upstream, without the engine: a DataFrame stands for the lake."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.check.verify import Compared, Target, Unverified, verify
from headwater.decode.values import arrow_schema, lake_type
from headwater.errors import HeadwaterError
from headwater.model import Bound, Column, CoveredSpan, Layout, RelationInfo, Span, TableOrigin, TableState
from headwater.source.postgres.catalog.catalog import describe_table
from headwater.source.postgres.client.session import Endpoint
from headwater.source.postgres.reach import PostgresReach

ROWS = [
    (1, "1.50", "ä😀", b"\x00\xff", "2026-01-02 03:04:05.678901+00", ["a", None], float("nan")),
    (2, None, None, None, None, None, None),
    (3, "-0.01", "", b"", "1970-01-01 00:00:00+00", [], -0.0),
]


def relation_of(database: Any) -> RelationInfo:
    with database.connect() as session:
        table = describe_table(session, "public", "t")
    columns = tuple(Column(c.name, lake_type(c.type), c.type) for c in table.columns)
    return RelationInfo(
        *(1, "t", TableOrigin(1, "public", "t", table.oid), columns, table.key, {}, TableState.LIVE, None, "base", 0)
    )


def endpoint_of(database: Any) -> Endpoint:
    server = database.server
    return Endpoint(server.host, server.port, server.user, database.name, server.password)


@pytest.fixture
def relation(database: Any) -> RelationInfo:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, price numeric(10,2), word text, raw bytea, at timestamptz, tags text[], "
        "d double precision)"
    )
    with database.connect() as session, session.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s, %s)", ROWS)
    return relation_of(database)


def upstream_rows(database: Any, relation: RelationInfo) -> pa.Table:
    """The upstream's rows through psycopg's own eyes, as lake values."""
    names = arrow_schema(relation.columns).names
    with database.connect() as session:
        found = session.execute("SELECT * FROM t ORDER BY id").fetchall()
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in found], schema=arrow_schema(relation.columns)
    )


WHOLE = Layout(1, 0, (CoveredSpan(Span(None, None), 0, 0),), True)


def outcome(database: Any, relation: RelationInfo, lake: DataFrame, layout: Layout = WHOLE) -> Compared:
    (found,) = verify(
        [Target(relation, layout, lambda _: nullcontext(lake))],
        PostgresReach(endpoint_of(database)),
        lambda position: 7,
    )
    assert isinstance(found, Compared) and found.index == 7
    return found


def test_values_of_every_kind_are_equal_when_they_are(
    database: Any, relation: RelationInfo, spark: SparkSession
) -> None:
    lake = spark.createDataFrame(upstream_rows(database, relation)).repartition(2)
    found = outcome(database, relation, lake)
    assert found.equal, str(found.comparison)
    assert (found.comparison.upstream_rows, found.comparison.lake_rows) == (3, 3)


def test_missing_surplus_and_changed_rows_are_named(database: Any, relation: RelationInfo, spark: SparkSession) -> None:
    rows = upstream_rows(database, relation)
    lake = spark.createDataFrame(rows)
    database.execute("DELETE FROM t WHERE id = 1; INSERT INTO t (id) VALUES (9); UPDATE t SET price = 0 WHERE id = 3")
    found = outcome(database, relation, lake).comparison
    assert (found.surplus, found.missing, found.different) == ((("1",),), (("9",),), (("3",),))


def test_a_difference_stays_one_when_the_table_is_truncated_before_its_keys_are_listed(
    database: Any, relation: RelationInfo, spark: SparkSession
) -> None:
    """Taking another cut instead would forget the difference."""
    rows = spark.createDataFrame(upstream_rows(database, relation).slice(1))

    def lake(index: int) -> nullcontext[DataFrame]:
        database.execute("TRUNCATE t")
        return nullcontext(rows)

    (found,) = verify([Target(relation, WHOLE, lake)], PostgresReach(endpoint_of(database)), lambda position: 7)
    assert isinstance(found, Compared) and not found.equal
    assert (found.comparison.upstream_rows, found.comparison.lake_rows, found.comparison.missing) == (3, 2, ())


def test_columns_may_have_names_that_spark_takes_for_syntax(database: Any, spark: SparkSession) -> None:
    database.execute('CREATE TABLE t ("i`d.x" int PRIMARY KEY, "dot.ted" text, "q""q" bigint)')
    database.execute("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    relation = relation_of(database)
    lake = spark.createDataFrame([(1, "a", 1), (2, "b", 2)], [c.name for c in relation.columns])
    assert outcome(database, relation, lake).equal
    database.execute('UPDATE t SET "dot.ted" = \'c\' WHERE "i`d.x" = 2')
    assert outcome(database, relation, lake).comparison.different == (("2",),)


def test_only_covered_spans_are_compared(database: Any, relation: RelationInfo, spark: SparkSession) -> None:
    rows = upstream_rows(database, relation)
    layout = Layout(1, 0, (CoveredSpan(Span(Bound(("1",)), Bound(("2",))), 0, 0),), False)
    found = outcome(database, relation, spark.createDataFrame(rows.slice(1, 1)), layout)
    assert found.equal
    assert not found.complete
    assert found.comparison.upstream_rows == 1


def test_tables_that_cannot_be_compared_are_reported_and_the_others_are_compared(
    database: Any, relation: RelationInfo, spark: SparkSession
) -> None:
    rows = spark.createDataFrame(upstream_rows(database, relation))

    def damaged(index: int) -> nullcontext[DataFrame]:
        raise FileNotFoundError("a file of the base")

    gone = replace(relation, name="gone", origin=TableOrigin(1, "public", "gone", relation.origin.upstream_id + 1))
    targets = [
        Target(replace(relation, name="damaged"), WHOLE, damaged),
        Target(gone, WHOLE, lambda _: nullcontext(rows)),
        Target(relation, WHOLE, lambda _: nullcontext(rows)),
    ]
    first, second, third = verify(targets, PostgresReach(endpoint_of(database)), lambda position: 7)
    assert isinstance(first, Unverified) and isinstance(first.error, FileNotFoundError) and first.table == "damaged"
    assert isinstance(second, Unverified) and isinstance(second.error, HeadwaterError) and second.table == "gone"
    assert isinstance(third, Compared) and third.equal
