"""Random filters and rows, and SQL's result for them, computed naively."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

from headwater.model import Column, Condition, Joined, Test, UpstreamType

TYPES = {
    "i": ("int4", "INT"),
    "n": ("numeric", "DECIMAL(10,2)"),
    "b": ("bool", "BOOLEAN"),
    "s": ("text", "STRING"),
    "u": ("uuid", "STRING"),
    "d": ("date", "DATE"),
    "t": ("timestamp", "TIMESTAMP_NTZ"),
    "z": ("timestamptz", "TIMESTAMP"),
    "f": ("float8", "DOUBLE"),
    "c": ("bpchar", "STRING"),
    "Odd Name": ("int8", "BIGINT"),
}
COLUMNS = tuple(Column(name, lake, UpstreamType(kind, 0)) for name, (kind, lake) in TYPES.items())


MAKERS: dict[str, Any] = {
    "i": lambda r: r.randrange(-3, 4),
    "n": lambda r: Decimal(r.randrange(-300, 300)) / 100,
    "b": lambda r: r.random() < 0.5,
    "s": lambda r: r.choice(["a", "A", "it's", "b\\", "", "ä"]),
    "d": lambda r: datetime.date(2026, 1, 1 + r.randrange(5)),
    "z": lambda r: datetime.datetime(2026, 1, 1, r.randrange(5), tzinfo=datetime.UTC),
    "Odd Name": lambda r: r.choice([-(2**63), 2**63 - 1, 0, 1]),
}


def random_condition(r: random.Random, depth: int) -> Condition:
    if depth and r.random() < 0.6:
        word = r.choice(["and", "or", "not"])
        return Joined(word, tuple(random_condition(r, depth - 1) for _ in range(1 if word == "not" else 2)))
    column = r.choice(list(MAKERS))
    equality = column in ("b", "s")
    op = r.choice(
        ["=", "<>", "in", *(["null"] if column in ("i", "b", "s") else [])]
        + ([] if equality else ["<", "<=", ">", ">="])
    )
    count = {"in": r.randrange(1, 4), "null": 0}.get(op, 1)
    return Test(column, op, tuple(MAKERS[column](r) for _ in range(count)))


def judge(condition: Condition, row: dict[str, Any]) -> bool | None:
    """SQL's three-valued result, computed naively."""
    if isinstance(condition, Joined):
        verdicts = [judge(p, row) for p in condition.parts]
        if condition.word == "not":
            return None if verdicts[0] is None else not verdicts[0]
        decisive = condition.word == "or"
        return decisive if decisive in verdicts else None if None in verdicts else not decisive
    value = row[condition.column]
    if condition.op == "null":
        return value is None
    if value is None:
        return None
    if condition.op == "in":
        return value in condition.values
    (other,) = condition.values
    return {
        "=": value == other,
        "<>": value != other,
        "<": value < other if condition.op == "<" else None,
        "<=": value <= other if condition.op == "<=" else None,
        ">": value > other if condition.op == ">" else None,
        ">=": value >= other if condition.op == ">=" else None,
    }[condition.op]


def random_rows(r: random.Random, count: int) -> list[tuple[Any, ...]]:
    """A number and a value (or NULL) per column of MAKERS."""
    return [(k, *(None if r.random() < 0.2 else make(r) for make in MAKERS.values())) for k in range(count)]
