"""Operators as DataFrames: a tree's rows at one version of its inputs, and row-wise steps over any rows.

Expressions of the query are Spark's own columns. What we add around them is text: a column of ours takes five calls to
the JVM, a list of texts one each, and a whole query in SQL a dozen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headwater.view import build, tree
from headwater.view.tree import Attribute, Expr, Node

# Two slices of a fill, or a refresh and a verification, may name their rows in the same session: that of a constant.
_naming = threading.Lock()

RowWise = tree.Project | tree.Filter | tree.Expand | tree.Generate | tree.Window


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def select(text: str, **rows: DataFrame) -> DataFrame:
    """A query in SQL over rows that it names; names must not be those of relations."""
    session = next(iter(rows.values())).sparkSession
    with _naming:
        for name, of in rows.items():
            of.createOrReplaceTempView(name)
        try:
            return session.sql(text)
        finally:
            for name in rows:
                session.catalog.dropTempView(name)


def both(conditions: Iterable[Column]) -> Column:
    """All of these conditions; TRUE if there is none."""
    found = list(conditions)
    return reduce(lambda a, b: a & b, found) if found else fn.lit(True)


def same(names: Sequence[str], others: Sequence[str]) -> Column:
    """That these columns are equal one by one, NULL to NULL."""
    return fn.expr(same_text(map(quoted, names), map(quoted, others)))


def same_text(names: Iterable[str], others: Iterable[str]) -> str:
    return " AND ".join(f"{one} <=> {two}" for one, two in zip(names, others, strict=True)) or "TRUE"


def ordered(order: Iterable[tree.Order]) -> list[Column]:
    """Terms of an ORDER BY."""
    terms = []
    for term in order:
        column = fn.col(quoted(term.name))
        if term.ascending:
            terms.append(column.asc_nulls_first() if term.nulls_first else column.asc_nulls_last())
        else:
            terms.append(column.desc_nulls_first() if term.nulls_first else column.desc_nulls_last())
    return terms


def condition_of(conditions: Iterable[Expr]) -> Column:
    return both(e.column for e in conditions)


class Frames:
    """The rows of operators at one version of the inputs."""

    def __init__(self, input_rows: Callable[[str], DataFrame]) -> None:
        self._input = input_rows
        self._made: dict[int, DataFrame] = {}

    def of(self, node: Node) -> DataFrame:
        """The rows of an operator, its columns under the tree's names."""
        found = self._made.get(id(node))
        if found is None:
            found = self._made[id(node)] = self._make(node)
        return found

    def put(self, node: Node, rows: DataFrame) -> None:
        """Takes these rows for an operator's, instead of its own."""
        self._made[id(node)] = rows

    def _make(self, node: Node) -> DataFrame:
        match node:
            case tree.Leaf():
                return leaf(node, self._input(node.input))
            case tree.Constant():
                rows: DataFrame = node.frame
                return rows
            case tree.Inner():
                return joined([(child, self.of(child)) for child in node.inputs], node.conditions)
            case tree.Join():
                return outer(node, self.of(node.left), self.of(node.right))
            case tree.Union():
                return union(node, [self.of(child) for child in node.children])
            case tree.Aggregate():
                return aggregated(node, self.of(node.child))
            case tree.Top():
                rows = self.of(node.child).orderBy(*ordered(node.order), *(fn.col(k).asc() for k in node.key))
                rows = rows.offset(node.offset) if node.offset else rows
                return rows if node.limit is None else rows.limit(node.limit)
            case tree.Scalar():
                return with_scalar(node, self.of(node.child), self.of(node.query))
            case _:
                return row_wise(node, self.of(node.child))


def leaf(node: tree.Leaf, rows: DataFrame, *more: str) -> DataFrame:
    """An input's rows under the tree's names, and further columns."""
    return rows.selectExpr(*(f"{quoted(column)} AS {name}" for name, column in node.sources), *more)


