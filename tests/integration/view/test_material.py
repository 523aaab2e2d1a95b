"""The material for tests of views is sound: each query runs, has one answer, and sees the changes made for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from support.views import auction, auction_views, tpch, tpch_views
from support.views.changes import Writer
from support.views.material import Case, Change, Model, Op, Table, statement
from support.views.public import SCENES

SEED = 20
STEPS = 12
# Tables of a few rows: compiling a plan, or splitting it into tasks, takes longer than running it.
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with temporary views of its own."""
    own = spark.newSession()
    for name, value in SMALL.items():
        own.conf.set(name, value)
    return own


def load(session: SparkSession, model: Model, *, backwards: bool = False) -> None:
    """Makes each table a temporary view; `backwards` gives its rows in the other order."""
    for name, rows in model.rows.items():
        schema = StructType.fromDDL(model.tables[name].spark_schema)
        ordered = list(rows.values())[:: -1 if backwards else 1]
        columns = zip(*ordered, strict=True) if ordered else [[] for _ in schema]
        kinds = to_arrow_schema(schema)
        arrow = [pa.array(list(values), kind.type) for values, kind in zip(columns, kinds, strict=True)]
        session.createDataFrame(pa.Table.from_arrays(arrow, schema.names), schema).createOrReplaceTempView(name)


def answers(session: SparkSession, queries: Mapping[str, str]) -> dict[str, Counter[str]]:
    return {name: answer(session.sql(query)) for name, query in queries.items()}


def answer(frame: DataFrame) -> Counter[str]:
    """The rows with their counts; doubles to nine digits, since the order of a sum is open."""
    names = frame.columns
    assert len(set(names)) == len(names), f"a column's name is there twice: {names}"
    assert all(re.fullmatch(r"[a-z]\w*", name) for name in names), f"a column has no name of its own: {names}"
    return Counter(repr(rounded(tuple(row))) for row in frame.collect())


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    return tuple(rounded(v) for v in value) if isinstance(value, list | tuple) else value


def check(session: SparkSession, model: Model, queries: Mapping[str, str], writer: Writer) -> None:
    """Each query has rows, and others after transactions with every kind of change on every table."""
    load(session, model)
    first = answers(session, queries)
    assert [name for name, rows in first.items() if not rows] == []
    assert [name for name, rows in first.items() if "(None,)" in rows] == []  # a sum over no rows
    steps = [writer.step() for _ in range(STEPS)]
    made = {(change.table, change.op) for step in steps for change in step}
    assert made == {(name, op) for name in model.tables for op in Op}
    load(session, model)
    last = answers(session, queries)
    assert [name for name in queries if first[name] == last[name]] == []


def test_the_queries_of_tpch_have_rows_and_see_the_changes(session: SparkSession, tmp_path: Path) -> None:
    model = Model.of(tpch.generated(tmp_path))
    assert len(tpch_views.QUERIES) == 22
    check(session, model, tpch_views.QUERIES, tpch.writer(model, SEED))


def test_the_queries_of_the_auction_house_have_rows_and_see_the_changes(session: SparkSession) -> None:
    model = Model.of(auction.generated(SEED))
    assert len(auction_views.QUERIES) >= 20
    check(session, model, auction_views.QUERIES, auction.writer(model, SEED))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: next(iter(scene)).name)
def test_the_public_cases_run_and_see_their_changes(session: SparkSession, scene: tuple[Case, ...]) -> None:
    queries = {case.name: case.query for case in scene}
    model = Model.of(scene[0].tables)
    load(session, model)
    first = answers(session, queries)
    for step in scene[0].steps:
        model.apply(step)
    load(session, model)
    last = answers(session, queries)
    assert [name for name in queries if first[name] == last[name]] == []


@pytest.mark.soak
def test_no_answer_depends_on_the_order_of_rows(session: SparkSession, tmp_path: Path) -> None:
    material = [(tpch.generated(tmp_path), tpch_views.QUERIES), (auction.generated(SEED), auction_views.QUERIES)]
    for tables, queries in [*material, *((scene[0].tables, {c.name: c.query for c in scene}) for scene in SCENES)]:
        model = Model.of(tables)
        load(session, model)
        forwards = answers(session, queries)
        load(session, model, backwards=True)
        backwards = answers(session, queries)
        assert [name for name in queries if forwards[name] != backwards[name]] == []


def test_the_statements_of_a_transaction_give_postgres_the_rows_of_the_model(database: Any) -> None:
    model = Model.of(auction.generated(SEED))
    writer = auction.writer(model, SEED)
    with database.connect() as connection:
        for t in auction.TABLES:
            connection.execute(t.postgres_ddl)
            for row in model.rows[t.name].values():
                connection.execute(*statement(t, Change(Op.INSERT, t.name, t.key_of(row), row)))
        for _ in range(STEPS):
            for change in writer.step():
                connection.execute(*statement(model.tables[change.table], change))
        for t in auction.TABLES:
            assert rows_of(connection, t) == Counter(model.rows[t.name].values())


def rows_of(connection: Any, t: Table) -> Counter[Any]:
    return Counter(connection.execute(f"SELECT * FROM {t.name}").fetchall())
