"""The slices of a fill make up the view: none is lost, none overlaps another."""

from __future__ import annotations

import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.engine.view.fill import slice_rows
from headwater.meta.views import Fill
from headwater.model import Column, RelationInfo, TableState, UpstreamType, ViewOrigin
from headwater.view import combined, partial, read_plan, recompute, shape, slice_of, slices
from support.view_cases import QUERIES, two_tables
from support.view_moves import unlike

pytestmark = pytest.mark.spark


def rows_of(frame: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row) for row in frame.collect()]


@pytest.mark.parametrize("name", ["inner join", "left join", "having", "aggregate over everything", "min and max"])
def test_slices_add_up_to_the_view(quick: SparkSession, name: str) -> None:
    tables = two_tables(random.Random(name))
    inputs = {n: t.frame(quick, t.rows) for n, t in tables.items()}
    tree = read_plan(quick, QUERIES[name], {n: t.schema for n, t in tables.items()})
    how = slices(tree)
    if how.kind == "hash":
        whole = recompute(tree, inputs)
        parts = [slice_of(shape(tree), whole, number, 3) for number in range(3)]
    else:
        cut = how.inputs[0]
        spans = ("id < 2", "id >= 2 and id < 6", "id >= 6")
        slice_ = partial if how.kind == "merge" else recompute
        parts = [slice_(tree, inputs | {cut: inputs[cut].where(span)}) for span in spans]
    together = parts[0].unionAll(parts[1]).unionAll(parts[2])
    if how.kind == "merge":
        together = combined(tree, inputs, together)
    assert not unlike(rows_of(together), rows_of(recompute(tree, inputs)))


@pytest.mark.parametrize("kind", ["BIGINT", "DATE"])
@pytest.mark.parametrize("cuts", [(2, 5), ()], ids=["ranges", "hash"])
def test_each_row_of_an_input_is_in_one_slice_also_without_a_key(
    quick: SparkSession, kind: str, cuts: tuple[int, ...]
) -> None:
    """The key of a view may be NULL."""
    column = Column("k", kind, UpstreamType("", 0))
    origin = ViewOrigin("SELECT 1", (), 1)
    relation = RelationInfo(7, "v", origin, (column,), ("k",), {}, TableState.LIVE, None, "warehouse/7", 0)
    numbers = quick.sql("SELECT CAST(NULL AS INT) AS n UNION ALL SELECT CAST(id AS INT) FROM range(8)")
    value = "date_from_unix_date(n)" if kind == "DATE" else "CAST(n AS BIGINT)"
    rows = numbers.selectExpr(f"{value} AS k")
    fill = Fill(1, 3, relation.id, cuts)
    parts = [rows_of(slice_rows(rows, relation, fill, number)) for number in range(3)]
    assert Counter(row for part in parts for row in part) == Counter(rows_of(rows))


def test_slices_that_are_built_side_by_side_read_their_own_rows(quick: SparkSession) -> None:
    """The rows of a constant belong to one session, whoever builds on them."""
    tables = two_tables(random.Random(0))
    tree = read_plan(quick, QUERIES["constant first"], {n: t.schema for n, t in tables.items()})
    whole = tables["a"].frame(quick, tables["a"].rows)

    def read_by(number: int) -> set[str]:
        plan = partial(tree, {"a": whole.where(f"id <> {number}")})._jdf.queryExecution().analyzed().toString()
        return set(re.findall(r"9000\d\d", plan))

    numbers = list(range(900000, 900040))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(read_by, numbers)) == [{str(number)} for number in numbers]