def row_wise(node: RowWise, rows: DataFrame) -> DataFrame:
    """One step over rows, which may have more columns than the operator knows (a weight): these are kept."""
    match node:
        case tree.Project() | tree.Window():
            return rows.select("*", *(e.column.alias(name) for name, e in node.made))
        case tree.Filter():
            return rows.where(node.condition.column)
        case tree.Expand():
            return _expanded(node, rows)
        case tree.Generate():
            return _generated(node, rows)


def _expanded(node: tree.Expand, rows: DataFrame) -> DataFrame:
    types = {a.name: a.type for a in node.columns}
    arms = []
    for number, arm in enumerate(node.arms):
        values = [e.column.cast(types[name]).alias(name) for name, e in zip(node.names, arm, strict=True)]
        arms.append(fn.struct(*values, fn.lit(number).alias(node.branch)))
    own = {a.name for a in node.child.columns} - set(node.child.key)
    kept = [name for name in rows.columns if name not in own]
    return rows.select(*kept, fn.inline(fn.array(*arms)))


def _generated(node: tree.Generate, rows: DataFrame) -> DataFrame:
    names = [a.name for a in node.made]
    value = node.arguments[0].column
    explode = fn.posexplode_outer if node.outer else fn.posexplode
    match node.kind:
        case "tuple":
            return rows.select("*", value.alias(*names))
        case "copies":
            copies = fn.sequence(fn.lit(1).cast("bigint"), value)
            return rows.where(value > 0).select("*", explode(copies).alias(node.position, "__copy")).drop("__copy")
        case "array" | "map":
            outputs = names if node.position in names else [node.position, *names]
            return rows.select("*", explode(value).alias(*outputs))
        case _:
            structs = _stacked(node) if node.kind == "stack" else value
            fields = names if node.kind == "stack" else _fields(node)
            found = rows.select("*", explode(structs).alias(node.position, "__row"))
            made = (fn.col("__row").getField(f).alias(n) for f, n in zip(fields, names, strict=True))
            return found.select("*", *made).drop("__row")


def _fields(node: tree.Generate) -> list[str]:
    from pyspark.sql.types import ArrayType, StructType, _parse_datatype_string

    kind = _parse_datatype_string(node.arguments[0].type)
    assert isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)
    return kind.elementType.names


def _stacked(node: tree.Generate) -> Column:
    values = node.arguments[1:]
    width = len(node.made)
    structs = []
    for start in range(0, len(values), width):
        row = list(values[start : start + width])
        cells = [
            (row[i].column if i < len(row) else fn.lit(None)).cast(a.type).alias(a.name)
            for i, a in enumerate(node.made)
        ]
        structs.append(fn.struct(*cells))
    return fn.array(*structs)


def joined(
    inputs: Sequence[tuple[Node, DataFrame]],
    conditions: Sequence[Expr],
    hinted: Callable[[DataFrame], DataFrame] = lambda rows: rows,
) -> DataFrame:
    """The inner join, from the first input on to whichever is connected next; `hinted` marks the joined rows."""
    left = list(inputs)
    open_conditions = list(conditions)
    node, rows = left.pop(0)
    known = build.names_of(node)
    while left:
        at = next((i for i, (n, _) in enumerate(left) if _connected(known, build.names_of(n), open_conditions)), 0)
        node, more = left.pop(at)
        known |= build.names_of(node)
        ready = [e for e in open_conditions if e.uses <= known]
        open_conditions = [e for e in open_conditions if not e.uses <= known]
        first = hinted(rows)
        rows = first.join(more, condition_of(ready)) if ready else first.crossJoin(more)
    return rows.where(condition_of(open_conditions)) if open_conditions else rows


def _connected(known: set[str], names: set[str], conditions: Sequence[Expr]) -> bool:
    return any(e.uses <= known | names and e.uses & known and e.uses & names for e in conditions)


def outer(node: tree.Join, left: DataFrame, right: DataFrame) -> DataFrame:
    """A join that is not inner, of whole sides. The left side may have more columns (a weight)."""
    condition = condition_of(node.conditions)
    if node.kind in ("semi", "anti"):
        return left.join(right, condition, f"left_{node.kind}")
    if node.kind == "existence":
        return existence(node, left, right)
    if not node.side:
        return left.join(right, condition, node.kind)
    rows = left.withColumn("__l", fn.lit(1)).join(right.withColumn("__r", fn.lit(1)), condition, node.kind)
    side = fn.when(fn.col("__r").isNull(), 1).when(fn.col("__l").isNull(), 2).otherwise(0)
    return rows.withColumn(node.side, side).drop("__l", "__r")


