"""A table's filter in PostgreSQL's SQL."""

from __future__ import annotations

import datetime
from typing import Any

from headwater.model import Condition
from headwater.source.filter import render
from headwater.source.postgres.client.session import quote_identifier, quote_literal


def filter_text(condition: Condition) -> str:
    """The condition for a WHERE clause, in parentheses."""
    return render(condition, lambda column, _: quote_identifier(column), _constant)


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
