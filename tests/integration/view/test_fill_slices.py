"""The slices of a fill make up the view: none is lost, none overlaps another."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.view import combined, read_plan, recompute, shape, slice_of, slices
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
        parts = [recompute(tree, inputs | {cut: inputs[cut].where(span)}) for span in spans]
    together = parts[0].unionAll(parts[1]).unionAll(parts[2])
    if how.kind == "merge":
        together = combined(tree, inputs, together)
    assert not unlike(rows_of(together), rows_of(recompute(tree, inputs)))
