"""A view's rows and their change as DataFrames: nothing is computed until the caller writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from headwater.view import groups, rules
from headwater.view.changes import Changes, Moved
from headwater.view.frames import Frames, ordered, quoted
from headwater.view.plan import run_query
from headwater.view.rules import adjusted, top_of
from headwater.view.shape import SHOWN, WEIGHT, Shape, StoredColumn, shape
from headwater.view.tree import Aggregate, Tree

LOOSE = ("FLOAT", "DOUBLE", "COLLATE")  # types with values that are equal but not the same


@dataclass(frozen=True, slots=True)
class Step:
    """A view's change between two epochs: signed stored rows, None if there are none; how it was found, and why so."""

    strategy: rules.Word
    reason: str
    delta: DataFrame | None


def recompute(tree: Tree, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """All stored rows of a view, from scratch."""
    if tree.root is None:
        return _numbered(shape(tree), run_query(tree.query, {name: inputs[name] for name in tree.inputs}))
    return _stored(tree, Frames(lambda name: inputs[name]))


def refresh(tree: Tree, inputs: Mapping[str, Moved], state: DataFrame) -> Step:
    """The change of a view's stored rows; `state` are those at e0.

    Signed rows: at most one -1 and one +1 per key, and never two that are equal.
    """
    mine = {name: inputs[name] for name in tree.inputs}
    changes = Changes(mine)
    appended = frozenset(name for name in changes.changed if mine[name].append_only)
    decision = rules.decide(tree, changes.changed, appended)
    return Step(decision.word, decision.reason, _delta(tree, changes, decision, state))


def _delta(tree: Tree, changes: Changes, decision: rules.Decision, state: DataFrame) -> DataFrame | None:
    view = shape(tree)
    if decision.word == "none":
        return None
    if decision.word == "full" or tree.root is None:
        return difference(view, state, recompute(tree, {name: m.post() for name, m in changes.inputs.items()}))
    top = top_of(tree.root)
    if top is not None and decision.word == "groups":
        return groups.adjust(view, top, changes.must(top.aggregate.child), state, changes.post)
    if top is not None:
        return _replaced_groups(tree, changes, top.aggregate, state)
    signed = _output(view, changes.must(tree.root), WEIGHT)
    if decision.word == "append":
        return signed
    if decision.from_state:
        came = signed.where(fn.col(WEIGHT) == 1)
        went = changes.within(state, signed, view.key).withColumn(WEIGHT, fn.lit(-1))
        signed = came.unionAll(went)
    return consolidated(view, signed)


def _replaced_groups(tree: Tree, changes: Changes, aggregate: Aggregate, state: DataFrame) -> DataFrame:
    """Groups at the root that changed, computed again; the view has their old rows."""
    view = shape(tree)
    signed = changes.must(aggregate.child)
    near = Frames(lambda name: changes.inputs[name].post())
    near.put(aggregate.child, changes.within(changes.post.of(aggregate.child), signed, aggregate.groups))
    came = _stored(tree, near).withColumn(WEIGHT, fn.lit(1))
    stored = {source: name for name, source in reversed(view.sources)}
    own = [stored[name] for name in aggregate.groups]
    went = changes.within(state, signed, aggregate.groups, own).withColumn(WEIGHT, fn.lit(-1))
    return consolidated(view, came.unionAll(went))


def _stored(tree: Tree, frames: Frames) -> DataFrame:
    """The stored rows of a tree with a root."""
    view = shape(tree)
    assert tree.root is not None
    top = adjusted(tree.root)
    if top is None:
        return _output(view, frames.of(tree.root))
    counted = groups.partial(view, top, frames.of(top.aggregate.child), signed=False)
    return groups.finished(view, top, counted, frames)


def _output(view: Shape, rows: DataFrame, *more: str) -> DataFrame:
    """The root's columns under their stored names."""
    types = {c.name: c.type for c in view.columns}
    values = ((fn.col(source) if source else fn.lit(0)).cast(types[name]).alias(name) for name, source in view.sources)
    return rows.select(*values, *more)


def _numbered(view: Shape, rows: DataFrame) -> DataFrame:
    """Rows of a query that is run as it is written, with their content's digest and a number among equals."""
    names = [c.name for c in view.columns[: view.visible]]
    digest = fn.sha2(fn.to_json(fn.struct(*map(quoted, names)), {"ignoreNullFields": "false"}), 256)
    rows = rows.toDF(*names).withColumn("__k0", digest)
    number = fn.row_number().over(Window.partitionBy("__k0").orderBy("__k0"))
    return rows.withColumn("__k1", number.cast("bigint"))


def difference(view: Shape, old: DataFrame, new: DataFrame) -> DataFrame:
    """The signed change from one state of a view to another."""
    went = _columns(view, old).withColumn(WEIGHT, fn.lit(-1))
    return consolidated(view, went.unionAll(_columns(view, new).withColumn(WEIGHT, fn.lit(1))))


def consolidated(view: Shape, signed: DataFrame) -> DataFrame:
    """Signed rows whose weights have been added up: what cancels is gone."""
    # Grouping makes -0.0 to 0.0, and one of several strings that are equal by collation: such values are carried along.
    loose = {c.name for c in view.columns if any(word in c.type for word in LOOSE)}
    keys = [_strict(c).alias(f"__{i}") if c.name in loose else quoted(c.name) for i, c in enumerate(view.columns)]
    kept = [fn.first(quoted(name)).alias(name) for name in loose]
    rows = signed.groupBy(*keys).agg(fn.sum(WEIGHT).cast("int").alias(WEIGHT), *kept)
    return rows.where(fn.col(WEIGHT) != 0).select(*(quoted(c.name) for c in view.columns), WEIGHT)


def _strict(column: StoredColumn) -> Column:
    """A value of which two are equal only if they are the same."""
    value = fn.col(quoted(column.name))
    return value.cast("binary") if column.type.startswith("STRING COLLATE") else value


def shown(view: Shape, stored: DataFrame) -> DataFrame:
    """What a reader sees of stored rows: visible columns, no hidden rows, in the query's order, within its LIMIT."""
    rows = stored.where(fn.col(SHOWN)) if view.shown else stored
    if view.order or view.limit is not None or view.offset:
        rows = rows.orderBy(*ordered(view.order), *(fn.col(quoted(name)).asc() for name in view.key))
        rows = rows.offset(view.offset) if view.offset else rows
        rows = rows if view.limit is None else rows.limit(view.limit)
    return rows.select(*(quoted(c.name) for c in view.columns[: view.visible]))


def _columns(view: Shape, rows: DataFrame) -> DataFrame:
    return rows.select(*(fn.col(quoted(c.name)).cast(c.type).alias(c.name) for c in view.columns))
