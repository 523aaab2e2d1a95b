"""Trees of operators without Spark: expressions have a text and the columns they use, and cannot be evaluated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from headwater.view import build, tree
from headwater.view.tree import Attribute, Call, CallKind, Expr, InputColumn, InputSchema, Leaf, Node, Tree, Visible


def names() -> Callable[[], str]:
    """Gives out unused names."""
    numbers = count()
    return lambda: f"n{next(numbers)}"


def leaf(name: str, *columns: str, key: str = "id", kind: str = "INT") -> Leaf:
    """An input whose columns are called `<name>_<column>`; the key comes first."""
    every = (key, *columns)
    attributes = tuple(Attribute(f"{name}_{c}", kind, c != key) for c in every)
    sources = tuple((f"{name}_{c}", c) for c in every)
    return Leaf(name, sources, attributes, (f"{name}_{key}",))


def column(name: str, kind: str = "INT", nullable: bool = True) -> Expr:
    return Expr(name, kind, nullable, frozenset({name}))


def expression(text: str, *uses: str, kind: str = "INT", nullable: bool = True) -> Expr:
    return Expr(text, kind, nullable, frozenset(uses))


def equal(one: str, two: str) -> Expr:
    return Expr(f"{one} = {two}", "BOOLEAN", True, frozenset({one, two}), None, (column(one), column(two)))


def call(name: str, kind: CallKind, uses: str = "", exact: bool = True, of: str = "INT") -> Call:
    value = expression(f"{kind}({uses})", *([uses] if uses else []), kind="BIGINT")
    return Call(name, kind, value, column(uses, of) if uses else None, exact=exact)


def tree_of(root: Node, *visible: str) -> Tree:
    """A tree that shows these columns under their own names."""
    kinds = {a.name: a for a in root.columns}
    inputs = {
        found.input: InputSchema(
            tuple(InputColumn(c, a.type, a.nullable) for (_, c), a in zip(found.sources, found.columns, strict=True)),
            tuple(c for n, c in found.sources if n in found.key),
        )
        for found in tree.leaves(root)
    }
    shown = tuple(Visible(n, kinds[n].type, kinds[n].nullable, n) for n in visible)
    return Tree("", shown, inputs, root)


def grouped(child: Node, group: str, *calls: Call) -> Node:
    return build.aggregate(child, [group] if group else [], calls)
