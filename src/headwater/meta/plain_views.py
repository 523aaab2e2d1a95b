"""Plain views in meta: stored queries that have no rows of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.meta.tables import plain_view


@dataclass(frozen=True, slots=True)
class PlainView:
    """A query with a name. `inputs` are the relations and plain views that it names, as they are spelled in meta."""

    id: int
    name: str
    query: str  # as the user wrote it
    inputs: tuple[str, ...]
    statement: str  # canonical text of the definition


def add(c: Connection, *, name: str, query: str, inputs: Sequence[str], statement: str) -> None:
    """Stores a new plain view."""
    values = {"name": name, "query": query, "inputs": json.dumps(list(inputs)), "statement": statement}
    c.execute(sa.insert(plain_view).values(**values, created_at=time.time()))


def find(c: Connection, name: str) -> PlainView | None:
    # SQLite's lower() handles only ASCII, so a name as written must be enough to find it
    same = sa.or_(plain_view.c.name == name, sa.func.lower(plain_view.c.name) == name.lower())
    row = c.execute(sa.select(plain_view).where(same)).first()
    return None if row is None else _view(row)


def all(c: Connection) -> list[PlainView]:
    """All plain views, in the order in which they were defined: each after those that it names."""
    return [_view(row) for row in c.execute(sa.select(plain_view).order_by(plain_view.c.id))]


def over(c: Connection, name: str) -> list[PlainView]:
    """The plain views that name a relation or a plain view directly."""
    return [v for v in all(c) if name in v.inputs]


def needed(c: Connection, names: Sequence[str]) -> list[PlainView]:
    """The plain views among these names (lower case), and those that they name, each after those that it names."""
    wanted = {name.lower() for name in names}
    found = []
    for v in reversed(all(c)):
        if v.name.lower() in wanted:
            wanted |= {name.lower() for name in v.inputs}
            found.append(v)
    return found[::-1]


def remove(c: Connection, id: int) -> None:
    c.execute(sa.delete(plain_view).where(plain_view.c.id == id))


def _view(row: Row[tuple[object, ...]]) -> PlainView:
    return PlainView(row.id, row.name, row.query, tuple(json.loads(row.inputs)), row.statement)
