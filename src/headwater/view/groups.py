"""An aggregate at the root of a view, adjusted by added and removed rows: the view's own rows are its state."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headwater.view import tree
from headwater.view.frames import Frames, filtered_argument, quoted, same_text, select, with_scalar
from headwater.view.rules import RootAggregate
from headwater.view.shape import COUNT, INTEGERS, SHOWN, WEIGHT, Counter, Shape

WIDE = "DECIMAL(38,0)"  # of sums of integers on their way: removed rows could overflow where the result does not
OLD = "__old"
CONSTANT = "__one"  # the key of a group that is all rows


def groups_of(top: RootAggregate) -> tuple[str, ...]:
    return top.aggregate.groups or (CONSTANT,)


def partial(shape: Shape, top: RootAggregate, rows: DataFrame, signed: bool) -> DataFrame:
    """Group columns and counters of rows; of signed ones, by how much to change the counters."""
    groups = top.aggregate.groups
    numbered = [(f"__x{i}", c) for i, c in enumerate(shape.counters) if c.total or c.count != COUNT]
    given = rows.select("*", *(filtered_argument(c.call).alias(name) for name, c in numbered)) if numbered else rows
    weight = f"CAST({WEIGHT} AS BIGINT)"
    made = [f"coalesce(sum({weight}), 0) AS {COUNT}" if signed else f"count(*) AS {COUNT}"]
    for name, counter in numbered:
        if counter.total:
            made.append(f"sum({_summand(counter, name, signed)}) AS {counter.total}")
        if counter.count != COUNT:
            count = f"sum(CASE WHEN {name} IS NOT NULL THEN {weight} END)" if signed else f"count({name})"
            made.append(f"coalesce({count}, 0) AS {counter.count}")
    by = f"GROUP BY {', '.join(groups)}" if groups else ""
    constant = [] if groups else [f"0 AS {CONSTANT}"]
    return select(f"SELECT {', '.join([*groups, *constant, *made])} FROM __rows {by}", __rows=given)


def _summand(counter: Counter, value: str, signed: bool) -> str:
    """What a row adds to a counter's total."""
    if counter.call.kind in ("all", "any"):
        value = f"CAST(CASE WHEN {value} THEN 1 WHEN NOT {value} THEN 0 END AS BIGINT)"
    elif not counter.total_type.startswith("DECIMAL") or counter.total_type == WIDE:
        value = f"CAST({value} AS {WIDE if signed or counter.total_type == WIDE else 'BIGINT'})"
    return f"CASE WHEN {WEIGHT} < 0 THEN -{value} ELSE {value} END" if signed else value


def _sums(shape: Shape) -> list[str]:
    """The counters of several rows of a group, added up."""
    made = [f"CAST(sum({COUNT}) AS BIGINT) AS {COUNT}"]
    for counter in shape.counters:
        if counter.total:
            made.append(f"CAST(sum({counter.total}) AS {counter.total_type}) AS {counter.total}")
        if counter.count != COUNT:
            made.append(f"CAST(sum({counter.count}) AS BIGINT) AS {counter.count}")
    return made


def combined(shape: Shape, top: RootAggregate, parts: DataFrame) -> DataFrame:
    """The sum of several partial rows per group."""
    groups = ", ".join(groups_of(top))
    return select(f"SELECT {groups}, {', '.join(_sums(shape))} FROM __parts GROUP BY {groups}", __parts=parts)


def finished(shape: Shape, top: RootAggregate, counted: DataFrame, frames: Frames, *more: str) -> DataFrame:
    """Counters as stored rows: values of the calls, what the query makes of them, and whether they are shown.

    `more` are further columns of `counted` that are kept.
    """
    averages = [c for c in shape.counters if c.call.kind == "avg"]
    values = [f"{_value(c)} AS {c.call.name}" for c in shape.counters if c not in averages]
    values += [part for counter in averages for part in _parts_of_average(counter)]
    rows = counted.selectExpr("*", *values, *([f"TRUE AS {SHOWN}"] if shape.shown else []))
    if averages:
        rows = rows.select("*", *(_average(c).alias(c.call.name) for c in averages))
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
        f"CAST({quoted(sources.get(c.name, c.name) or CONSTANT)} AS {c.type}) AS {quoted(c.name)}"
        for c in shape.columns
    ]
    return rows.selectExpr(*stored, *more)


