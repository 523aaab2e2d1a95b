"""Spark's expressions as columns: attributes get the tree's names, scalar sub-queries become columns of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.classic.column import Column

from headwater.view.tree import Expr, Order


class Unsupported(Exception):
    """The plan has something that our tree cannot express; the text says what, for people."""


def sequence(found: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [found.apply(i) for i in range(found.size())]


def kind_of(thing: Any) -> str:
    """The class of a node or expression without its package."""
    return str(thing.getClass().getName()).rsplit(".", 1)[-1].rsplit("$", 1)[0]


def number(attribute: Any) -> int:
    """What identifies an attribute in a plan, whatever it is called."""
    return int(attribute.exprId().id())


UNEXPECTED = ("Exists", "ListQuery", "InSubquery", "LateralSubquery", "DynamicPruningSubquery", "OuterReference")

PEERS = ("Rank", "DenseRank", "PercentRank", "CumeDist")  # window functions that give equal rows equal values

Names = Mapping[int, str]
Replace = Callable[[Any], str | None]


def _nothing(_: Any) -> None:
    return None


class Converter:
    """Makes expressions over the tree's names, and gives out these names."""

    def __init__(self, session: SparkSession) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._wrap = jvm.org.apache.spark.sql.classic.ExpressionUtils.column
        self.session = session
        self._given = 0
        self.queries: list[tuple[Any, str]] = []  # scalar sub-queries met, and the names that stand for them

    def fresh(self) -> str:
        """The next unused name."""
        self._given += 1
        return f"c{self._given - 1}"

    def expression(self, source: Any, names: Names, replace: Replace = _nothing) -> Expr:
        """An expression over the columns of `names`; `replace` may name the column that a part of it already is."""
        uses: set[str] = set()
        met = len(self.queries)
        made = self._renamed(source, names, replace, uses)
        plain = next(iter(uses)) if kind_of(made) == "UnresolvedAttribute" else ""
        sides = None
        if kind_of(source) in ("EqualTo", "EqualNullSafe") and met == len(self.queries):
            left, right = sequence(source.children())
            sides = self.expression(left, names, replace), self.expression(right, names, replace)
        kind = source.dataType().sql()
        return Expr(plain or source.sql(), kind, source.nullable(), frozenset(uses), self.column(made), sides)

    def conditions(self, source: Any, names: Names) -> list[Expr]:
        """A condition as the parts that must all be true."""
        if kind_of(source) == "And":
            return [e for side in sequence(source.children()) for e in self.conditions(side, names)]
        return [self.expression(source, names)]

    def column(self, expression: Any) -> Column:
        return Column(self._wrap(expression))

    def attribute(self, name: str) -> Any:
        return self._catalyst.analysis.UnresolvedAttribute(self.seq([name]))

    def seq(self, items: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(list(items))

    def term(self, order: Order) -> Any:
        """A term of an ORDER BY."""
        found = self._catalyst.expressions
        way = _object(found, "Ascending" if order.ascending else "Descending")
        nulls = _object(found, "NullsFirst" if order.nulls_first else "NullsLast")
        return found.SortOrder(self.attribute(order.name), way, nulls, self.seq([]))

    def window(self, function: Any, partition: Sequence[Any], order: Sequence[Any], frame: Any) -> Any:
        """A window function over a window, of converted parts."""
        spec = self._catalyst.expressions.WindowSpecDefinition(self.seq(partition), self.seq(order), frame)
        return self._catalyst.expressions.WindowExpression(function, spec)

    def renamed(self, source: Any, names: Names) -> Any:
        """A JVM expression over the tree's names."""
        return self._renamed(source, names, _nothing, set())

    def _renamed(self, source: Any, names: Names, replace: Replace, uses: set[str]) -> Any:
        known = replace(source)
        kind = kind_of(source)
        if known is None and kind == "AttributeReference":
            known = names.get(number(source))
            if known is None:
                raise Unsupported(f"Spark's plan refers to {source.name()} from outside its operator")
        elif known is None and kind == "ScalarSubquery":
            known = self.fresh()
            self.queries.append((source, known))
        elif known is None and kind in UNEXPECTED:
            raise Unsupported(f"a sub-query that Spark left as it is ({kind})")
        if known is not None:
            uses.add(known)
            return self.attribute(known)
        if kind in PEERS:
            return source.withOrder(self.seq([]))  # Spark fills in the window's own order again
        below = sequence(source.children())
        if not below:
            return source
        made = [self._renamed(e, names, replace, uses) for e in below]
        try:
            return source.withNewChildren(self.seq(made))
        except Py4JJavaError:  # it wants to know the types of its children at once
            return self._with_types(source, [self._typed(e, old) for e, old in zip(made, below, strict=True)])

    def _with_types(self, source: Any, children: list[Any]) -> Any:
        try:
            return source.withNewChildren(self.seq(children))
        except Py4JJavaError as e:
            raise Unsupported(f"there is no rule for {source.prettyName()}()") from e

    def _typed(self, made: Any, source: Any) -> Any:
        """A cast to the type it has anyway, which Spark removes again."""
        return self._catalyst.expressions.Cast(made, source.dataType(), self._jvm.scala.Option.empty())


def _object(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
