"""A table's filter in MySQL's SQL: it compares bytes and numbers, never by collation."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from headwater.model import Condition
from headwater.source.filter import render
from headwater.source.mysql.client.session import quote_identifier
from headwater.source.mysql.scan.keyset import ROW


def filter_text(condition: Condition) -> str:
    """The condition for a WHERE clause, in parentheses."""
    return render(condition, _operand, _constant)


def _operand(column: str, value: Any) -> str:
    """The column as it compares with the constant: text by its UTF-8 bytes, which differ for any two texts."""
    quoted = f"{ROW}.{quote_identifier(column)}"
    return f"CAST(CONVERT({quoted} USING utf8mb4) AS BINARY)" if isinstance(value, str) else quoted


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
