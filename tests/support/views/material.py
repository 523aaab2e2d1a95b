"""The values that test material consists of: tables, changes, steps, cases; and a model of the tables' rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Row = tuple[Any, ...]
Key = tuple[Any, ...]

POSTGRES_TYPES = {
    "boolean": "boolean",
    "int": "integer",
    "bigint": "bigint",
    "double": "double precision",
    "string": "text",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


class Op(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a primary key. Column types are Spark's, in lower case."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @property
    def key_places(self) -> tuple[int, ...]:
        return tuple(self.names.index(name) for name in self.key)

    @property
    def spark_schema(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)

    @property
    def postgres_ddl(self) -> str:
        columns = ", ".join(f'"{name}" {postgres_type(kind)}' for name, kind in self.columns)
        return f'CREATE TABLE "{self.name}" ({columns}, PRIMARY KEY ({", ".join(self.key)}))'

    def key_of(self, row: Row) -> Key:
        return tuple(row[place] for place in self.key_places)


def table(name: str, columns: str, key: str = "id") -> Table:
    """A table from its columns as text, `table("t", "id int, v decimal(9,2)")`; the key is one or more of them."""
    pairs = [part.strip().split(" ", 1) for part in re.split(r",(?![^(<]*[)>])", columns)]
    return Table(name, tuple((column, kind) for column, kind in pairs), tuple(k.strip() for k in key.split(",")))


def postgres_type(kind: str) -> str:
    """The PostgreSQL type whose lake type is this one."""
    if element := re.fullmatch(r"array<(.*)>", kind):
        return f"{postgres_type(element[1])}[]"
    return kind.replace("decimal", "numeric") if kind.startswith("decimal") else POSTGRES_TYPES[kind]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row. `key` is the row's key before it; `row` is the whole row after it, None for a DELETE."""

    op: Op
    table: str
    key: Key
    row: Row | None = None


Step = tuple[Change, ...]  # the changes of one transaction, in order


@dataclass(frozen=True, slots=True)
class Case:
    """Tables with rows, one view over them, and transactions after each of which view and query must agree."""

    name: str
    tables: Mapping[Table, Sequence[Row]]
    query: str
    steps: Sequence[Step]


@dataclass(slots=True)
class Model:
    """The rows of tables by key: what an upstream would hold after the same steps."""

    tables: Mapping[str, Table]
    rows: dict[str, dict[Key, Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Mapping[Table, Iterable[Row]]) -> Model:
        model = cls({t.name: t for t in tables}, {t.name: {} for t in tables})
        for t, rows in tables.items():
            for row in rows:
                model.apply((Change(Op.INSERT, t.name, t.key_of(row), row),))
        return model

    def apply(self, step: Step) -> None:
        """Applies a transaction; raises if a key would be there twice, or a changed row is not there."""
        for change in step:
            rows, t = self.rows[change.table], self.tables[change.table]
            if (change.op is Op.INSERT) == (change.key in rows):
                raise ValueError(f"{change.op} of {change.table}: the key {change.key} is taken, or is not there")
            rows.pop(change.key, None)
            if change.row is not None:
                if len(change.row) != len(t.columns) or t.key_of(change.row) in rows:
                    raise ValueError(f"{change.op} of {change.table} {change.key}: {change.row} does not fit")
                rows[t.key_of(change.row)] = change.row


def statement(t: Table, change: Change) -> tuple[str, Row]:
    """The change as an SQL statement for psycopg, and its parameters."""
    where = " AND ".join(f'"{name}" = %s' for name in t.key)
    if change.row is None:
        return f'DELETE FROM "{t.name}" WHERE {where}', change.key
    if change.op is Op.INSERT:
        return f'INSERT INTO "{t.name}" VALUES ({", ".join(["%s"] * len(t.columns))})', change.row
    sets = ", ".join(f'"{name}" = %s' for name in t.names)
    return f'UPDATE "{t.name}" SET {sets} WHERE {where}', (*change.row, *change.key)
