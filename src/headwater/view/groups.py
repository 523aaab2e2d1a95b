"""An aggregate at the root of a view, adjusted by rows that came and went: the view's own rows are its state."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headwater.view import tree
from headwater.view.frames import Frames, both, filtered_argument, quoted, same, with_scalar
from headwater.view.rules import RootAggregate
from headwater.view.shape import COUNT, SHOWN, WEIGHT, Counter, Shape

WIDE = "DECIMAL(38,0)"  # of sums of integers on their way: rows that went could overflow where the result does not
OLD = "__old"
CONSTANT = "__one"  # the key of a group that is all rows


def groups_of(top: RootAggregate) -> tuple[str, ...]:
    return top.aggregate.groups or (CONSTANT,)


def partial(shape: Shape, top: RootAggregate, rows: DataFrame, signed: bool) -> DataFrame:
    """Group columns and counters of rows; of signed ones, by how much to change the counters."""
    weight = fn.col(WEIGHT).cast("bigint") if signed else fn.lit(1).cast("bigint")
    made = [fn.coalesce(fn.sum(weight), fn.lit(0)).alias(COUNT)] if signed else [fn.count("*").alias(COUNT)]
    for counter in shape.counters:
        value = filtered_argument(counter.call)
        if counter.total:
            made.append(fn.sum(_signed(counter, value, signed)).alias(counter.total))
        if counter.count != COUNT:
            count = fn.sum(fn.when(value.isNotNull(), weight)) if signed else fn.count(value)
            made.append(fn.coalesce(count, fn.lit(0)).alias(counter.count))
    found = rows.groupBy(*top.aggregate.groups).agg(*made)
    return found if top.aggregate.groups else found.withColumn(CONSTANT, fn.lit(0))


def _signed(counter: Counter, value: Column, signed: bool) -> Column:
    if counter.call.kind in ("all", "any"):
        value = fn.when(value, 1).when(~value, 0).cast("bigint")
    elif not counter.total_type.startswith("DECIMAL") or counter.total_type == WIDE:
        value = value.cast(WIDE if signed or counter.total_type == WIDE else "bigint")
    return fn.when(fn.col(WEIGHT) < 0, -value).otherwise(value) if signed else value


def combined(shape: Shape, top: RootAggregate, parts: DataFrame, *more: Column) -> DataFrame:
    """The sum of several partial rows per group."""
    made = [fn.sum(COUNT).cast("bigint").alias(COUNT)]
    for counter in shape.counters:
        if counter.total:
            made.append(fn.sum(counter.total).cast(counter.total_type).alias(counter.total))
        if counter.count != COUNT:
            made.append(fn.sum(counter.count).cast("bigint").alias(counter.count))
    return parts.groupBy(*groups_of(top)).agg(*made, *more)


def finished(shape: Shape, top: RootAggregate, counted: DataFrame, frames: Frames) -> DataFrame:
    """Counters as stored rows: values of the calls, what the query makes of them, and whether they are shown.

    Further columns of `counted` are kept.
    """
    averages = [c for c in shape.counters if c.call.kind == "avg"]
    rows = counted.select("*", *(part for counter in averages for part in _parts_of_average(counter)))
    rows = rows.select("*", *(_value(counter).alias(counter.call.name) for counter in shape.counters))
    if shape.shown:
        rows = rows.withColumn(SHOWN, fn.lit(True))
    hides = False
    for step in top.steps:
        match step:
            case tree.Filter():
                passes = fn.when(fn.col(SHOWN), step.condition.column)
                rows = rows.withColumn(SHOWN, fn.coalesce(passes, fn.lit(False)))
                hides = True
            case tree.Project():  # what HAVING excludes must not raise an error either (100 / sum(x))
                made = ((name, fn.when(fn.col(SHOWN), e.column) if hides else e.column) for name, e in step.made)
                rows = rows.select("*", *(value.alias(name) for name, value in made))
            case tree.Scalar():
                rows = with_scalar(step, rows, frames.of(step.query))
    sources = dict(shape.sources)
    stored = [
        fn.col(quoted(sources.get(column.name, column.name) or CONSTANT)).cast(column.type).alias(column.name)
        for column in shape.columns
    ]
    return rows.select(*stored, *(name for name in counted.columns if name == OLD))


def _parts_of_average(counter: Counter) -> tuple[Column, Column]:
    """Sum and count under the names that Spark's own last step of an average refers to."""
    name = counter.call.name
    integers = counter.total_type in ("BIGINT", WIDE)
    total = fn.col(counter.total).cast("double") if integers else fn.col(counter.total)
    return total.alias(f"{name}_s"), fn.col(counter.count).alias(f"{name}_c")