def existence(node: tree.Join, left: DataFrame, right: DataFrame) -> DataFrame:
    """The left rows with whether there is a match."""
    names = sorted(set().union(*(e.uses for e in node.conditions)) & build.names_of(node.right))
    if names and all(_by_column(e, node.right) for e in node.conditions):
        found = right.select(*names).distinct().withColumn(node.exists, fn.lit(True))
        rows = left.join(found, condition_of(node.conditions), "left").drop(*names)
        return rows.withColumn(node.exists, fn.coalesce(fn.col(node.exists), fn.lit(False)))
    condition = condition_of(node.conditions)
    yes = left.join(right, condition, "left_semi").withColumn(node.exists, fn.lit(True))
    return yes.unionAll(left.join(right, condition, "left_anti").withColumn(node.exists, fn.lit(False)))


def _by_column(condition: Expr, right: Node) -> bool:
    """Whether a condition compares a column of the right side with something of the left."""
    names = build.names_of(right)
    sides = condition.sides or ()
    return any(e.plain in names and not (condition.uses - e.uses) & names for e in sides)


def union(node: tree.Union, children: Sequence[DataFrame | None]) -> DataFrame:
    """All rows of the children that are given, each with its number."""
    arms = []
    for number, (arm, rows) in enumerate(zip(node.arms, children, strict=True)):
        if rows is None:
            continue
        own = build.names_of(node.children[number])
        more = [name for name in rows.columns if name not in own]
        named = zip(node.columns, arm, strict=False)
        values = [_value(a, name) for a, name in named]
        arms.append(rows.select(*values, fn.lit(number).alias(node.branch), *more))
    return reduce(DataFrame.unionAll, arms)


def _value(attribute: Attribute, name: str | None) -> Column:
    value = fn.lit(None) if name is None else fn.col(name)
    return value.cast(attribute.type).alias(attribute.name)


def aggregated(node: tree.Aggregate, rows: DataFrame) -> DataFrame:
    """A row per group, by Spark's own functions."""
    if not node.calls:
        return rows.selectExpr(*node.groups).distinct() if node.groups else rows.agg(fn.lit(0)).select()
    whole = [call for call in node.calls if not _in_doubles(call)]
    made = [call.value.column.alias(call.name) for call in whole]
    averages = [call for call in node.calls if _in_doubles(call)]
    for call in averages:
        value = filtered_argument(call).cast("DECIMAL(38,0)")
        made += [fn.sum(value).cast("double").alias(f"{call.name}_s"), fn.count(value).alias(f"{call.name}_c")]
    found = rows.groupBy(*node.groups).agg(*made)
    if not averages:
        return found
    values = [fn.when(fn.col(f"{call.name}_c") > 0, call.finish).alias(call.name) for call in averages]
    return found.select(*node.groups, *(call.name for call in whole), *values)


def _in_doubles(call: tree.Call) -> bool:
    """Whether Spark adds integers up as doubles, which is exact only for the first 53 bits."""
    return call.kind == "avg" and call.argument is not None and call.argument.type == "BIGINT"


def filtered_argument(call: tree.Call) -> Column:
    """What a call aggregates: NULL where its FILTER excludes a row."""
    value: Column = fn.lit(1) if call.argument is None else call.argument.column
    return value if call.condition is None else fn.when(call.condition.column, value)


def with_scalar(node: tree.Scalar, rows: DataFrame, query: DataFrame) -> DataFrame:
    """Rows with the value of a sub-query, which may give one row at most."""
    message = "a scalar sub-query returned more than one row"
    value = fn.when(fn.count("*") > 1, fn.raise_error(fn.lit(message))).otherwise(fn.first(node.value))
    kind = build.attribute(node, node.name).type
    return rows.crossJoin(fn.broadcast(query.agg(value.cast(kind).alias(node.name))))
