"""A table's filter as MySQL reads it: judged by bytes and numbers, never by a collation."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from headwater.model import Column, Condition, Joined, Test
from headwater.source.mysql.keyset import ROW
from headwater.source.mysql.session import quote_identifier


def filter_text(condition: Condition, columns: Sequence[Column]) -> str:
    """The condition for a WHERE, in parentheses."""
    return _text(condition, {c.name: c for c in columns})


def _text(condition: Condition, columns: dict[str, Column]) -> str:
    match condition:
        case Joined(word="not", parts=(part,)):
            return f"(NOT {_text(part, columns)})"
        case Joined(word=word, parts=parts):
            return "(" + f" {word.upper()} ".join(_text(p, columns) for p in parts) + ")"
        case Test(column=column, op="null"):
            return f"({_quoted(column)} IS NULL)"
        case Test(column=column, op="in", values=values):
            return f"({_operand(column, values[0])} IN ({', '.join(_constant(v) for v in values)}))"
        case Test(column=column, op=op, values=(value,)):
            return f"({_operand(column, value)} {op} {_constant(value)})"
    raise AssertionError(condition)


def _quoted(column: str) -> str:
    return f"{ROW}.{quote_identifier(column)}"


def _operand(column: str, value: Any) -> str:
    """The column as it compares with the constant: text by its UTF-8 bytes, for which no two texts are alike."""
    if isinstance(value, str):
        return f"CAST(CONVERT({_quoted(column)} USING utf8mb4) AS BINARY)"
    return _quoted(column)


def _constant(value: Any) -> str:
    match value:
        case bool():
            return "1" if value else "0"
        case datetime.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        case datetime.date():
            return f"DATE'{value.isoformat()}'"
        case str():
            return f"x'{value.encode().hex()}'"
        case Decimal():
            return f"{value:f}"
    return str(value)
