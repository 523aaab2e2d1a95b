"""A table's filter: which rows it holds. A condition that the upstream and the lake evaluate identically.

Comparisons of one column with constants, combined with AND, OR and NOT. A value that the lake cannot represent is NULL
there, so the lake's result may be "unknown" where the upstream's is yes or no, but never the other way round: what the
lake shows is a subset of what a scan reads, and the lake's result counts, for the history and for changes.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.decode.dialects import comparable
from headwater.errors import DefinitionError
from headwater.model import Column, Condition, Joined, Test

_EQUAL = {exp.EQ: "=", exp.NEQ: "<>"}
_ORDER = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_HINT = "Compare columns with constants by =, <>, <, <=, >, >=, IN, BETWEEN and IS NULL, combined with AND, OR and NOT."


@lru_cache(maxsize=256)
def read_filter(text: str, columns: tuple[Column, ...]) -> Condition:
    """The condition that a filter's text states about these columns."""
    try:
        tree = sqlglot.parse_one(text, dialect=columns[0].upstream.dialect or None)
    except SqlglotError as e:
        raise DefinitionError("table.filter", f"the filter cannot be parsed: {str(e).splitlines()[0]}", _HINT) from e
    return _condition(tree, {c.name.lower(): c for c in columns})


def columns_of(condition: Condition) -> set[str]:
    """The columns that a condition uses."""
    if isinstance(condition, Test):
        return {condition.column}
    return set().union(*(columns_of(p) for p in condition.parts))


def _condition(node: exp.Expr, columns: dict[str, Column]) -> Condition:
    if node.args.get("negate"):  # IS NOT NULL, NOT IN
        plain = node.copy()
        plain.set("negate", None)
        return Joined("not", (_condition(plain, columns),))
    match node:
        case exp.Paren():
            return _condition(node.this, columns)
        case exp.And() | exp.Or():
            word = "and" if isinstance(node, exp.And) else "or"
            return Joined(word, (_condition(node.left, columns), _condition(node.right, columns)))
        case exp.Not():
            return Joined("not", (_condition(node.this, columns),))
        case exp.Column():
            return Test(*_checked(node, "=", [exp.true()], columns))
        case exp.Is() if isinstance(node.expression, exp.Null):
            return Test(*_checked(node.this, "null", [], columns))
        case exp.In() if node.expressions and not node.args.get("query"):
            return Test(*_checked(node.this, "in", node.expressions, columns))
        case exp.Between():
            low = Test(*_checked(node.this, ">=", [node.args["low"]], columns))
            return Joined("and", (low, Test(*_checked(node.this, "<=", [node.args["high"]], columns))))
        case exp.EQ() | exp.NEQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            op = {**_EQUAL, **_ORDER}[type(node)]
            if isinstance(node.left, exp.Column):
                return Test(*_checked(node.left, op, [node.right], columns))
            return Test(*_checked(node.right, _TURNED[op], [node.left], columns))
    raise _refused(f"`{node.sql()}` is not allowed in a filter")


def _checked(
    node: exp.Expr, op: str, constants: Sequence[exp.Expr], columns: dict[str, Column]
) -> tuple[str, str, tuple[Any, ...]]:
    if not isinstance(node, exp.Column) or node.table:
        raise _refused(f"`{node.sql()}` is not a column")
    column = columns.get(node.name.lower())
    if column is None:
        raise _refused(f"the table has no column {node.name}")
    type, known = column.upstream.name, comparable(column.upstream)
    natural = known is not None and (column.lake_type != "STRING" or not known.ordered)
    if known is None or not natural:
        raise _refused(f"{column.name} ({type}) cannot be compared reliably outside the database")
    if op == "null" and not known.kept:
        raise _refused(f"{column.name} cannot be tested for NULL: {type} has values that are NULL in the lake")
    if op in _ORDER.values() and not known.ordered:
        raise _refused(f"{column.name} can be ordered only by the database; use =, <> and IN")
    return column.name, op, tuple(_constant(c, column, known.value) for c in constants)


def _constant(node: exp.Expr, column: Column, kind: str) -> Any:
    """The constant as a value of the column's type."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal):
        node = node.this  # DATE '…', '…'::date: the column says what it is
    text = node.name
    try:
        match kind:
            case "bool":
                if not isinstance(node, exp.Boolean):
                    raise ValueError("true or false")
                return bool(node.this)
            case "integer":
                return int(_number(node))
            case "decimal":
                return Decimal(_number(node))
            case "date":
                return datetime.date.fromisoformat(_string(node))
            case "timestamp":
                value = datetime.datetime.fromisoformat(_string(node))
                if value.tzinfo is not None:
                    raise ValueError("a time without a zone")
                return value
            case "instant":
                value = datetime.datetime.fromisoformat(_string(node))
                if value.tzinfo is None:
                    raise ValueError("a time with its zone, like '2026-01-31 12:00:00+00'")
                return value.astimezone(datetime.UTC)
            case "uuid":
                return str(uuid.UUID(_string(node)))
            case _:
                return _string(node)
    except (ValueError, ArithmeticError) as e:
        raise _refused(f"`{text or node.sql()}` is not a valid {column.upstream.name} for {column.name}: {e}") from e


def _number(node: exp.Expr) -> str:
    if isinstance(node, exp.Neg):
        return "-" + _number(node.this)
    if not isinstance(node, exp.Literal) or node.is_string:
        raise ValueError("a number")
    return node.name


def _string(node: exp.Expr) -> str:
    if not isinstance(node, exp.Literal) or not node.is_string:
        raise ValueError("a text in single quotes")
    return node.name


def _refused(message: str) -> DefinitionError:
    return DefinitionError("table.filter", f"the filter cannot be used: {message}", _HINT)
