"""Which rule maintains each operator when inputs change, and why the whole view is recomputed where there is none.

Pure: a tree and the names of the inputs that changed go in, words come out.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from headwater.view import tree
from headwater.view.tree import Aggregate, Filter, Join, Leaf, Node, Project, Scalar, Tree, Union, Window

Word = Literal["none", "append", "rows", "groups", "keys", "full"]


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator is maintained: for people, in EXPLAIN."""

    operator: str
    word: Word
    key: tuple[str, ...]
    note: str
    below: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class RootAggregate:
    """An aggregate whose rows are the view's, and the steps from it to the output, bottom up."""

    aggregate: Aggregate
    steps: tuple[Project | Filter | Scalar, ...]


def top_of(node: Node) -> RootAggregate | None:
    """The aggregate below the root, if only projections, filters and scalar sub-queries are above it."""
    steps: list[Project | Filter | Scalar] = []
    while isinstance(node, Project | Filter | Scalar):
        steps.append(node)
        node = node.child
    return RootAggregate(node, tuple(reversed(steps))) if isinstance(node, Aggregate) else None


def adjusted(node: Node) -> RootAggregate | None:
    """The aggregate below the root, if all its calls can be adjusted by added and removed rows."""
    top = top_of(node)
    return top if top is not None and all(call.adjustable for call in top.aggregate.calls) else None


@dataclass(frozen=True, slots=True)
class Decision:
    """How a refresh is done: its strategy, why it is `full`, and whether removed rows are taken from the view."""

    word: Word
    reason: str = ""
    from_state: bool = False


def decide(of: Tree, changed: Set[str], appended: Set[str]) -> Decision:
    """The strategy of a refresh in which these inputs changed; `appended` are those that only have new rows."""
    if not changed & set(of.inputs) or (of.root is not None and not moves(of.root, changed)):
        return Decision("none")
    reason = blocked(of, changed)
    if reason:
        return Decision("full", reason)
    assert of.root is not None
    if adjusts(of, changed):
        return Decision("groups")
    words = {word_of(node, changed) for node in tree.walk(of.root) if moves(node, changed)}
    if "keys" in words:
        return Decision("keys", from_state=bool(inexact(of.root, changed)))
    return Decision("append" if changed & set(of.inputs) <= appended else "rows")


def adjusts(of: Tree, changed: Set[str]) -> bool:
    """Whether the view's own groups can be adjusted: an aggregate of such calls is at the root, over exact values."""
    top = adjusted(of.root) if of.root is not None else None
    return top is not None and not inexact(top.aggregate.child, changed)


def moves(node: Node, changed: Set[str]) -> bool:
    """Whether an operator's rows can have changed."""
    return any(leaf.input in changed for leaf in tree.leaves(node))


def word_of(node: Node, changed: Set[str]) -> Word:
    """The rule of one operator whose rows can have changed, below the root."""
    match node:
        case Aggregate() | Window():
            return "keys"
        case Join():
            return "keys" if node.kind == "full" or moves(node.right, changed) else "rows"
        case tree.Top():
            return "full"
        case Leaf() | tree.Constant() | Project() | Filter() | tree.Inner() | Union():
            return "rows"
        case tree.Expand() | tree.Generate() | Scalar():
            return "rows"


def blocked(of: Tree, changed: Set[str]) -> str:
    """Why there is no incremental rule when these inputs change; "" if there is."""
    if of.root is None:
        return of.reason
    top = _aggregate_of(of.root)
    for node in tree.walk(of.root):
        if moves(node, changed) and (reason := _blocked_at(node, node is top, changed)):
            return reason
    return _inexact_inside(of.root, top, changed)


def _blocked_at(node: Node, at_root: bool, changed: Set[str]) -> str:
    match node:
        case tree.Top():
            return "any change can move the border of a LIMIT inside the query"
        case Scalar() if moves(node.query, changed):
            return "the value of a scalar sub-query can have changed, and with it any row"
        case Window(partition=()):
            return "a window function without PARTITION BY"
        case Aggregate() | Window() if any("MAP<" in a.type for a in node.columns if a.name in _together(node)):
            return "maps cannot be compared to find a group again"
        case Aggregate(groups=()) if not at_root:
            return "an aggregate over all rows inside the query can have changed, and with it any row"
        case Aggregate(groups=()):
            other = next((call for call in node.calls if not call.adjustable), None)
            return f"{other.value.text} over all rows cannot be adjusted" if other else ""
        case _:
            return ""


def _together(node: Aggregate | Window) -> tuple[str, ...]:
    """The columns that say which rows an operator looks at together."""
    return node.groups if isinstance(node, Aggregate) else node.partition


