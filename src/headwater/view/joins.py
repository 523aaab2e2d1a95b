"""The change of a join that is not inner: its pairs, and left rows that gained a first match or lost their last.

A left join is its pairs and, padded with NULLs, the left rows without a match; a full join has such rows of both sides.
No equality is needed: a left row is concerned if it matches a signed right row, whatever the condition is.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headwater.view import tree
from headwater.view.frames import condition_of, existence
from headwater.view.shape import WEIGHT
from headwater.view.tree import Node

if TYPE_CHECKING:
    from headwater.view.changes import Changes

NOW, BEFORE = "__m1", "__m0"  # how many matches a left row has at e1, and had at e0


def change(changes: Changes, node: tree.Join) -> DataFrame:
    """The signed rows of the join: those of the left side's change, then those of the right side's."""
    parts: list[DataFrame] = []
    left, right = changes.of(node.left), changes.of(node.right)
    if left is not None:
        parts.append(_of_left(changes, node, left))
    if right is not None:
        parts += _of_right(changes, node, right)
    if node.kind == "full":
        mirrored = tree.Join("anti", node.right, node.left, node.conditions, node.right.columns, node.right.key)
        parts.append(_padded(node, change(changes, mirrored), node.left, side=2))
    names = [a.name for a in node.columns]
    return reduce(DataFrame.unionAll, [part.select(*names, WEIGHT) for part in parts])


def _of_left(changes: Changes, node: tree.Join, signed: DataFrame) -> DataFrame:
    """Added and removed left rows, joined with the right side at e0."""
    condition = condition_of(node.conditions)
    needed = _names(node, node.left)
    near = changes.pre.of(node.right)
    if needed:  # the right side is filtered first: then it is small enough to be broadcast
        near = near.join(changes.hinted(signed.select(*needed)), condition, "left_semi")
        near = changes.derived(near)
    if node.kind in ("semi", "anti"):
        return signed.join(near, condition, f"left_{node.kind}")
    if node.kind == "existence":
        return existence(node, signed, near)
    rows = signed.join(near.withColumn(NOW, fn.lit(1)), condition, "left")
    return rows.withColumn(node.side, fn.when(fn.col(NOW).isNull(), 1).otherwise(0)) if node.side else rows


def _of_right(changes: Changes, node: tree.Join, signed: DataFrame) -> list[DataFrame]:
    """Left rows at e1 that match an added or removed right row."""
    condition = condition_of(node.conditions)
    concerned = changes.post.of(node.left).join(
        changes.hinted(signed.select(*_names(node, node.right))) if node.conditions else fn.broadcast(signed.limit(1)),
        condition,
        "left_semi",
    )
    concerned = changes.derived(concerned)
    parts = []
    if node.kind in ("left", "full"):
        pairs = signed.join(concerned, condition)
        parts.append(pairs.withColumn(node.side, fn.lit(0)) if node.side else pairs)
    rows = _counted(changes, node, signed, concerned)
    match node.kind:
        case "semi":
            parts.append(_weighted(rows, _one(fn.col(NOW) > 0) - _one(fn.col(BEFORE) > 0)))
        case "existence":
            flips = rows.where((fn.col(NOW) > 0) != (fn.col(BEFORE) > 0))
            both = fn.array(
                fn.struct((fn.col(BEFORE) > 0).alias(node.exists), fn.lit(-1).alias(WEIGHT)),
                fn.struct((fn.col(NOW) > 0).alias(node.exists), fn.lit(1).alias(WEIGHT)),
            )
            parts.append(flips.select("*", fn.inline(both)))
        case _:
            lonely = _weighted(rows, _one(fn.col(NOW) == 0) - _one(fn.col(BEFORE) == 0))
            parts.append(lonely if node.kind == "anti" else _padded(node, lonely, node.right, side=1))
    return parts


def _counted(changes: Changes, node: tree.Join, signed: DataFrame, concerned: DataFrame) -> DataFrame:
    """Left rows with their number of matches at e1 and e0. The right side is read once: e0 is e1 less the change."""
    names = _names(node, node.right)
    now = changes.post.of(node.right).select(*names, fn.lit(1).alias(NOW), fn.lit(1).alias(BEFORE))
    change = signed.select(*names, fn.lit(0).alias(NOW), (-fn.col(WEIGHT)).alias(BEFORE))
    pairs = now.unionAll(change).join(concerned, condition_of(node.conditions))
    key = node.left.key
    rest = [a.name for a in node.left.columns if a.name not in key]
    sums = [fn.sum(NOW).alias(NOW), fn.sum(BEFORE).alias(BEFORE)]
    return pairs.groupBy(*key).agg(*sums, *(fn.first(name).alias(name) for name in rest))


def _names(node: tree.Join, side: Node) -> list[str]:
    """The columns of a side that the join's condition uses."""
    used = set().union(*(e.uses for e in node.conditions))
    return [a.name for a in side.columns if a.name in used]


def _padded(node: tree.Join, rows: DataFrame, missing: Node, side: int) -> DataFrame:
    """Rows of one side with NULLs for the other."""
    nulls = (fn.lit(None).cast(a.type).alias(a.name) for a in missing.columns)
    rows = rows.select("*", *nulls)
    return rows.withColumn(node.side, fn.lit(side)) if node.side else rows


def _weighted(rows: DataFrame, weight: Column) -> DataFrame:
    return rows.withColumn(WEIGHT, weight).where(fn.col(WEIGHT) != 0)


def _one(condition: Column) -> Column:
    return condition.cast("int")