def _parts_of_average(counter: Counter) -> tuple[str, str]:
    """Sum and count under the names that Spark's own last step of an average refers to."""
    name = counter.call.name
    integers = counter.call.argument is not None and counter.call.argument.type in INTEGERS
    total = f"CAST({counter.total} AS DOUBLE)" if integers else counter.total
    return f"{total} AS {name}_s", f"{counter.count} AS {name}_c"


def _average(counter: Counter) -> Column:
    return fn.when(fn.expr(f"{counter.count} > 0"), counter.call.finish).cast(counter.call.value.type)


def _value(counter: Counter) -> str:
    """The value of a call other than an average, from its counters."""
    count, total = counter.count, counter.total
    match counter.call.kind:
        case "count":
            return count
        case "sum":
            return f"CAST(CASE WHEN {count} > 0 THEN {total} END AS {counter.call.value.type})"
        case "all":
            return f"CASE WHEN {count} > 0 THEN {total} = {count} END"
        case "any":
            return f"CASE WHEN {count} > 0 THEN {total} > 0 END"
        case "avg" | "other":
            raise AssertionError("not made from counters here")


def adjust(shape: Shape, top: RootAggregate, signed: DataFrame, state: DataFrame, frames: Frames) -> DataFrame:
    """The signed change of the stored rows that signed rows below the aggregate make."""
    groups = groups_of(top)
    part = partial(shape, top, signed, signed=True)
    stored = {source or CONSTANT: name for name, source in reversed(shape.sources)}
    own = [f"s.{quoted(stored[group])}" for group in groups]
    counters = [COUNT] + [n for c in shape.counters for n in (c.total, c.count) if n and n != COUNT]
    # The change's own columns go along unused: with all of them in both places, Spark computes the change once.
    unused = (f"p.{name} AS __p{i}" for i, name in enumerate([*groups, *counters]))
    row = f"struct({', '.join([*(f's.{quoted(c.name)}' for c in shape.columns), *unused])}) AS {OLD}"
    kept = [f"{name} AS {group}" for name, group in zip(own, groups, strict=True)]
    before = (
        f"SELECT /*+ BROADCAST(p) */ {', '.join([*kept, *(f's.{name}' for name in counters), row])} "
        f"FROM __state s JOIN __part p ON {same_text(own, [f'p.{group}' for group in groups])}"
    )
    after = f"SELECT {', '.join([*groups, *counters])}, NULL FROM __part"
    counted = select(
        f"SELECT {', '.join([*groups, *_sums(shape)])}, first({OLD}, TRUE) AS {OLD} "
        f"FROM ({before} UNION ALL {after}) GROUP BY {', '.join(groups)}",
        __state=state,
        __part=part,
    )
    return _changes(shape, finished(shape, top, counted, frames, OLD), bool(top.aggregate.groups))


def _changes(shape: Shape, rows: DataFrame, removable: bool) -> DataFrame:
    """From rows that hold the old stored row and the new one: what was removed and added."""
    remains = f"{COUNT} > 0" if removable else "TRUE"
    plain = [c for c in shape.columns if c.name not in shape.key]
    alike = " AND ".join("FALSE" if "MAP<" in c.type else _alike(c.name) for c in plain) or "TRUE"
    differs = f"NOT ({OLD} IS NOT NULL AND {remains} AND {alike})"
    went = f"CASE WHEN {OLD} IS NOT NULL AND {differs} THEN {_signed_row(shape, f'{OLD}.', -1)} END"
    came = f"CASE WHEN {remains} AND {differs} THEN {_signed_row(shape, '', 1)} END"
    return rows.selectExpr(f"inline(filter(array({went}, {came}), __r -> __r IS NOT NULL))")


def _signed_row(shape: Shape, of: str, weight: int) -> str:
    fields = (f"CAST({of}{quoted(c.name)} AS {c.type}) AS {quoted(c.name)}" for c in shape.columns)
    return f"struct({', '.join(fields)}, {weight} AS {WEIGHT})"


def _alike(name: str) -> str:
    return f"{quoted(name)} <=> {OLD}.{quoted(name)}"
