"""Reads a table of a real MySQL or MariaDB from its log, through the log client and the decoders and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.decode.changes import DecodedChanges, decode_changes
from headwater.decode.mysql.types import lake_type, resolve_type
from headwater.model import Column, SchemaVersion
from headwater.source.mysql.catalog.find import find_table
from support.mysql import MyDatabase
from support.mysql_log import LogReader
from support.mysql_types import SESSION, TABLE, Case, cases

RAW = pa.schema(
    [
        ("index", pa.int64()),
        ("op", pa.int8()),
        ("txn", pa.int64()),
        ("payload", pa.binary()),
        ("schema_id", pa.int64()),
    ]
)


def run(database: MyDatabase, *statements: str) -> None:
    """Runs statements in one session that accepts invalid dates."""
    with database.connect() as connection, connection.cursor() as cursor:
        for statement in (SESSION, *statements):
            cursor.execute(statement)


def columns_of(
    database: MyDatabase, table: str, declared: dict[str, str] | None = None, key: tuple[str, ...] = ()
) -> tuple[Column, ...]:
    """The table's columns as a relation has them: default lake types unless declared otherwise."""
    session = database.endpoint.connect()
    try:
        found = find_table(session, database.name, table, None, key, database.options)
    finally:
        session.close()
    wanted = declared or {}
    return tuple(
        Column(c.name, resolve_type(c.type, wanted[c.name]) if c.name in wanted else lake_type(c.type), c.type)
        for c in found.columns
    )


@dataclass
class TableLog:
    """The log of one table from now on; `read` returns its raw changes since the last read, as segments hold them."""

    database: MyDatabase
    table: str
    schemas: dict[int, SchemaVersion] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)  # a transaction's number is a place in the log

    def __post_init__(self) -> None:
        self.reader = LogReader(self.database, (self.table,))

    def read(self) -> pa.Table:
        seen = len(self.reader.frames)
        self.reader.read()
        rows = []
        for frames in self.reader.frames[seen:]:
            relations = {r.row: r for r in frames.relations}
            for i in range(len(frames)):
                if i in relations:
                    self._learn(relations[i], frames.first_index + i)
                payload = frames.data[frames.start[i] : frames.start[i] + frames.length[i]].tobytes()
                self.commits[int(frames.txn[i])] = int(frames.txn[i])
                rows.append((frames.first_index + i, int(frames.op[i]), int(frames.txn[i]), payload, max(self.schemas)))
        columns = list(zip(*rows, strict=True)) or [()] * len(RAW)
        return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)

    def _learn(self, relation: Any, index: int) -> None:
        number = len(self.schemas) + 1
        of = (relation.upstream_id, index, relation.schema, relation.table, relation.identity, relation.columns)
        self.schemas[number] = SchemaVersion(number, *of, relation.broken)

    def changes(self, columns: tuple[Column, ...], key: tuple[str, ...] = ("id",)) -> DecodedChanges:
        return decode_changes(self.read(), self.schemas, columns, key)

    def close(self) -> None:
        """Nothing: every reading is a connection of its own."""


def fill(database: MyDatabase, flavour: str, table: str = "t") -> dict[str, Case]:
    """A table with a column for every case of the flavour, and a row for every value; its last row is all NULL."""
    named = {f"c{i}": case for i, case in enumerate(cases(flavour))}
    definitions = ", ".join(f"{name} {case.ddl}" for name, case in named.items())
    database.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {definitions}) {TABLE}")
    rows = []
    for row in range(1 + max(len(c.values) for c in named.values())):
        values = {n: c.values[row][0] for n, c in named.items() if row < len(c.values)}
        rows.append(
            f"INSERT INTO {table} ({', '.join(['id', *values])}) VALUES ({', '.join([str(row), *values.values()])})"
        )
    run(database, *rows)
    return named


def same(a: Any, b: Any) -> bool:
    """Whether both are equal to the bit, and of one type."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and bool(a == b)
