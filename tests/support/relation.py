"""Histories of a small table and a naive model of them: Python dictionaries, one change at a time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.model import Column, Op, RelationInfo, TableState, UpstreamType
from headwater.relation.schema import FROM, INDEX, MISSING, OLD, OP, TXN, UPSERT, key_struct, overlay_schema

INT4 = UpstreamType("int4", 23, ordered=True)
TEXT = UpstreamType("text", 25, ordered=True)

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]


def columns_of(key_width: int = 1) -> tuple[Column, ...]:
    """`k` (and `k2`) as key, two values that may be missing from an update, one that never is."""
    keys = [Column("k", "INT", INT4, False), Column("k2", "STRING", TEXT, False)][:key_width]
    return (
        Column("n", "BIGINT", UpstreamType("int8", 20)),
        *keys,
        Column("a`b.c", "STRING", TEXT),
        Column("t", "STRING", TEXT),
    )


@dataclass
class Change:
    """One change as the log tells it; `row` has only the columns that it carries."""

    index: int
    txn: int
    op: Op
    row: Row
    missing: tuple[int, ...] = ()
    old: tuple[Any, ...] | None = None


@dataclass
class History:
    """A random, valid history: what the upstream does is always possible, and every state is remembered."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rng: random.Random
    keys: int = 12
    truncates: bool = True
    changes: list[Change] = field(default_factory=list)
    states: list[Rows] = field(default_factory=list)  # states[i] = rows after index i

    @property
    def now(self) -> Rows:
        return self.states[-1]

    def begin(self, rows: int) -> None:
        state: Rows = {}
        while len(state) < rows:
            row = self._row(self._key())
            state[self.key_of(row)] = row
        self.states = [state]

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[k] for k in self.key)

    def step(self) -> Change:
        """One more change, at the next index."""
        state = dict(self.now)
        index = len(self.changes) + 1
        free = [k for k in (self._key() for _ in range(8)) if k not in state]
        roll = self.rng.random()
        if self.truncates and roll < 0.02:
            change = Change(index, index * 10, Op.TRUNCATE, {})
            state = {}
        elif free and (not state or roll < 0.3):
            row = self._row(free[0])
            change = Change(index, index * 10, Op.INSERT, row)
            state[free[0]] = row
        elif state and roll < 0.5:
            gone = self.rng.choice(sorted(state))
            change = Change(index, index * 10, Op.DELETE, dict(zip(self.key, gone, strict=True)))
            del state[gone]
        elif state:
            change = self._update(state, free, index)
        else:
            return self.step()
        self.changes.append(change)
        self.states.append(state)
        return change

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def _update(self, state: Rows, free: list[tuple[Any, ...]], index: int) -> Change:
        before = self.rng.choice(sorted(state))
        old_row = state.pop(before)
        moves = bool(free) and self.rng.random() < 0.4
        after = free[0] if moves else before
        row = self._row(after)
        may_miss = [i for i, c in enumerate(self.columns) if c.name in ("a`b.c", "t")]
        missing = tuple(i for i in may_miss if self.rng.random() < 0.5)
        for i in missing:
            row[self.columns[i].name] = old_row[self.columns[i].name]
        state[after] = row
        names = {self.columns[i].name for i in missing}
        carried = {k: v for k, v in row.items() if k not in names}
        return Change(index, index * 10, Op.UPDATE, carried, missing, before if moves else None)

    def _key(self) -> tuple[Any, ...]:
        values: list[Any] = [self.rng.randrange(self.keys), self.rng.choice("abc")]
        return tuple(values[: len(self.key)])

    def _row(self, key: tuple[Any, ...]) -> Row:
        text = [None, "", "x" * 40, f"v{self.rng.randrange(10**6)}"]
        row: Row = {c.name: self.rng.choice(text) for c in self.columns}
        row["n"] = self.rng.randrange(10**9)
        return {**row, **dict(zip(self.key, key, strict=True))}


def changes_table(changes: list[Change], columns: tuple[Column, ...], key: tuple[str, ...]) -> pa.Table:
    """The changes as decoding would give them."""
    target = overlay_schema(columns, key)
    data: dict[str, pa.Array] = {
        c.name: pa.array([x.row.get(c.name) for x in changes], target.field(c.name).type) for c in columns
    }
    data[INDEX] = pa.array([x.index for x in changes], pa.int64())
    data[TXN] = pa.array([x.txn for x in changes], pa.int64())
    data[OP] = pa.array([int(x.op) for x in changes], pa.int8())
    data[MISSING] = pa.array([list(x.missing) or None for x in changes], pa.list_(pa.int32()))
    olds = [None if x.old is None else dict(zip(key, x.old, strict=True)) for x in changes]
    data[OLD] = pa.array(olds, key_struct(columns, key))
    return pa.table(data)


def rows_table(rows: Rows, columns: tuple[Column, ...], key: tuple[str, ...]) -> pa.Table:
    """Rows as a table in the relation's own types."""
    target = overlay_schema(columns, key)
    listed = [rows[k] for k in sorted(rows)]
    return pa.table({c.name: pa.array([r[c.name] for r in listed], target.field(c.name).type) for c in columns})


def applied(base: Rows, overlay: pa.Table, columns: tuple[Column, ...], key: tuple[str, ...]) -> tuple[Rows, set[Any]]:
    """Base and overlay as a read puts them together, one row at a time; and the keys that could not be resolved."""
    result = dict(base)
    unresolved = set()
    for row in overlay.to_pylist():
        own = tuple(row[k] for k in key)
        result.pop(own, None)
    for row in overlay.to_pylist():
        if row[OP] != UPSERT:
            continue
        own = tuple(row[k] for k in key)
        values = {c.name: row[c.name] for c in columns}
        if row[MISSING]:
            origin = own if row[FROM] is None else tuple(row[FROM][k] for k in key)
            if origin not in base:
                unresolved.add(own)
                continue
            for i in row[MISSING]:
                values[columns[i].name] = base[origin][columns[i].name]
        result[own] = values
    return result, unresolved


def relation_of(columns: tuple[Column, ...], key: tuple[str, ...], **options: str) -> RelationInfo:
    """A table of those columns, as meta would know it."""
    return RelationInfo(
        1, "things", 1, "public", "things", 4711, columns, key, options, TableState.LIVE, None, "warehouse/things", 0, 0
    )
