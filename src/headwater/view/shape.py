"""What a view over a tree stores: its visible columns, then hidden ones for identity, counters, order and HAVING."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from headwater.view import build, rules, tree
from headwater.view.rules import RootAggregate, adjusted
from headwater.view.tree import Call, Filter, Tree

COUNT = "__n"  # how many rows a group has
SHOWN = "__shown"  # whether a group passes HAVING
WEIGHT = "__w"  # of a signed row: -1 removed, +1 added
INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column of a view's base, its type in Spark's DDL."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class Counter:
    """What is stored to adjust one aggregate call: a sum, and how many values are in it."""

    call: Call
    total: str  # "" if there is nothing to sum
    total_type: str
    count: str  # `__n` if every row counts


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a view's base and how its rows are read."""

    columns: tuple[StoredColumn, ...]
    key: tuple[str, ...]  # names among the columns; may be NULL and compare null-safe
    visible: int  # that many columns, the first ones, are what a reader sees
    sources: tuple[tuple[str, str], ...]  # stored column, column of the tree's root; counters and `__shown` have none
    counters: tuple[Counter, ...]
    order: tuple[tree.Order, ...]  # over stored columns, applied when reading
    limit: int | None
    offset: int
    inputs: Mapping[str, tuple[str, ...]]  # the inputs, and those of their columns that the view depends on
    rules: rules.Rule  # how each operator is maintained
    reason: str  # why every refresh recomputes the view; "" if not

    @property
    def shown_columns(self) -> tuple[StoredColumn, ...]:
        """The columns that a reader sees."""
        return self.columns[: self.visible]

    @property
    def shown(self) -> bool:
        """Whether some stored rows are hidden from readers."""
        return self.columns[-1].name == SHOWN


@lru_cache(maxsize=1000)  # a tree is used for many refreshes
def shape(of: Tree) -> Shape:
    """What a view over this tree stores."""
    if of.root is None:
        return _unknown(of)
    sources = [(v.name, v.source) for v in of.visible]
    columns = [StoredColumn(v.name, v.type, v.nullable) for v in of.visible]
    seen: dict[str, str] = {}
    for name, source in sources:
        seen.setdefault(source, name)
    key: list[str] = []
    parts = of.root.key or ("",)  # a single row has a constant key
    for source in parts:
        if source not in seen:
            name = f"__k{len([c for c in columns if c.name.startswith('__k')])}"
            part = build.attribute(of.root, source) if source else None
            kind, null = (part.type, part.nullable) if part else (build.INT, False)
            columns.append(StoredColumn(name, kind, null))
            sources.append((name, source))
            seen[source] = name
        key.append(seen[source])
    top = adjusted(of.root)
    counters, stored = _counters(top) if top else ((), [])
    columns += stored
    order: list[tree.Order] = []
    for term in of.order:
        if term.name not in seen:
            part = build.attribute(of.root, term.name)
            seen[term.name] = f"__o{len(order)}"
            columns.append(StoredColumn(seen[term.name], part.type, True))
            sources.append((seen[term.name], term.name))
        order.append(tree.Order(seen[term.name], term.ascending, term.nulls_first))
    if top is not None and any(isinstance(step, Filter) for step in top.steps):
        fixed = set(key) | {COUNT}
        columns = [c if c.name in fixed else StoredColumn(c.name, c.type, True) for c in columns]
        columns.append(StoredColumn(SHOWN, "BOOLEAN", False))
    everything = frozenset(of.inputs)
    return Shape(
        tuple(columns),
        tuple(key),
        len(of.visible),
        tuple(sources),
        counters,
        tuple(order),
        of.limit,
        of.offset,
        _inputs(of),
        rules.explain(of),
        rules.blocked(of, everything),
    )


def _unknown(of: Tree) -> Shape:
    """Of a query that is run as it is written: rows are identified by their content and a number among equals."""
    columns = [StoredColumn(v.name, v.type, True) for v in of.visible]
    columns += [StoredColumn("__k0", "STRING", False), StoredColumn("__k1", "BIGINT", False)]
    inputs = {name: tuple(c.name for c in schema.columns) for name, schema in of.inputs.items()}
    rule = rules.explain(of)
    return Shape(tuple(columns), ("__k0", "__k1"), len(of.visible), (), (), (), None, 0, inputs, rule, of.reason)


def _counters(top: RootAggregate) -> tuple[tuple[Counter, ...], list[StoredColumn]]:
    counters = []
    columns = [StoredColumn(COUNT, "BIGINT", False)]
    sums = counts = 0
    for call in top.aggregate.calls:
        every = call.condition is None and (call.argument is None or not call.argument.nullable)
        count, total, kind = COUNT, "", ""
        if not every:
            count = f"__c{counts}"
            counts += 1
        if call.kind != "count":
            total, kind = f"__s{sums}", total_type(call)
            sums += 1
            columns.append(StoredColumn(total, kind, True))
        if not every:
            columns.append(StoredColumn(count, "BIGINT", False))
        counters.append(Counter(call, total, kind, count))
    return tuple(counters), columns


def total_type(call: Call) -> str:
    """The type of a call's running total: wide enough for all that Spark's own would hold."""
    argument = call.argument
    assert argument is not None
    if call.kind in ("all", "any"):
        return "BIGINT"  # how many are true
    if argument.type in INTEGERS:
        return "DECIMAL(38,0)" if call.kind == "avg" and argument.type == "BIGINT" else "BIGINT"
    precision, scale = argument.type.removeprefix("DECIMAL(").removesuffix(")").split(",")
    return f"DECIMAL({min(38, int(precision) + 10)},{int(scale)})"


def _inputs(of: Tree) -> dict[str, tuple[str, ...]]:
    names = tree.used(of)
    found: dict[str, set[str]] = {name: set(schema.key) for name, schema in of.inputs.items()}
    assert of.root is not None
    for leaf in tree.leaves(of.root):
        found[leaf.input] |= {column for name, column in leaf.sources if name in names}
    order = {name: [c.name for c in schema.columns] for name, schema in of.inputs.items()}
    return {name: tuple(c for c in order[name] if c in wanted) for name, wanted in found.items()}
