"""Operators with their row identity: each function makes one operator and says what identifies its rows.

A leaf has its key; project, filter, window, limit, and semi, anti and existence joins keep that of their (left) child;
a join has both sides' (NULL on the padded side), without a side that the other one determines; an aggregate has its
group columns; union and expand have the branch and the branch's key; generate has the key and the position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headwater.view import tree
from headwater.view.tree import Attribute, Expr, Node

Fresh = Callable[[], str]  # the next unused name

INT = "INT"


def names_of(node: Node) -> set[str]:
    return {a.name for a in node.columns}


def attribute(node: Node, name: str) -> Attribute:
    return next(a for a in node.columns if a.name == name)


def nullable(columns: Sequence[Attribute]) -> tuple[Attribute, ...]:
    return tuple(replace(a, nullable=True) for a in columns)


def project(child: Node, made: Sequence[tuple[str, Expr]]) -> Node:
    """The child with more columns; the child itself if there are none."""
    if not made:
        return child
    new = tuple(Attribute(name, e.type, e.nullable) for name, e in made)
    return tree.Project(child, tuple(made), child.columns + new, child.key)


def filtered(child: Node, condition: Expr) -> Node:
    return tree.Filter(child, condition, child.columns, child.key)


def inner(inputs: Sequence[Node], conditions: Sequence[Expr]) -> Node:
    """An inner join; inner joins among the inputs become part of it."""
    flat: list[Node] = []
    found: list[Expr] = []
    for node in inputs:
        if isinstance(node, tree.Inner):
            flat += node.inputs
            found += node.conditions
        else:
            flat.append(node)
    found += conditions
    columns = tuple(a for node in flat for a in node.columns)
    return tree.Inner(tuple(flat), tuple(found), columns, _joined_key(flat, found))


def _joined_key(inputs: Sequence[Node], conditions: Sequence[Expr]) -> tuple[str, ...]:
    """All keys, except those of inputs whose key the others determine by equalities."""
    kept = list(inputs)
    for node in reversed(inputs):
        others = [other for other in kept if other is not node]
        if others and node in kept and determined(node, others, conditions):
            kept = others
    return tuple(name for node in kept for name in node.key)


def determined(node: Node, others: Sequence[Node], conditions: Sequence[Expr]) -> bool:
    """Whether at most one row of `node` meets a row of the others: each part of its key equals something of theirs."""
    known = set().union(*(names_of(other) for other in others))
    if any("COLLATE" in attribute(node, name).type for name in node.key):
        return False  # equal by collation is not the same key
    fixed = set()
    for condition in conditions:
        if condition.sides is not None:
            one, two = condition.sides
            fixed |= {a.plain for a, b in ((one, two), (two, one)) if a.plain is not None and b.uses <= known}
    return set(node.key) <= fixed


def joined(kind: tree.JoinKind, left: Node, right: Node, conditions: Sequence[Expr], fresh: Fresh) -> tree.Join:
    """A join that is not inner."""
    found = tuple(conditions)
    if kind in ("semi", "anti"):
        return tree.Join(kind, left, right, found, left.columns, left.key)
    if kind == "existence":
        exists = Attribute(fresh(), "BOOLEAN", False)
        return tree.Join(kind, left, right, found, (*left.columns, exists), left.key, exists=exists.name)
    if kind == "left":
        key = left.key if determined(right, [left], found) else left.key + right.key
        return tree.Join(kind, left, right, found, left.columns + nullable(right.columns), key)
    columns = nullable(left.columns) + nullable(right.columns)
    if _never_all_null(left) and _never_all_null(right):
        return tree.Join(kind, left, right, found, columns, left.key + right.key)
    side = Attribute(fresh(), INT, False)
    key = (side.name, *left.key, *right.key)
    return tree.Join(kind, left, right, found, (*columns, side), key, side=side.name)


def _never_all_null(node: Node) -> bool:
    return any(not attribute(node, name).nullable for name in node.key)


def aggregate(child: Node, groups: Sequence[str], calls: Sequence[tree.Call]) -> Node:
    distinct = tuple(dict.fromkeys(groups))
    columns = tuple(attribute(child, name) for name in distinct)
    columns += tuple(Attribute(c.name, c.value.type, c.value.nullable) for c in calls)
    return tree.Aggregate(child, distinct, tuple(calls), columns, distinct)


def windowed(child: Node, partition: Sequence[str], made: Sequence[tuple[str, Expr]], inexact: set[str]) -> Node:
    new = tuple(Attribute(name, e.type, e.nullable) for name, e in made)
    return tree.Window(child, tuple(partition), tuple(made), child.columns + new, child.key, frozenset(inexact))


def union(children: Sequence[Node], outputs: Sequence[Attribute], arms: Sequence[Sequence[str]], fresh: Fresh) -> Node:
    """All rows of the children; parts of their keys share a column where they have the same type."""
    slots: list[Attribute] = []
    rows: list[list[str | None]] = [list(arm) for arm in arms]
    placed: list[dict[int, str]] = []
    for node in children:
        mine: dict[int, str] = {}
        for name in node.key:
            part = attribute(node, name)
            free = (i for i, slot in enumerate(slots) if slot.type == part.type and i not in mine)
            at = next(free, len(slots))
            if at == len(slots):
                slots.append(Attribute(fresh(), part.type, True))
            mine[at] = name
        placed.append(mine)
    for row, mine in zip(rows, placed, strict=True):
        row += [mine.get(i) for i in range(len(slots))]
    branch = Attribute(fresh(), INT, False)
    key = (branch.name, *(slot.name for slot in slots))
    return tree.Union(tuple(children), tuple(tuple(r) for r in rows), branch.name, (*outputs, *slots, branch), key)


def expanded(child: Node, outputs: Sequence[Attribute], arms: Sequence[Sequence[Expr]], fresh: Fresh) -> Node:
    branch = Attribute(fresh(), INT, False)
    kept = tuple(attribute(child, name) for name in child.key)
    names = tuple(a.name for a in outputs)
    found = tuple(tuple(arm) for arm in arms)
    return tree.Expand(child, names, found, branch.name, (*outputs, *kept, branch), (branch.name, *child.key))


def generated(
    child: Node,
    kind: tree.GeneratorKind,
    arguments: Sequence[Expr],
    made: Sequence[Attribute],
    position: Attribute | None,
    outer: bool,
) -> Node:
    """`position` may be one of `made` (posexplode)."""
    columns = child.columns + tuple(made)
    if position is not None and position not in made:
        columns += (position,)
    key = child.key if position is None else (*child.key, position.name)
    name = "" if position is None else position.name
    return tree.Generate(child, kind, tuple(arguments), tuple(made), name, outer, columns, key)


def top(child: Node, order: Sequence[tree.Order], limit: int | None, offset: int) -> Node:
    return tree.Top(child, tuple(order), limit, offset, child.columns, child.key)


def with_scalar(child: Node, query: Node, value: str, name: str) -> Node:
    given = replace(attribute(query, value), name=name, nullable=True)
    return tree.Scalar(child, query, value, name, (*child.columns, given), child.key)