def _aggregate_of(root: Node) -> Aggregate | None:
    top = top_of(root)
    return None if top is None else top.aggregate


def inexact(node: Node, changed: Set[str]) -> frozenset[str]:
    """Columns below and at an operator whose values two evaluations may differ in: sums of doubles, first, …"""
    found: set[str] = set()
    for each in reversed(list(tree.walk(node))):
        if moves(each, changed):
            found |= _inexact_of(each, found)
    return frozenset(found)


def _inexact_of(node: Node, known: set[str]) -> set[str]:
    match node:
        case Aggregate():
            return {c.name for c in node.calls if not c.exact or c.value.uses & known}
        case Window():
            return set(node.inexact) | {name for name, e in node.made if e.uses & known}
        case Project():
            return {name for name, e in node.made if e.uses & known}
        case Union():
            outputs = [a.name for a in node.columns]
            return {o for arm in node.arms for o, n in zip(outputs, arm, strict=False) if n in known}
        case tree.Expand():
            return {name for arm in node.arms for name, e in zip(node.names, arm, strict=True) if e.uses & known}
        case tree.Generate() if any(e.uses & known for e in node.arguments):
            return {a.name for a in node.made} | {node.position}
        case Scalar() if node.value in known:
            return {node.name}
        case _:
            return set()


def _inexact_inside(root: Node, top: Aggregate | None, changed: Set[str]) -> str:
    """Why values that may differ between evaluations forbid an incremental rule.

    A removed row must be found in the view again. That is certain only where the view's own rows are replaced by key,
    and where the values that select rows, groups or partitions are exact.
    """
    for path in _paths(root):
        node = path[-1]
        if not moves(node, changed) or not _made_inexact(node):
            continue
        found = inexact(node, changed)
        for above, below in reversed(list(pairwise(path))):
            known = inexact(above, changed) | found
            if top is not None and above is top:
                if not top.groups:
                    return f"{top.calls[0].value.text} over all rows of values that are not exact cannot be adjusted"
                if set(top.groups) & known:
                    return "groups by a value that is not exact (a sum of floating point numbers, first, …)"
                break  # its groups are recomputed and replace the view's own
            if not _keeps(above, below, known):
                return "uses a value that is not exact (a sum of floating point numbers, first, …) inside the query"
    return ""


def _made_inexact(node: Node) -> bool:
    if isinstance(node, Aggregate):
        return any(not call.exact for call in node.calls)
    return isinstance(node, Window) and bool(node.inexact)


def _keeps(above: Node, below: Node, inexact: Set[str]) -> bool:
    match above:
        case Project():
            return True
        case Filter():
            return not above.condition.uses & inexact
        case Scalar():
            return above.child is below
        case Window():
            return not set(above.partition) & inexact
        case _:
            return False


def _paths(node: Node, above: tuple[Node, ...] = ()) -> Iterator[tuple[Node, ...]]:
    path = (*above, node)
    yield path
    for child in tree.children(node):
        yield from _paths(child, path)


def explain(of: Tree) -> Rule:
    """The rule of each operator if all inputs change, for people."""
    everything = frozenset(of.inputs)
    if of.root is None:
        return Rule(
            "query",
            "full",
            (),
            of.reason,
            tuple(Rule(f"input {name}", "rows", s.key, "", ()) for name, s in of.inputs.items()),
        )
    readable = {v.source: v.name for v in reversed(of.visible)}
    for leaf in tree.leaves(of.root):
        for name, column in leaf.sources:
            readable.setdefault(name, f"{leaf.input}.{column}")
    top = _aggregate_of(of.root)

    def rule(node: Node) -> Rule:
        word: Word = word_of(node, everything) if moves(node, everything) else "none"
        note = _blocked_at(node, node is top, everything) if moves(node, everything) else ""
        if note:
            word = "full"
        elif node is top and adjusts(of, everything):
            word = "groups"
        key = tuple(readable.get(name, name) for name in node.key)
        return Rule(title(node), word, key, note, tuple(rule(child) for child in tree.children(node)))

    return rule(of.root)


def title(node: Node) -> str:
    """An operator in a few words."""
    match node:
        case Leaf():
            return f"input {node.input}"
        case Join():
            return f"{node.kind} join"
        case tree.Inner():
            return f"inner join of {len(node.inputs)}"
        case Aggregate():
            return "aggregate" if node.calls else "distinct"
        case tree.Top():
            return "limit"
        case Scalar():
            return "scalar sub-query"
        case _:
            return type(node).__name__.lower()