def _value(counter: Counter) -> Column:
    call = counter.call
    count = fn.col(counter.count)
    kind = call.value.type
    match call.kind:
        case "count":
            return count
        case "sum":
            return fn.when(count > 0, fn.col(counter.total)).cast(kind)
        case "avg":
            return fn.when(count > 0, call.finish).cast(kind)
        case "all":
            return fn.when(count > 0, fn.col(counter.total) == count)
        case _:
            return fn.when(count > 0, fn.col(counter.total) > 0)


def adjust(shape: Shape, top: RootAggregate, signed: DataFrame, state: DataFrame, frames: Frames) -> DataFrame:
    """The signed change of the stored rows that signed rows below the aggregate make."""
    groups = groups_of(top)
    part = partial(shape, top, signed, signed=True)
    stored = {source or CONSTANT: name for name, source in reversed(shape.sources)}
    counters = [COUNT] + [n for c in shape.counters for n in (c.total, c.count) if n and n != COUNT]
    kept = [fn.col(quoted(stored[g])).alias(g) for g in groups] + [fn.col(n) for n in counters]
    touched = part.select(*(fn.col(g).alias(f"__g{i}") for i, g in enumerate(groups)))
    mine = same([stored[g] for g in groups], [f"__g{i}" for i in range(len(groups))])
    old = state.join(fn.broadcast(touched), mine, "left_semi")
    before = old.select(*kept, fn.struct(*(quoted(c.name) for c in shape.columns)).alias(OLD))
    after = part.select(*groups, *counters, fn.lit(None).cast(before.schema[OLD].dataType).alias(OLD))
    counted = combined(shape, top, before.unionAll(after), fn.first(OLD, ignorenulls=True).alias(OLD))
    return _changes(shape, finished(shape, top, counted, frames), bool(top.aggregate.groups))


def _changes(shape: Shape, rows: DataFrame, removable: bool) -> DataFrame:
    """From rows that hold the old stored row and the new one: what went and what came."""
    new = fn.struct(*(fn.col(quoted(c.name)) for c in shape.columns))
    old = fn.col(OLD)
    remains = fn.col(COUNT) > 0 if removable else fn.lit(True)
    plain = [c.name for c in shape.columns if c.name not in shape.key]
    equal = both(_equal(fn.col(quoted(name)), old.getField(name), shape, name) for name in plain)
    differs = ~(old.isNotNull() & remains & equal)
    names = [c.name for c in shape.columns]

    def signed_row(row: Column, weight: int) -> Column:
        fields = (row.getField(c.name).cast(c.type).alias(c.name) for c in shape.columns)
        return fn.struct(*fields, fn.lit(weight).alias(WEIGHT))

    went = fn.when(old.isNotNull() & differs, signed_row(old, -1))
    came = fn.when(remains & differs, signed_row(new, 1))
    pair = fn.filter(fn.array(went, came), lambda row: row.isNotNull())
    return rows.select(fn.inline(pair)).select(*map(quoted, names), WEIGHT)


def _equal(one: Column, two: Column, shape: Shape, name: str) -> Column:
    kind = next(c.type for c in shape.columns if c.name == name)
    return fn.lit(False) if "MAP<" in kind else one.eqNullSafe(two)
