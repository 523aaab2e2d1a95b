"""Short ways to write tables, transactions and cases down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.views.material import Case, Change, Op, Row, Step, Table


def insert(t: Table, *rows: Row) -> Step:
    return tuple(Change(Op.INSERT, t.name, t.key_of(row), row) for row in rows)


def update(t: Table, *rows: Row) -> Step:
    """Each row replaces the one with its key."""
    return tuple(Change(Op.UPDATE, t.name, t.key_of(row), row) for row in rows)


def rekey(t: Table, old: Any, row: Row) -> Step:
    """The row replaces the one with the old key, and has another."""
    return (Change(Op.UPDATE, t.name, _key(old), row),)


def delete(t: Table, *keys: Any) -> Step:
    return tuple(Change(Op.DELETE, t.name, _key(key)) for key in keys)


def together(*parts: Step) -> Step:
    """One transaction of several parts."""
    return tuple(change for part in parts for change in part)


def cases(tables: Mapping[Table, Sequence[Row]], steps: Sequence[Step], queries: Mapping[str, str]) -> list[Case]:
    """One case for each query, over the same rows and transactions."""
    return [Case(name, tables, query, steps) for name, query in queries.items()]


def _key(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)
