"""How the first fill of a view can be cut into slices that are each computed and kept on their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headwater.view import groups, rules, tree
from headwater.view.frames import Frames, quoted
from headwater.view.rules import RootAggregate, adjusted
from headwater.view.shape import Shape, shape
from headwater.view.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Slices:
    """How to cut, and for the first two kinds the inputs of which one can be cut by its key, all others read whole.

    - `spans`: the view of a span of the input's keys is a part of the view.
    - `merge`: `partial` aggregates a span of the input's keys; `combined` adds those of all slices up.
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
    # each slice computes the view again: a key that comes out differently would be in two slices, or in none
    certain = not rules.inexact(of.root, frozenset(of.inputs)) & set(of.root.key)
    if of.root.key and certain and not any("MAP<" in kinds[name] for name in view.key):
        return Slices("hash")
    return Slices("one")


def slice_of(view: Shape, rows: DataFrame, number: int, count: int) -> DataFrame:
    """The stored rows of one of `count` slices by the hash of the key."""
    digest = fn.xxhash64(*(quoted(name) for name in view.key))
    return rows.where(fn.pmod(digest, fn.lit(count)) == number)


def partial(of: Tree, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Groups and counters of a slice. Nothing is made of them yet: `100 / sum(x)` may fail for a part of the rows."""
    top = _top(of)
    return groups.partial(shape(of), top, Frames(lambda name: inputs[name]).of(top.aggregate.child), signed=False)


def combined(of: Tree, inputs: Mapping[str, DataFrame], parts: DataFrame) -> DataFrame:
    """The stored rows of a view from the partial rows of all its slices."""
    counted = groups.combined(shape(of), _top(of), parts)
    return groups.finished(shape(of), _top(of), counted, Frames(lambda name: inputs[name]))


def _top(of: Tree) -> RootAggregate:
    found = None if of.root is None else adjusted(of.root)
    assert found is not None, "only groups that can be adjusted can be added up"
    return found


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
