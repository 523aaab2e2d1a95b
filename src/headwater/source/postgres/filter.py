"""A table's filter as PostgreSQL reads it."""

from __future__ import annotations

import datetime
from typing import Any

from headwater.model import Condition, Joined, Test
from headwater.source.postgres.session import quote_identifier, quote_literal


def filter_text(condition: Condition) -> str:
    """The condition for a WHERE, in parentheses."""
    match condition:
        case Joined(word="not", parts=(part,)):
            return f"(NOT {filter_text(part)})"
        case Joined(word=word, parts=parts):
            return "(" + f" {word.upper()} ".join(filter_text(p) for p in parts) + ")"
        case Test(column=column, op="null"):
            return f"({quote_identifier(column)} IS NULL)"
        case Test(column=column, op="in", values=values):
            return f"({quote_identifier(column)} IN ({', '.join(_constant(v) for v in values)}))"
        case Test(column=column, op=op, values=(value,)):
            return f"({quote_identifier(column)} {op} {_constant(value)})"
    raise AssertionError(condition)


def _constant(value: Any) -> str:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case datetime.datetime():
            kind = "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
            return f"{kind} {quote_literal(value.isoformat(sep=' '))}"
        case datetime.date():
            return f"DATE {quote_literal(value.isoformat())}"
        case str():
            return quote_literal(value)
    return str(value)
