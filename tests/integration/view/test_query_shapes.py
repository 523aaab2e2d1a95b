"""Every query shape follows changes of both its tables and keeps its plan: no Spark version may change it silently."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.view import read_plan, shape
from headwater.view.rules import Rule
from support.view_cases import QUERIES, change, two_tables
from support.view_moves import View, settle

pytestmark = pytest.mark.spark

PLANS = Path(__file__).parent / "plans.txt"


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_equals_its_query_after_each_change(quick: SparkSession, name: str) -> None:
    source = random.Random(name)
    tables = two_tables(source)
    view = View(quick, QUERIES[name], tables)
    for changed in (("a", "b"), (source.choice("ab"),)):
        change(source, tables, *changed)
        view.follow()
        view.check()
        settle(tables)


def test_an_aggregate_that_depends_on_the_order_below_it_is_run_as_it_is_written(quick: SparkSession) -> None:
    inputs = {name: table.schema for name, table in two_tables(random.Random(0)).items()}
    sorted_first = "select k, collect_list(id) l from (select * from a order by v, id) group by k"
    assert read_plan(quick, sorted_first, inputs).reason == "an aggregate whose value depends on the ORDER BY below it"
    assert read_plan(quick, sorted_first.replace("collect_list", "max"), inputs).reason == ""


def outline(rule: Rule, depth: int = 0) -> str:
    """Operators, rules and keys, an operator per line."""
    note = f" ({rule.note})" if rule.note else ""
    line = f"{'  ' * depth}{rule.operator}: {rule.word} [{', '.join(rule.key)}]{note}\n"
    return line + "".join(outline(below, depth + 1) for below in rule.below)


def plans(session: SparkSession) -> str:
    """The plans of all query shapes. Write it to `plans.txt` after a change that you understand."""
    inputs = {name: table.schema for name, table in two_tables(random.Random(0)).items()}
    found = []
    for name, query in QUERIES.items():
        view = shape(read_plan(session, query, inputs))
        stored = ", ".join(c.name for c in view.columns)
        found.append(f"# {name}\n{outline(view.rules)}stored: {stored}; key: {', '.join(view.key)}\n")
    return "\n".join(found)


def test_the_plan_of_every_query_shape_is_the_one_that_the_rules_were_written_for(quick: SparkSession) -> None:
    assert plans(quick) == PLANS.read_text(encoding="utf-8")
