"""One node of Spark's plan at a time as an operator of our tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as fn

from headwater.view import build, tree
from headwater.view.plan.aggregates import aggregate
from headwater.view.plan.expressions import Converter, Unsupported, kind_of, number, sequence
from headwater.view.plan.windows import windowed
from headwater.view.tree import Attribute, Expr, InputSchema, Node

JOINS: dict[str, tree.JoinKind] = {
    "LeftOuter": "left",
    "RightOuter": "left",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
    "ExistenceJoin": "existence",
}

SPREADING = ("Repartition", "RepartitionByExpression", "RebalancePartitions")  # they keep all rows as they are


@dataclass(frozen=True, slots=True)
class Read:
    """An operator, which of its columns each attribute of the plan is, and the plan's output in order.

    `order` is how the query sorted the rows: below a window, a LIMIT of a lateral sub-query has no other trace.
    """

    node: Node
    names: dict[int, str]
    output: list[str]
    order: tuple[tree.Order, ...] = ()


class Reader:
    """Reads a plan from its root to its leaves; afterwards `order`, `limit` and `offset` are those of the root."""

    def __init__(self, converter: Converter, leaves: Mapping[int, str], inputs: Mapping[str, InputSchema]) -> None:
        self.converter = converter
        self._leaves = leaves
        self._inputs = inputs
        self.order: tuple[tree.Order, ...] = ()
        self.limit: int | None = None
        self.offset = 0

    def root(self, plan: Any) -> Read:
        """The query: its last ORDER BY and LIMIT are kept apart, for whoever reads its rows."""
        kind = kind_of(plan)
        if kind == "Project":
            return self._project(plan, self.root(plan.child()))
        if kind in ("GlobalLimit", "Offset"):
            self.limit, self.offset, below = _limits(plan)
            return self._ordered(below)
        return self._ordered(plan)

    def _ordered(self, plan: Any) -> Read:
        if kind_of(plan) == "Project":
            return self._project(plan, self._ordered(plan.child()))
        if kind_of(plan) == "Sort":
            child, self.order = self._order(plan)
            return child
        return self.read(plan)

    def read(self, plan: Any) -> Read:
        """Any operator below the root."""
        kind = kind_of(plan)
        if kind in ("LogicalRDD", "LocalRelation", "OneRowRelation"):
            return self._leaf(plan) if kind == "LogicalRDD" else self._constant(plan)
        if kind in ("GlobalLimit", "Offset"):
            return self._top(plan)
        if kind == "Sort":
            child, order = self._order(plan)
            return replace(child, order=order)
        if kind == "Join":
            return self._join(plan)
        if kind == "Union":
            return self._union(plan)
        one: Callable[[Any, Read], Read] | None = {
            "Project": self._project,
            "Filter": self._filter,
            **dict.fromkeys(SPREADING, lambda _, child: replace(child, order=())),
            "Aggregate": self._aggregate,
            "Window": self._window,
            "Expand": self._expand,
            "Generate": self._generate,
        }.get(kind)
        if one is None:
            raise Unsupported(f"there is no rule for {kind}")
        return one(plan, self.read(plan.child()))

    def attributes(self, plan: Any) -> list[tuple[int, Attribute]]:
        """A plan's output under new names."""
        found = sequence(plan.output())
        return [(number(a), self._named(a)) for a in found]

    def _named(self, attribute: Any) -> Attribute:
        return Attribute(self.converter.fresh(), attribute.dataType().sql(), attribute.nullable())

    def with_queries(self, child: Node) -> Node:
        """The child with the values of the scalar sub-queries that were met since the last call."""
        met, self.converter.queries = self.converter.queries, []
        for source, name in met:
            if sequence(source.children()):
                raise Unsupported("a correlated scalar sub-query that Spark left as it is")
            query = self.read(source.plan())
            child = build.with_scalar(child, query.node, query.output[0], name)
        return child

    def _leaf(self, plan: Any) -> Read:
        schema = self._inputs[self._leaves[plan.rdd().id()]]
        found = self.attributes(plan)
        sources = tuple((a.name, c.name) for (_, a), c in zip(found, schema.columns, strict=True))
        of = {column: name for name, column in sources}
        columns = tuple(a for _, a in found)
        node = tree.Leaf(self._leaves[plan.rdd().id()], sources, columns, tuple(of[k] for k in schema.key))
        return Read(node, {i: a.name for i, a in found}, [a.name for a in columns])

    def _constant(self, plan: Any) -> Read:
        found = self.attributes(plan)
        if any("MAP<" in a.type for _, a in found):
            raise Unsupported("constant rows with maps")
        session = self.converter.session
        jvm: Any = session._jvm
        rows = DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
        columns = [a for _, a in found]
        rows = rows.toDF(*(a.name for a in columns))
        position = Attribute(self.converter.fresh(), build.INT, False)
        counted = fn.row_number().over(Over.orderBy(*(a.name for a in columns))) if columns else fn.lit(1)
        node = tree.Constant(rows.select("*", counted.alias(position.name)), (*columns, position), (position.name,))
        return Read(node, {i: a.name for i, a in found}, [a.name for a in columns])

    def _project(self, plan: Any, child: Read) -> Read:
        made: list[tuple[str, Expr]] = []
        names = dict(child.names)
        output = []
        for source, attribute in zip(sequence(plan.projectList()), sequence(plan.output()), strict=True):
            value = self.converter.expression(_value(source), child.names)
            name = value.plain
            if name is None or name not in build.names_of(child.node):
                name = self.converter.fresh()
                made.append((name, value))
            names[number(attribute)] = name
            output.append(name)
        return Read(build.project(self.with_queries(child.node), made), names, output, child.order)

    def _filter(self, plan: Any, child: Read) -> Read:
        condition = self.converter.expression(plan.condition(), child.names)
        return Read(build.filtered(self.with_queries(child.node), condition), child.names, child.output, child.order)

    def _join(self, plan: Any) -> Read:
        left, right = (self.read(side) for side in sequence(plan.children()))
        names = {**left.names, **right.names}
        given = plan.condition()
        conditions = self.converter.conditions(given.get(), names) if given.isDefined() else []
        first = self.with_queries(left.node)
        kind = kind_of(plan.joinType())
        if kind in ("Inner", "Cross"):
            return Read(build.inner((first, right.node), conditions), names, left.output + right.output)
        if kind not in JOINS:
            raise Unsupported(f"there is no rule for a {kind} join")
        sides = (right.node, first) if kind == "RightOuter" else (first, right.node)
        node = build.joined(JOINS[kind], *sides, conditions, self.converter.fresh)
        if kind == "ExistenceJoin":
            exists = {number(plan.joinType().exists()): node.exists}
            return Read(node, left.names | exists, [*left.output, node.exists])
        if kind in ("LeftSemi", "LeftAnti"):
            return Read(node, left.names, left.output)
        return Read(node, names, left.output + right.output)

    def _aggregate(self, plan: Any, child: Read) -> Read:
        node, names, output = aggregate(self, plan, child.node, child.names)
        if child.order and any(not call.exact for call in _calls(node)):
            raise Unsupported("an aggregate whose value depends on the ORDER BY below it")
        return Read(node, names, output)

    def _window(self, plan: Any, child: Read) -> Read:
        node, names, output = windowed(self, plan, child.node, child.names, child.order)
        return Read(node, child.names | names, child.output + output)

    def _union(self, plan: Any) -> Read:
        found = [self.read(child) for child in sequence(plan.children())]
        outputs = self.attributes(plan)
        node = build.union(
            [f.node for f in found], [a for _, a in outputs], [f.output for f in found], self.converter.fresh
        )
        return Read(node, {i: a.name for i, a in outputs}, [a.name for _, a in outputs])

    def _expand(self, plan: Any, child: Read) -> Read:
        outputs = self.attributes(plan)
        arms = [
            [self.converter.expression(e, child.names) for e in sequence(arm)] for arm in sequence(plan.projections())
        ]
        node = build.expanded(self.with_queries(child.node), [a for _, a in outputs], arms, self.converter.fresh)
        return Read(node, {i: a.name for i, a in outputs}, [a.name for _, a in outputs])

    def _generate(self, plan: Any, child: Read) -> Read:
        source = plan.generator()
        kind = kind_of(source)
        below = sequence(source.children())
        arguments = [self.converter.expression(e, child.names) for e in below]
        outputs = sequence(plan.generatorOutput())
        position = Attribute(self.converter.fresh(), build.INT, plan.outer())
        outer = bool(plan.outer())
        first = self.with_queries(child.node)
        make: Callable[..., Node] = build.generated
        if kind == "ReplicateRows":  # its output is its input, n times
            node = make(first, "copies", arguments[:1], (), position, False)
            copied = {number(a): e.plain for a, e in zip(outputs, arguments[1:], strict=True)}
            if None in copied.values():
                raise Unsupported("there is no rule for copies of expressions")
            names = child.names | {i: name for i, name in copied.items() if name}
            return Read(node, names, self._kept(plan, names))
        made = [self._named(a) for a in outputs]
        if kind in ("Explode", "PosExplode"):
            if kind == "PosExplode":
                position = made[0]
            shape: tree.GeneratorKind = "map" if arguments[0].type.startswith("MAP<") else "array"
            node = make(first, shape, arguments, made, position, outer)
        elif kind == "Inline":
            node = make(first, "structs", arguments, made, position, outer)
        elif kind == "JsonTuple":
            whole = self.converter.expression(source, child.names)
            node = make(first, "tuple", [whole], made, None, outer)
        elif kind == "Stack":
            node = make(first, "stack", arguments, made, position, outer)
        else:
            raise Unsupported(f"there is no rule for the generator {source.prettyName()}")
        names = child.names | {number(a): m.name for a, m in zip(outputs, made, strict=True)}
        return Read(node, names, self._kept(plan, names))

    def _kept(self, plan: Any, names: Mapping[int, str]) -> list[str]:
        return [names[number(a)] for a in sequence(plan.output())]

    def _top(self, plan: Any) -> Read:
        limit, offset, below = _limits(plan)
        projects = []
        while kind_of(below) == "Project":  # it does not change which rows are first
            projects.append(below)
            below = below.child()
        if kind_of(below) == "Sort":
            child, order = self._order(below)
        else:
            child, order = self.read(below), ()
        found = Read(build.top(child.node, order, limit, offset), child.names, child.output)
        for project in reversed(projects):
            found = self._project(project, found)
        return found

    def _order(self, plan: Any) -> tuple[Read, tuple[tree.Order, ...]]:
        """What a Sort sorts, with all its terms as columns, and these terms."""
        child = self.read(plan.child())
        made: list[tuple[str, Expr]] = []
        order = []
        for term in sequence(plan.order()):
            value = self.converter.expression(term.child(), child.names)
            name = value.plain
            if name is None or name not in build.names_of(child.node):
                name = self.converter.fresh()
                made.append((name, value))
            ascending = kind_of(term.direction()) == "Ascending"
            order.append(tree.Order(name, ascending, kind_of(term.nullOrdering()) == "NullsFirst"))
        node = build.project(self.with_queries(child.node), made)
        return Read(node, child.names, child.output), tuple(order)


def _calls(node: Node) -> tuple[tree.Call, ...]:
    """The calls of an aggregate that may have a projection above it."""
    below = node.child if isinstance(node, tree.Project) else node
    return below.calls if isinstance(below, tree.Aggregate) else ()


def _value(source: Any) -> Any:
    return source.child() if kind_of(source) == "Alias" else source


def _limits(plan: Any) -> tuple[int | None, int, Any]:
    """LIMIT and OFFSET on top of a plan, and the plan below them."""
    limit, offset = None, 0
    while (kind := kind_of(plan)) in ("GlobalLimit", "LocalLimit", "Offset"):
        value = plan.offsetExpr() if kind == "Offset" else plan.limitExpr()
        if kind_of(value) != "Literal":
            raise Unsupported("a LIMIT that is no constant")
        if kind == "GlobalLimit":
            if limit is not None or offset:
                break
            limit = int(value.value())
        elif kind == "Offset":
            if offset:
                break
            offset = int(value.value())
        elif limit is None or int(value.value()) != limit + offset:
            raise Unsupported("a LIMIT of each partition")
        plan = plan.child()
    return limit, offset, plan
