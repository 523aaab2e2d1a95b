"""A query as our own tree: operators whose rows have unique column names and a key.

Names are given out once per tree (`c0`, `c1`, …), so an operator keeps all columns of its child and adds its own; what
nobody uses is pruned by Spark when the DataFrame is planned. Key columns may be NULL and compare null-safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A column of an input, its type in Spark's DDL."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class InputSchema:
    """What a query may see of one input: its columns, and the key that identifies its rows."""

    columns: tuple[InputColumn, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column of an operator's rows."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression: its text for people, the columns it uses, and Spark's own expression to evaluate it."""

    text: str
    type: str
    nullable: bool
    uses: frozenset[str]
    column: Any = field(compare=False, repr=False, default=None)  # a pyspark Column; None in tests without Spark
    sides: tuple[Expr, Expr] | None = None  # of an equality, null-safe or not

    @property
    def plain(self) -> str | None:
        """The column that this expression is, if it is nothing but a column."""
        return self.text if self.uses == {self.text} else None


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """The rows of an input: its columns under names of the tree."""

    input: str
    sources: tuple[tuple[str, str], ...]  # name in the tree, name in the input
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Rows that the query itself holds (VALUES, SELECT without FROM)."""

    frame: Any  # a pyspark DataFrame with these columns
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """The child's rows with more columns."""

    child: Node
    made: tuple[tuple[str, Expr], ...]
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """The child's rows for which the condition is true."""

    child: Node
    condition: Expr
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Inner:
    """The inner join of two or more inputs under conditions that must all hold."""

    inputs: tuple[Node, ...]
    conditions: tuple[Expr, ...]
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


JoinKind = Literal["left", "full", "semi", "anti", "existence"]


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A join that is not inner. A right join is a left join with its sides exchanged."""

    kind: JoinKind
    left: Node
    right: Node
    conditions: tuple[Expr, ...]
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]
    exists: str = ""  # of an existence join: the column that says whether there is a match
    side: str = ""  # of a full join whose keys may be all NULL on both sides: which side a row comes from


CallKind = Literal["count", "sum", "avg", "all", "any", "other"]


@dataclass(frozen=True, slots=True)
class Call:
    """One aggregate function in an aggregate."""

    name: str
    kind: CallKind  # "other": only recomputing is right
    value: Expr  # the whole call, as Spark evaluates it
    argument: Expr | None = None  # None: every row counts
    condition: Expr | None = None  # its FILTER clause
    finish: Any = field(compare=False, repr=False, default=None)  # of avg: Spark's last step, over sum and count
    exact: bool = True  # two evaluations over the same rows always give the same value

    @property
    def adjustable(self) -> bool:
        """Whether the value can be adjusted by added and removed rows."""
        return self.kind != "other"


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """A row per group; a single one if there are no group columns."""

    child: Node
    groups: tuple[str, ...]
    calls: tuple[Call, ...]
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The child's rows with the values of window functions."""

    child: Node
    partition: tuple[str, ...]
    made: tuple[tuple[str, Expr], ...]
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]
    inexact: frozenset[str] = frozenset()  # values that two evaluations over the same rows may differ in


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """The rows of all children: per child, which of its columns becomes which (None: NULL), and its number."""

    children: tuple[Node, ...]
    arms: tuple[tuple[str | None, ...], ...]
    branch: str
    columns: tuple[Attribute, ...]  # the last one is `branch`
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Expand:
    """Several rows for each of the child's (grouping sets, hopping windows), with the child's key."""

    child: Node
    names: tuple[str, ...]
    arms: tuple[tuple[Expr, ...], ...]
    branch: str
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


GeneratorKind = Literal["array", "map", "structs", "tuple", "copies", "stack"]


@dataclass(frozen=True, slots=True, eq=False)
class Generate:
    """The child's rows, each with the rows of a generator (explode and its relatives)."""

    child: Node
    kind: GeneratorKind
    arguments: tuple[Expr, ...]
    made: tuple[Attribute, ...]
    position: str  # "" if there is one row per row
    outer: bool
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """One term of an ORDER BY."""

    name: str
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The first rows of the child in an order, ties broken by its key."""

    child: Node
    order: tuple[Order, ...]
    limit: int | None
    offset: int
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """The child's rows with the value of an uncorrelated scalar sub-query in each."""

    child: Node
    query: Node
    value: str  # column of the sub-query
    name: str  # its name here
    columns: tuple[Attribute, ...]
    key: tuple[str, ...]


Node = Leaf | Constant | Project | Filter | Inner | Join | Aggregate | Window | Union | Expand | Generate | Top | Scalar


@dataclass(frozen=True, slots=True)
class Visible:
    """An output column of the query, and which column of the root it is."""

    name: str
    type: str
    nullable: bool
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A query: its operators, its output, and the ORDER BY and LIMIT at its root.

    Without a root the query has something for which there is no rule (`reason`): it is run as it is written.
    """

    query: str
    visible: tuple[Visible, ...]
    inputs: Mapping[str, InputSchema]  # those that the query reads
    root: Node | None = None
    reason: str = ""
    order: tuple[Order, ...] = ()
    limit: int | None = None
    offset: int = 0
    session: Any = field(repr=False, default=None)  # where a query without a root is run


def children(node: Node) -> tuple[Node, ...]:
    """An operator's inputs, left to right."""
    match node:
        case Leaf() | Constant():
            return ()
        case Inner(inputs=found):
            return found
        case Join():
            return (node.left, node.right)
        case Union(children=found):
            return found
        case Scalar():
            return (node.child, node.query)
        case _:
            return (node.child,)


def walk(node: Node) -> Iterator[Node]:
    """An operator and all below it, each before its inputs."""
    yield node
    for child in children(node):
        yield from walk(child)


def leaves(node: Node) -> Iterator[Leaf]:
    """The inputs' rows below an operator; an input that is read twice comes twice."""
    return (found for found in walk(node) if isinstance(found, Leaf))


def expressions(node: Node) -> Iterator[Expr]:
    """The expressions of one operator."""
    match node:
        case Project() | Window():
            yield from (e for _, e in node.made)
        case Filter():
            yield node.condition
        case Inner() | Join():
            yield from node.conditions
        case Aggregate():
            for call in node.calls:
                yield call.value
        case Expand():
            for arm in node.arms:
                yield from arm
        case Generate():
            yield from node.arguments
        case _:
            return


def used(tree: Tree) -> frozenset[str]:
    """The names of all columns that an expression, a key, an order or the output needs."""
    if tree.root is None:
        return frozenset()
    found = {v.source for v in tree.visible} | {o.name for o in tree.order} | set(tree.root.key)
    for node in walk(tree.root):
        found.update(*(e.uses for e in expressions(node)))
        found.update(node.key)
        match node:
            case Aggregate():
                found.update(node.groups)
            case Window():
                found.update(node.partition)
            case Union():
                found.update(n for arm in node.arms for n in arm if n is not None)
            case Top():
                found.update(o.name for o in node.order)
            case Scalar():
                found.add(node.value)
    return frozenset(found)
