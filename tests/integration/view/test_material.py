"""The material for tests of views is sound: each query runs, has one answer, and sees the changes made for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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
from support.views.public import CASES

pytestmark = pytest.mark.soak  # hundreds of queries

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


@dataclass(frozen=True)
class States:
    """Two sessions with the same tables as temporary views: at the beginning, and after the last transaction."""

    first: SparkSession
    last: SparkSession


def new_session(spark: SparkSession, model: Model, *, backwards: bool = False) -> SparkSession:
    own = spark.newSession()
    for name, value in SMALL.items():
        own.conf.set(name, value)
    load(own, model, backwards=backwards)
    return own


def written(spark: SparkSession, model: Model, writer: Writer) -> States:
    """Before and after transactions with every kind of change on every table."""
    first = new_session(spark, model)
    steps = [writer.step() for _ in range(STEPS)]
    made = {(change.table, change.op) for step in steps for change in step}
    assert made == {(name, op) for name in model.tables for op in Op}
    return States(first, new_session(spark, model))


@pytest.fixture(scope="module")
def tpch_states(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> States:
    model = Model.of(tpch.generated(tmp_path_factory.mktemp("tpch")))
    return written(spark, model, tpch.writer(model, SEED))


@pytest.fixture(scope="module")
def auction_states(spark: SparkSession) -> States:
    model = Model.of(auction.generated(SEED))
    return written(spark, model, auction.writer(model, SEED))


@pytest.fixture(scope="module")
def states_of(spark: SparkSession) -> Callable[[Case], States]:
    """Loads the tables of a case, once for all cases that have the same."""
    known: dict[tuple[int, int], States] = {}

    def find(case: Case) -> States:
        same = (id(case.tables), id(case.steps))
        if same not in known:
            model = Model.of(case.tables)
            first = new_session(spark, model)
            for step in case.steps:
                model.apply(step)
            known[same] = States(first, new_session(spark, model))
        return known[same]

    return find


def load(session: SparkSession, model: Model, *, backwards: bool = False) -> None:
    """Makes each table a temporary view; `backwards` gives its rows in the other order."""
    for name, rows in model.rows.items():
        schema = StructType.fromDDL(model.tables[name].spark_schema)
        ordered = list(rows.values())[:: -1 if backwards else 1]
        columns = zip(*ordered, strict=True) if ordered else [[] for _ in schema]
        kinds = to_arrow_schema(schema, timezone="UTC")
        arrow = [pa.array(list(values), kind.type) for values, kind in zip(columns, kinds, strict=True)]
        session.createDataFrame(pa.Table.from_arrays(arrow, schema.names), schema).createOrReplaceTempView(name)


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


def check(states: States, query: str, *, has_rows: bool) -> None:
    first, last = answer(states.first.sql(query)), answer(states.last.sql(query))
    assert first != last
    if has_rows:
        assert first
        assert "(None,)" not in first  # a sum over no rows


def test_the_material_is_complete() -> None:
    assert len(tpch_views.QUERIES) == 22
    assert len(auction_views.QUERIES) >= 20
    assert len({case.name for case in CASES}) == len(CASES) >= 100


@pytest.mark.parametrize("name", tpch_views.QUERIES)
def test_a_query_of_tpch_has_rows_and_sees_the_changes(tpch_states: States, name: str) -> None:
    check(tpch_states, tpch_views.QUERIES[name], has_rows=True)


@pytest.mark.parametrize("name", auction_views.QUERIES)
def test_a_query_of_the_auction_house_has_rows_and_sees_the_changes(auction_states: States, name: str) -> None:
    check(auction_states, auction_views.QUERIES[name], has_rows=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_public_case_runs_and_sees_its_changes(states_of: Callable[[Case], States], case: Case) -> None:
    check(states_of(case), case.query, has_rows=False)


@pytest.mark.soak
def test_no_answer_depends_on_the_order_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    queries = {id(case.tables): [other.query for other in CASES if other.tables is case.tables] for case in CASES}
    material = [(case.tables, queries.pop(id(case.tables))) for case in CASES if id(case.tables) in queries]
    material += [(auction.generated(SEED), list(auction_views.QUERIES.values()))]
    material += [(tpch.generated(tmp_path), list(tpch_views.QUERIES.values()))]
    for tables, over_them in material:
        model = Model.of(tables)
        forwards, backwards = new_session(spark, model), new_session(spark, model, backwards=True)
        for query in over_them:
            assert answer(forwards.sql(query)) == answer(backwards.sql(query)), query


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
