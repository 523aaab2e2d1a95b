"""A table's filter as SQL: the same tree for every database, each with its own operands and constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headwater.model import Condition, Joined, Test

Operand = Callable[[str, Any], str]  # (column, the constant it is compared with, None if none) → its expression
Constant = Callable[[Any], str]


def render(condition: Condition, operand: Operand, constant: Constant) -> str:
    """The condition for a WHERE clause, in parentheses."""
    match condition:
        case Joined(word="not", parts=(part,)):
            return f"(NOT {render(part, operand, constant)})"
        case Joined(word=word, parts=parts):
            return "(" + f" {word.upper()} ".join(render(p, operand, constant) for p in parts) + ")"
        case Test(column=column, op="null"):
            return f"({operand(column, None)} IS NULL)"
        case Test(column=column, op="in", values=values):
            return f"({operand(column, values[0])} IN ({', '.join(constant(v) for v in values)}))"
        case Test(column=column, op=op, values=(value,)):
            return f"({operand(column, value)} {op} {constant(value)})"
    raise AssertionError(condition)
