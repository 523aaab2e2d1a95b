"""Spans as SQL: conditions on all key columns in the database's own order, values as literals of the column's type."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial

from headwater.errors import DataError
from headwater.model import Bound, Span, UpstreamType
from headwater.source import keyset
from headwater.source.mysql.catalog.types import BINARY, TEXTUAL
from headwater.source.mysql.client.session import quote_identifier

ROW = "scanned"  # the table's alias: a bare name after ORDER BY would mean the selected expression

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
FLOATS = frozenset({"float", "double"})
TEXTS = TEXTUAL | {"uuid", "inet4", "inet6"}
MEMBERS_LISTED = 1000  # of an enum, in a condition
_YES, _NO = frozenset({"1", "t", "true"}), frozenset({"0", "f", "false"})


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column and its type as it is now."""

    name: str
    type: UpstreamType

    @property
    def quoted(self) -> str:
        return f"{ROW}.{quote_identifier(self.name)}"


def condition(key: Sequence[KeyColumn], span: Span) -> str:
    """The span as a WHERE condition."""
    return keyset.condition(span, partial(_compare, key))


def literal(column: KeyColumn, text: str) -> str:
    """A key value as a constant of the column's own type, so that the index can be used and compares in its sort order.

    Texts come in the form that scans select, or as the lake prints a value: a bound may be made from either.
    """
    try:
        return _literal(column.type, text)
    except (ValueError, InvalidOperation) as e:
        raise DataError(
            "data.key_value",
            f"key column {column.name} has a bound that is not a {column.type.name}",
            "RESYNC TABLE reads it again with the key's current type.",
        ) from e


def _literal(type: UpstreamType, text: str) -> str:
    match type.name:
        case name if name in INTEGERS or (name == "bit" and not text.startswith("\\x")):
            word = text.lower()
            return "1" if word in _YES else "0" if word in _NO else str(int(text))
        case "bit":
            return str(int.from_bytes(bytes.fromhex(text[2:]), "big"))
        case "decimal":
            return f"{Decimal(text):f}"
        case name if name in FLOATS:
            number = repr(float(text))
            return number if "e" in number else f"{number}e0"  # otherwise it would be a decimal
        case name if name in BINARY:
            return f"x'{bytes.fromhex(text.removeprefix(chr(92) + 'x')).hex()}'"
        case "enum" | "set":
            return str(_number(type, text))
        case "date":
            return f"DATE'{datetime.date.fromisoformat(text).isoformat()}'"
        case "datetime" | "timestamp":
            moment = datetime.datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
            return f"TIMESTAMP'{moment.isoformat(sep=' ')}'"
        case "time":
            if not set(text) <= set("-0123456789:."):
                raise ValueError("not a time")
            return f"TIME'{text}'"
        case name if name in TEXTS:
            # In hexadecimal, so that no sql_mode and no escape can change it. A constant takes the charset and the
            # collation of the column that it is compared with.
            return f"_utf8mb4 x'{text.encode().hex()}'"
    raise ValueError(f"no key is of type {type.name}")


def _number(type: UpstreamType, text: str) -> int:
    """What an enum or a set is sorted by: its member's number, or one bit per member."""
    labels = {label: i for i, label in enumerate(type.labels)}
    if type.name == "enum":
        return labels[text] + 1 if text in labels else _no_member(text)
    return sum(1 << labels[word] if word in labels else _no_member(word) for word in text.split(",") if text)


def _no_member(text: str) -> int:
    if text:
        raise ValueError("not a member")
    return 0  # what a value that was not a member became


def _compare(key: Sequence[KeyColumn], operator: str, bound: Bound) -> str:
    """A row comparison, spelled out: the optimizer would not use an index for `(a, b) > (1, 2)`."""
    literals = [literal(k, v) for k, v in zip(key, bound.key, strict=True)]
    last = len(key) - 1
    text = _one(key[last], operator, literals[last])
    for k, value in zip(reversed(key[:last]), reversed(literals[:last]), strict=True):
        text = f"({_one(k, operator[0], value)} OR ({k.quoted} = {value} AND {text}))"
    return text


def _one(column: KeyColumn, operator: str, value: str) -> str:
    """One column compared. For an enum the optimizer uses the index only with equality."""
    members = range(len(column.type.labels) + 1)
    if column.type.name != "enum" or len(members) > MEMBERS_LISTED:
        return f"{column.quoted} {operator} {value}"
    holds = {">": int.__gt__, ">=": int.__ge__, "<": int.__lt__, "<=": int.__le__}[operator]
    those = [str(m) for m in members if holds(m, int(value))]
    return f"{column.quoted} IN ({', '.join(those)})" if those else "FALSE"
