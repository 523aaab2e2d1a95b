"""`changes(…)`: the net change of a relation between two epochs, as rows with a `_change_type`."""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headwater.engine.home import Home
from headwater.engine.query.between import At, Frames, at, obstacle
from headwater.engine.query.deltas import Deltas
from headwater.engine.query.moved import MovedTable, MovedView
from headwater.errors import QueryError
from headwater.meta import changes as changes_of
from headwater.meta import epochs, views
from headwater.model import Column, Epoch, RelationInfo
from headwater.relation.keys import same
from headwater.relation.overlay import Overlays
from headwater.relation.schema import quoted
from headwater.view.shape import WEIGHT

CHANGE_TYPE = "_change_type"  # the column that `changes(…)` adds
_OLD = "__old_"


def net_changes(
    home: Home,
    session: SparkSession,
    overlays: Overlays,
    stack: ExitStack,
    relation: RelationInfo,
    epoch: Epoch,
    first: int | None,
    last: int | None,
) -> DataFrame:
    """The changes after epoch `first` (by default the oldest kept) up to `last` (by default the statement's own)."""
    with home.meta.read() as c:
        start, end = _whole_at(home, relation, first), _whole_at(home, relation, epoch.id if last is None else last)
        why = obstacle(c, relation, start[0], end[0]) if start[0].id < end[0].id else ""
        quiet = not why and not changes_of.count(c, relation, start[1].index, end[1].index)
    frames = Frames(session, home, overlays, stack)
    if start[0].id >= end[0].id or quiet:
        return _typed(relation, frames.of(end[1]).where(fn.lit(False)), frames.of(end[1]).where(fn.lit(False)))
    if why:
        return _typed(relation, frames.of(start[1]), frames.of(end[1]))
    deltas = Deltas(home, overlays.changes)
    stack.callback(deltas.close)
    moved = (MovedTable if relation.view is None else MovedView)(frames, deltas, start[1], end[1])
    moved.prepare()
    signed = moved.delta()
    went, came = (signed.where(fn.col(WEIGHT) == w).drop(WEIGHT) for w in (-1, 1))
    return _typed(relation, went, came)


def _whole_at(home: Home, relation: RelationInfo, wanted: int | None) -> tuple[Epoch, At]:
    """The relation at a kept epoch: the given one, or (None) the oldest at which it is whole."""
    with home.meta.read() as c:
        kept = epochs.kept(c)
        if relation.view is not None:
            exact = views.versions_of(c, relation.id)
            kept = [id for id in kept if id in exact]
        # never an earlier one instead: whoever asks for the changes since an epoch has seen those before it
        candidates = kept if wanted is None else [id for id in kept if id == wanted]
        for id in candidates:
            epoch = epochs.get(c, id)
            found = None if epoch is None else at(c, relation, epoch)
            if epoch is not None and found is not None:
                return epoch, found
    span = f"the oldest kept one is {kept[0]}, the newest {kept[-1]}" if kept else "none is kept"
    raise QueryError(
        "query.epoch",
        f"{relation.name} cannot be read at epoch {wanted}; {span}",
        "SHOW EPOCHS lists the epochs that can be read.",
    )


def _typed(relation: RelationInfo, went: DataFrame, came: DataFrame) -> DataFrame:
    """The rows of both sides that differ, each key once per side, with what happened to them."""
    shown = [c.name for c in relation.shown_columns]
    names = list(dict.fromkeys([*shown, *relation.key]))
    old = went.select(
        *(fn.col(quoted(n)).alias(f"{_OLD}{i}") for i, n in enumerate(names)), fn.lit(True).alias("__went")
    )
    new = came.select(*(fn.col(quoted(n)) for n in names), fn.lit(True).alias("__came"))
    at = {n: i for i, n in enumerate(names)}
    equal = [same(fn.col(quoted(c.name)), fn.col(f"{_OLD}{at[c.name]}"), c) for c in relation.key_columns]
    both = new.join(old, reduce(lambda a, b: a & b, equal), "full")
    differs = reduce(lambda a, b: a | b, (~_alike(c, at[c.name]) for c in relation.shown_columns), fn.lit(False))
    one_side = fn.col("__went").isNull() | fn.col("__came").isNull()
    both = both.where(one_side | differs)
    kept, gone = fn.col("__came").isNotNull(), fn.col("__went").isNotNull()
    before = both.where(gone).select(
        *(fn.col(f"{_OLD}{at[n]}").alias(n) for n in shown),
        fn.when(kept, "update_preimage").otherwise("delete").alias(CHANGE_TYPE),
    )
    after = both.where(kept).select(
        *(fn.col(quoted(n)) for n in shown), fn.when(gone, "update_postimage").otherwise("insert").alias(CHANGE_TYPE)
    )
    return before.unionAll(after)


def _alike(column: Column, i: int) -> Expression:
    """Whether a column has the same value on both sides. (Spark cannot compare maps, so these are compared as JSON.)"""
    new, old = fn.col(quoted(column.name)), fn.col(f"{_OLD}{i}")
    if "MAP<" in column.lake_type:
        new, old = fn.to_json(fn.array(new)), fn.to_json(fn.array(old))
    return new.eqNullSafe(old)
