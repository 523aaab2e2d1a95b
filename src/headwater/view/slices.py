"""How the first fill of a view can be cut into slices that are each computed and kept on their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headwater.view import groups, tree
from headwater.view.frames import Frames, quoted
from headwater.view.rules import adjusted
from headwater.view.shape import COUNT, Shape, shape
from headwater.view.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Slices:
    """How to cut, and for the first two kinds the inputs of which one can be cut by its key, all others read whole.

    - `spans`: the view of a span of the input's keys is a part of the view.
    - `merge`: the same gives partial rows; `combined` adds those of all slices up.
    - `hash`: `slice_of` takes a part of the whole view by the hash of its key.
    - `one`: the view cannot be cut.
    """

    kind: Literal["spans", "merge", "hash", "one"]
    inputs: tuple[str, ...] = ()


def slices(of: Tree) -> Slices:
    """How a fill of this view can be cut."""
    if of.root is None:
        return Slices("one")
    top = adjusted(of.root)
    found = tuple(sorted(_local(of.root if top is None else top.aggregate.child) & _once(of.root)))
    if found:
        return Slices("spans" if top is None else "merge", found)
    view = shape(of)
    kinds = {c.name: c.type for c in view.columns}
    if of.root.key and not any("MAP<" in kinds[name] for name in view.key):
        return Slices("hash")
    return Slices("one")


def slice_of(view: Shape, rows: DataFrame, number: int, count: int) -> DataFrame:
    """The stored rows of one of `count` slices by the hash of the key."""
    digest = fn.xxhash64(*(quoted(name) for name in view.key))
    return rows.where(fn.pmod(digest, fn.lit(count)) == number)


def combined(of: Tree, inputs: Mapping[str, DataFrame], parts: DataFrame) -> DataFrame:
    """The stored rows of a view from the partial rows of all its slices."""
    view = shape(of)
    assert of.root is not None
    top = adjusted(of.root)
    assert top is not None
    stored = {source or groups.CONSTANT: name for name, source in reversed(view.sources)}
    counters = [COUNT] + [n for c in view.counters for n in (c.total, c.count) if n and n != COUNT]
    named = (fn.col(quoted(stored[g])).alias(g) for g in groups.groups_of(top))
    counted = groups.combined(view, top, parts.select(*named, *counters))
    return groups.finished(view, top, counted, Frames(lambda name: inputs[name]))


def _once(root: Node) -> set[str]:
    """The inputs that a query reads once: a slice of another one would miss rows that meet in it."""
    found = [leaf.input for leaf in tree.leaves(root)]
    return {name for name in found if found.count(name) == 1}


def _local(node: Node) -> set[str]:
    """The inputs whose rows each make their own rows of an operator: a part of the input makes a part of its rows."""
    match node:
        case tree.Leaf():
            return {node.input}
        case tree.Project() | tree.Filter() | tree.Expand() | tree.Generate() | tree.Scalar():
            return _local(node.child)
        case tree.Inner():
            return set().union(*map(_local, node.inputs))
        case tree.Join() if node.kind != "full":
            return _local(node.left)
        case _:
            return set()
