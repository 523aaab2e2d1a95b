"""Spark's Aggregate as three operators: group columns, aggregate calls, and what is made of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headwater.view import build
from headwater.view.plan.expressions import Names, Unsupported, kind_of, number, sequence
from headwater.view.tree import Call, CallKind, Expr, Node

if TYPE_CHECKING:
    from headwater.view.plan.operators import Reader

ADJUSTABLE = re.compile(r"(TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(.*)$")
# Functions whose value does not depend on the order of rows, whatever the type of their argument.
SESSION_WINDOW = "spark.sessionWindow"  # marks a group column whose groups Spark merges while it runs
ORDERLESS = ("Count", "Min", "Max", "BitAndAgg", "BitOrAgg", "BitXorAgg", "HyperLogLogPlusPlus")


def aggregate(reader: Reader, plan: Any, child: Node, names: Names) -> tuple[Node, dict[int, str], list[str]]:
    """The operators, the columns of the plan's attributes, and the output."""
    convert = reader.converter
    made: list[tuple[str, Expr]] = []
    groups: list[str] = []
    expressions: list[tuple[Any, str]] = []  # grouping expressions that are no columns
    for source in sequence(plan.groupingExpressions()):
        if kind_of(source) == "AttributeReference" and source.metadata().contains(SESSION_WINDOW):
            raise Unsupported("a session window")
        value = convert.expression(source, names)
        name = value.plain
        if name is None:
            name = convert.fresh()
            made.append((name, value))
            expressions.append((source, name))
        groups.append(name)
    grouped = build.project(reader.with_queries(child), made)
    calls: list[Call] = []

    def known(source: Any) -> str | None:
        if kind_of(source) == "AggregateExpression":
            calls.append(_call(reader, source, names))
            return calls[-1].name
        return next((name for group, name in expressions if source.semanticEquals(group)), None)

    results: list[tuple[str, Expr]] = []
    output: list[str] = []
    found: dict[int, str] = {}
    for source, attribute in zip(sequence(plan.aggregateExpressions()), sequence(plan.output()), strict=True):
        value = convert.expression(source.child() if kind_of(source) == "Alias" else source, names, known)
        name = value.plain
        if name is None:
            name = convert.fresh()
            results.append((name, value))
        found[number(attribute)] = name
        output.append(name)
    if convert.queries:
        raise Unsupported("a scalar sub-query among aggregates")
    node = build.project(build.aggregate(grouped, groups, calls), results)
    return node, found, output


def _call(reader: Reader, source: Any, names: Names) -> Call:
    convert = reader.converter
    function = source.aggregateFunction()
    condition = convert.expression(source.filter().get(), names) if source.filter().isDefined() else None
    value = convert.expression(source, names)
    below = sequence(function.children())
    kind: CallKind = "other"
    argument: Expr | None = None
    finish = None
    name = convert.fresh()
    which = kind_of(function)
    lenient = str(function.prettyName()).startswith("try_")  # NULL where the sum of our counters overflows
    if not source.isDistinct() and below and not lenient:
        argument = convert.expression(below[0], names)
        if which == "Count" and len(below) == 1:
            kind = "count"
            if not argument.nullable:
                argument = None
        elif which == "Sum" and ADJUSTABLE.match(argument.type):
            kind = "sum"
        elif which == "Average" and ADJUSTABLE.match(argument.type):
            kind, finish = "avg", _finish(reader, function, name)
        elif which in ("Min", "Max") and argument.type == "BOOLEAN":
            kind = "all" if which == "Min" else "any"
    return Call(name, kind, value, argument, condition, finish, exact(function))


def _finish(reader: Reader, average: Any, name: str) -> Any:
    """Spark's own division of sum by count, over the columns `<name>_s` and `<name>_c`."""
    total, count = (number(a) for a in sequence(average.aggBufferAttributes()))
    convert = reader.converter
    return convert.column(convert.renamed(average.evaluateExpression(), {total: f"{name}_s", count: f"{name}_c"}))


def exact(function: Any) -> bool:
    """Whether an aggregate function gives the same value in whatever order its rows come."""
    which = kind_of(function)
    if "COLLATE" in str(function.dataType().sql()):
        return False  # which of several equal strings is the least depends on the order of rows
    if which in ORDERLESS:
        return True
    below = sequence(function.children())
    return which in ("Sum", "Average") and bool(ADJUSTABLE.match(str(below[0].dataType().sql())))
