"""Signed rows of operators: what was removed and added between two versions of the inputs, bottom-up.

The rows of an operator's change are a sum: a row may come with several weights that cancel. Every rule is linear in its
changed input, and reads all other inputs at e0 for one input's change and at e1 for the next one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headwater.view import joins, tree
from headwater.view.frames import Frames, aggregated, joined, leaf, quoted, row_wise, same, union, with_scalar
from headwater.view.rules import moves
from headwater.view.shape import WEIGHT
from headwater.view.tree import Node

BROADCAST_ROWS = 500_000  # a larger change is joined as Spark sees fit
DERIVED_ROWS = 10_000  # the same for rows that were joined with a change: each row of it may meet a thousand


class Moved(Protocol):
    """One input between two epochs."""

    @property
    def changed(self) -> bool:
        """False: nothing changed, and `delta` is not called."""
        ...

    @property
    def append_only(self) -> bool:
        """Whether there are only new keys: no row was removed."""
        ...

    @property
    def rows(self) -> int:
        """About how many signed rows there are."""
        ...

    def pre(self) -> DataFrame:
        """The relation at the earlier epoch."""
        ...

    def post(self) -> DataFrame:
        """The relation at the later epoch."""
        ...

    def delta(self) -> DataFrame:
        """Its columns and `__w`: -1 for a removed row, +1 for an added one; at most one of each per key."""
        ...


def weighted(rows: DataFrame, weight: int) -> DataFrame:
    """Added (1) or removed (-1) rows."""
    return rows.selectExpr("*", f"{weight} AS {WEIGHT}")


class Changes:
    """The signed rows of operators between two versions of the inputs."""

    def __init__(self, inputs: Mapping[str, Moved]) -> None:
        changed = frozenset(name for name, moved in inputs.items() if moved.changed)
        self.inputs = inputs
        self.changed = changed
        # without `self`: a cycle would keep all DataFrames, and what Spark has broadcast for them, for a long time
        self.pre = Frames(lambda name: inputs[name].pre() if name in changed else inputs[name].post())
        self.post = Frames(lambda name: inputs[name].post())
        self._rows = sum(inputs[name].rows for name in self.changed)
        self._made: dict[int, DataFrame] = {}

    def of(self, node: Node) -> DataFrame | None:
        """An operator's columns and `__w`; None if none of its inputs changed."""
        if not moves(node, self.changed):
            return None
        found = self._made.get(id(node))
        if found is None:
            found = self._made[id(node)] = self._make(node)
        return found

    def must(self, node: Node) -> DataFrame:
        """The signed rows of an operator that is known to have changed."""
        found = self.of(node)
        assert found is not None
        return found

    def hinted(self, rows: DataFrame) -> DataFrame:
        """A change, to be broadcast unless it is large."""
        return fn.broadcast(rows) if self._rows <= BROADCAST_ROWS else rows

    def derived(self, rows: DataFrame) -> DataFrame:
        """What a change was joined with, to be broadcast if that is likely to be small."""
        return fn.broadcast(rows) if self._rows <= DERIVED_ROWS else rows

    def _make(self, node: Node) -> DataFrame:
        match node:
            case tree.Leaf():
                return leaf(node, self.inputs[node.input].delta(), WEIGHT)
            case tree.Project() | tree.Filter() | tree.Expand() | tree.Generate():
                return row_wise(node, self.must(node.child))
            case tree.Union():
                return union(node, [self.of(child) for child in node.children])
            case tree.Scalar():
                return with_scalar(node, self.must(node.child), self.post.of(node.query))
            case tree.Inner():
                return self._inner(node)
            case tree.Join():
                return joins.change(self, node)
            case tree.Aggregate():
                return self._again(node, node.groups)
            case tree.Window():
                return self._again(node, node.partition)
            case tree.Top() | tree.Constant():
                raise AssertionError("recomputed, or without change")

    def _inner(self, node: tree.Inner) -> DataFrame:
        """Inputs before the changed one at e1, those after it at e0: one term per changed input."""
        terms = []
        for at, child in enumerate(node.inputs):
            signed = self.of(child)
            if signed is None:
                continue
            others = [(n, self.post.of(n)) for n in node.inputs[:at]] + [
                (n, self.pre.of(n)) for n in node.inputs[at + 1 :]
            ]
            rows = joined([(child, self.hinted(signed)), *others], node.conditions, self.derived)
            terms.append(rows.selectExpr(*(a.name for a in node.columns), WEIGHT))
        return reduce(DataFrame.unionAll, terms)

    def _again(self, node: tree.Aggregate | tree.Window, names: Sequence[str]) -> DataFrame:
        """The operator over all rows of the groups or partitions that changed, at e0 and at e1."""
        signed = self.must(node.child)
        came = weighted(self.over(node, signed, self.post, names), 1)
        return came.unionAll(weighted(self.over(node, signed, self.pre, names), -1))

    def over(
        self, node: tree.Aggregate | tree.Window, signed: DataFrame, version: Frames, names: Sequence[str]
    ) -> DataFrame:
        """The operator over the rows of one version that share these columns with a signed row."""
        rows = self.within(version.of(node.child), signed, names)
        return aggregated(node, rows) if isinstance(node, tree.Aggregate) else row_wise(node, rows)

    def within(self, rows: DataFrame, signed: DataFrame, names: Sequence[str], own: Sequence[str] = ()) -> DataFrame:
        """Those rows that share these columns with a signed row; `own` are the rows' names of them."""
        others = [f"__a{i}" for i in range(len(names))]
        keys = signed.selectExpr(*(f"{quoted(name)} AS {other}" for name, other in zip(names, others, strict=True)))
        return rows.join(self.hinted(keys), same(own or names, others), "left_semi")
