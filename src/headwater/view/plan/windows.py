"""Spark's Window as an operator: where the order of rows leaves ties that matter, the rows' key breaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.view import build
from headwater.view.plan.aggregates import exact
from headwater.view.plan.expressions import PEERS, Names, kind_of, number, sequence
from headwater.view.tree import Expr, Node, Order

if TYPE_CHECKING:
    from headwater.view.plan.operators import Reader


def windowed(
    reader: Reader, plan: Any, child: Node, names: Names, sorted_by: tuple[Order, ...]
) -> tuple[Node, dict[int, str], list[str]]:
    """The operator, the columns of the plan's new attributes, and these in order.

    Rows that a window leaves in any order stay in that of the query, as in a stable sort, then in that of the key.
    """
    ties = (*sorted_by, *(Order(name, True, True) for name in child.key))
    convert = reader.converter
    before: list[tuple[str, Expr]] = []
    partition = []
    for source in sequence(plan.partitionSpec()):
        value = convert.expression(source, names)
        name = value.plain
        if name is None:
            name = convert.fresh()
            before.append((name, value))
        partition.append(name)
    made: list[tuple[str, Expr]] = []
    found: dict[int, str] = {}
    inexact: set[str] = set()
    for source in sequence(plan.windowExpressions()):
        value, certain = _function(reader, source.child(), names, ties)
        name = convert.fresh()
        inexact |= set() if certain else {name}
        made.append((name, value))
        found[number(source)] = name
    prepared = build.project(reader.with_queries(child), before)
    return build.windowed(prepared, partition, made, inexact), found, [name for name, _ in made]


def _function(reader: Reader, source: Any, names: Names, ties: tuple[Order, ...]) -> tuple[Expr, bool]:
    """A window function, and whether it gives the same value whenever it is evaluated over the same rows."""
    convert = reader.converter
    spec = source.windowSpec()
    function = source.windowFunction()
    inner = function.aggregateFunction() if kind_of(function) == "AggregateExpression" else function
    which = kind_of(inner)
    order = sequence(spec.orderSpec())
    by_rows = kind_of(spec.frameSpecification().frameType()) == "RowFrame"
    certain = which in PEERS or (inner is not function and exact(inner))
    value = convert.expression(source, names)
    if which in PEERS or not by_rows or (certain and not order):
        return value, certain
    if which in ("Lag", "Lead", "NthValue", "RowNumber", "NTile") or order or not certain:
        terms = [convert.renamed(term, names) for term in order] + [convert.term(tie) for tie in ties]
        parts = [convert.renamed(e, names) for e in sequence(spec.partitionSpec())]
        whole = convert.window(convert.renamed(function, names), parts, terms, spec.frameSpecification())
        uses = value.uses | {tie.name for tie in ties}
        return Expr(value.text, value.type, value.nullable, uses, convert.column(whole)), True
    return value, certain
