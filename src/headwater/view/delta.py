"""A view's rows and their change as DataFrames: nothing is computed until the caller writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from headwater.view import groups, rules
from headwater.view.changes import Changes, Moved, weighted
from headwater.view.frames import Frames, quoted, select
from headwater.view.plan import run_query
from headwater.view.rules import adjusted, top_of
from headwater.view.shape import WEIGHT, Shape, StoredColumn, shape
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
        came = signed.where(f"{WEIGHT} = 1")
        signed = came.unionAll(weighted(changes.within(state, signed, view.key), -1))
    return consolidated(view, signed)


def _replaced_groups(tree: Tree, changes: Changes, aggregate: Aggregate, state: DataFrame) -> DataFrame:
    """Groups at the root that changed, computed again; the view has their old rows."""
    view = shape(tree)
    signed = changes.must(aggregate.child)
    near = Frames(lambda name: changes.inputs[name].post())
    near.put(aggregate.child, changes.within(changes.post.of(aggregate.child), signed, aggregate.groups))
    came = weighted(_stored(tree, near), 1)
    stored = {source: name for name, source in reversed(view.sources)}
    own = [stored[name] for name in aggregate.groups]
    went = weighted(changes.within(state, signed, aggregate.groups, own), -1)
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
    values = (f"CAST({source or 0} AS {types[name]}) AS {quoted(name)}" for name, source in view.sources)
    return rows.selectExpr(*values, *more)


def _numbered(view: Shape, rows: DataFrame) -> DataFrame:
    """Rows of a query that is run as it is written, with their content's digest and a number among equals."""
    names = [c.name for c in view.columns[: view.visible]]
    digest = fn.sha2(fn.to_json(fn.struct(*map(quoted, names)), {"ignoreNullFields": "false"}), 256)
    rows = rows.toDF(*names).withColumn("__k0", digest)
    order = [quoted(c.name) for c in view.columns[: view.visible] if "MAP<" not in c.type] or ["__k0"]
    number = fn.row_number().over(Window.partitionBy("__k0").orderBy(*order))
    return rows.withColumn("__k1", number.cast("bigint"))


def difference(view: Shape, old: DataFrame, new: DataFrame) -> DataFrame:
    """The signed change from one state of a view to another."""
    return consolidated(view, _columns(view, old, -1).unionAll(_columns(view, new, 1)))


def consolidated(view: Shape, signed: DataFrame) -> DataFrame:
    """Signed rows whose weights have been added up: what cancels is gone."""
    # Grouping makes -0.0 to 0.0, and one of several strings that are equal by collation: such values are carried along.
    loose = {c.name for c in view.columns if any(word in c.type for word in LOOSE)}
    values = (
        f"first({quoted(c.name)}) AS {quoted(c.name)}" if c.name in loose else quoted(c.name) for c in view.columns
    )
    total = f"CAST(sum({WEIGHT}) AS INT)"
    return select(
        f"SELECT {', '.join(values)}, {total} AS {WEIGHT} FROM __signed "
        f"GROUP BY {', '.join(map(_strict, view.columns))} HAVING {total} <> 0",
        __signed=signed,
    )


def _strict(column: StoredColumn) -> str:
    """A value of which two are equal only if they are the same."""
    value = quoted(column.name)
    return f"CAST({value} AS BINARY)" if column.type.startswith("STRING COLLATE") else value


def _columns(view: Shape, rows: DataFrame, weight: int) -> DataFrame:
    values = (f"CAST({quoted(c.name)} AS {c.type}) AS {quoted(c.name)}" for c in view.columns)
    return rows.selectExpr(*values, f"{weight} AS {WEIGHT}")
