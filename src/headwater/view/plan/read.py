"""From a query to its tree, over opaque and empty inputs, so that the plan does not depend on data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.relation.session import reading
from headwater.view.plan.expressions import Converter, Unsupported, kind_of, sequence
from headwater.view.plan.operators import Reader
from headwater.view.shape import Shape, shape
from headwater.view.tree import InputSchema, Tree, Visible

# Rules that split one operator into several, or push a LIMIT into its inputs, where ours would see less. Spark applies
# them again when it runs what we built.
EXCLUDED: tuple[str, ...] = (
    "DecimalAggregates",
    "InferWindowGroupLimit",
    "LimitPushDown",
    "LimitPushDownThroughWindow",
)
EXCLUDED += ("MergeSubplans", "MergeScalarSubqueries", "OptimizeOneRowPlan", "EliminateLimits")
SCAN = "LogicalRDD"
UNSTORED_TYPES = re.compile(r"COLLATE|INTERVAL|VARIANT|VOID|TIME\(|GEOMETRY|GEOGRAPHY")  # in Delta


def read_plan(session: SparkSession, query: str, inputs: Mapping[str, InputSchema]) -> Tree:
    """The query's optimised plan over opaque, empty inputs as our own tree.

    Errors of the query itself are PySpark's, as `session.sql` raises them.
    """
    own = reading(session, without=EXCLUDED)
    names = {}
    for name, schema in inputs.items():
        empty = own.createDataFrame([], _ddl(schema))
        empty.createOrReplaceTempView(f"`{name}`")
        names[_execution(empty).analyzed().rdd().id()] = name
    execution = _execution(own.sql(query))
    analysed = execution.analyzed()
    plans = [analysed, *sequence(analysed.subqueriesAll())]
    scans = (leaf for plan in plans for leaf in sequence(plan.collectLeaves()) if kind_of(leaf) == SCAN)
    read = {names[leaf.rdd().id()] for leaf in scans}
    used = {name: schema for name, schema in inputs.items() if name in read}
    output = [(a.name(), a.dataType().sql(), a.nullable()) for a in sequence(analysed.output())]
    reason = _unrepeatable(own, plans)
    if not reason:
        try:
            reader = Reader(Converter(own), names, inputs)
            found = reader.root(execution.optimizedPlan())
            visible = tuple(Visible(*o, source) for o, source in zip(output, found.output, strict=True))
            made = Tree(query, visible, used, found.node, "", reader.order, reader.limit, reader.offset)
            _check_storable(shape(made))
            return made
        except Unsupported as e:
            reason = str(e)
    visible = tuple(Visible(name, kind, True, "") for name, kind, _ in output)
    return Tree(query, visible, used, None, reason)


def _check_storable(found: Shape) -> None:
    """Raises unless the hidden columns can be stored and keys can be compared. (Visible ones are checked by CREATE.)"""
    hidden = found.columns[found.visible :]
    if unstorable := [c.type for c in hidden if UNSTORED_TYPES.search(c.type)]:
        raise Unsupported(f"a key or an order of type {unstorable[0]}, which Delta does not store")
    if any("MAP<" in c.type for c in found.columns if c.name in found.key):
        raise Unsupported("a map as a key")


def run_query(query: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """The query as it is written, over these inputs, in a session of its own."""
    session = next(iter(inputs.values())).sparkSession if inputs else SparkSession.active()
    own = reading(session)
    jvm: Any = own._jvm
    for name, frame in inputs.items():
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(own._jsparkSession, _execution(frame).analyzed())
        DataFrame(rows, own).createOrReplaceTempView(f"`{name}`")
    return own.sql(query)


def _execution(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution()


def _ddl(schema: InputSchema) -> str:
    columns = ((c.name.replace("`", "``"), c.type, "" if c.nullable else " NOT NULL") for c in schema.columns)
    return ", ".join(f"`{name}` {kind}{null}" for name, kind, null in columns)


def _unrepeatable(session: SparkSession, plans: list[Any]) -> str:
    """Why the query can give something else over the same rows; "" if it cannot.

    Asked of analysed plans: optimising replaces `now()` by the time of that moment.
    """
    jvm: Any = session._jvm
    current = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    if any(plan.containsPattern(current) for plan in plans):
        return "the query depends on the current time, user or database"
    nodes = list(plans)
    while nodes:
        node = nodes.pop()
        nodes += sequence(node.children())
        for expression in sequence(node.expressions()):
            if not expression.deterministic() and (name := _random(expression)):
                return f"{name}() can give another value each time"
    return ""


def _random(expression: Any) -> str:
    """The function that makes an expression unrepeatable; "" if it is only the order of an aggregate's rows."""
    if expression.deterministic():
        return ""
    below = sequence(expression.children())
    found = next(filter(None, map(_random, below)), "")
    if found or any(not e.deterministic() for e in below):
        return found
    name = expression.getClass().getName()
    return "" if ".aggregate." in name else str(expression.prettyName())
