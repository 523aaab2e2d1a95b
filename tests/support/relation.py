"""Histories of a small table and a naive model of them: Python dictionaries, one change at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headwater.decode.changes import changes_schema
from headwater.meta import segments
from headwater.meta.store import Meta
from headwater.model import (
    Bound,
    Column,
    CoveredSpan,
    DataFile,
    Layout,
    Op,
    Part,
    RelationInfo,
    Segment,
    Span,
    TableOrigin,
    TableState,
    UpstreamType,
)
from headwater.relation import base, fold, read
from headwater.relation.changes import Slice
from headwater.relation.overlay import Overlays
from headwater.relation.schema import UPSERT, key_struct, overlay_schema
from headwater.settings.table import DEFAULTS
from headwater.source.names import BEFORE, FROM, INDEX, MISSING, OLD, OP, TXN
from headwater.storage import LocalStorage
from support.owned import PERMIT

INT4 = UpstreamType("int4", 23, ordered=True)
TEXT = UpstreamType("text", 25, ordered=True)

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]


def order_of(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sorts keys, NULL before every value."""
    return tuple((v is not None, v) for v in key)


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
    """One change as in the log; `row` has only the columns that it carries."""

    index: int
    txn: int
    op: Op
    row: Row
    missing: tuple[int, ...] = ()
    old: tuple[Any, ...] | None = None


@dataclass
class History:
    """A random, valid history: what the upstream does is always possible, and every state is recorded."""

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

    def keys_of(self, change: Change) -> list[tuple[Any, ...]]:
        """The change's own key, and the old one if it changed."""
        return [self.key_of(change.row), *([] if change.old is None else [change.old])]

    def before(self, change: Change) -> Row | None:
        """The whole row before an UPDATE or a DELETE."""
        if change.op not in (Op.UPDATE, Op.DELETE):
            return None
        return self.states[change.index - 1][self.keys_of(change)[-1]]

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
            gone = self.rng.choice(sorted(state, key=order_of))
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
        before = self.rng.choice(sorted(state, key=order_of))
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
    """The changes as decoding would return them."""
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
    listed = [rows[k] for k in sorted(rows, key=order_of)]
    return pa.table({c.name: pa.array([r[c.name] for r in listed], target.field(c.name).type) for c in columns})


def applied(base: Rows, overlay: pa.Table, columns: tuple[Column, ...], key: tuple[str, ...]) -> tuple[Rows, set[Any]]:
    """Base and overlay combined like a read does, one row at a time; and the keys that could not be resolved."""
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
    """A table of those columns, as meta would have it."""
    return RelationInfo(
        1,
        "things",
        TableOrigin(1, "public", "things", 4711),
        columns,
        key,
        options,
        TableState.LIVE,
        None,
        "warehouse/things",
        0,
    )


class ScriptedChanges:
    """Replaces decoding: returns the history's own changes, `at_once` of them per slice."""

    def __init__(self, history: History, at_once: int = 1 << 20) -> None:
        self.history = history
        self.at_once = at_once

    def slices(
        self,
        relation: RelationInfo,
        after: int,
        upto: int,
        *,
        before: bool = False,
        within: Span | None = None,
        apart: bool = False,
    ) -> Iterator[Slice]:
        while True:
            end = min(after + self.at_once, upto)
            chosen = [c for c in self.history.changes if after < c.index <= end and self._meant(c, within)]
            table = changes_table(chosen, relation.columns, relation.key)
            if before:
                kind = changes_schema(relation.columns, relation.key, before=True).field(BEFORE).type
                table = table.append_column(BEFORE, pa.array([self.history.before(c) for c in chosen], kind))
            yield Slice(after, end, table)
            after = end
            if after >= upto:
                return

    def _meant(self, change: Change, span: Span | None) -> bool:
        return span is None or change.op == Op.TRUNCATE or any(inside(span, k) for k in self.history.keys_of(change))

    def truncates(self, relation: RelationInfo, after: int, upto: int) -> list[tuple[int, int]]:
        found = [c for c in self.history.changes if c.op == Op.TRUNCATE and after < c.index <= upto]
        return [(c.index, c.txn) for c in found]

    def forget(self, relation_id: int) -> None:
        pass


class Lake:
    """A relation in a home, with a scripted history instead of a changelog and spans scanned when the test says so."""

    def __init__(
        self, session: SparkSession, root: Path, history: History, *, at_once: int = 1 << 20, **options: str
    ) -> None:
        self.session = session
        self.storage = LocalStorage(root)
        self.meta = Meta(f"sqlite:///{root}/meta.db")
        self.history = history
        self.relation = relation_of(history.columns, history.key, **options)
        changes = ScriptedChanges(history, at_once)
        self.overlays = Overlays(self.storage, self.meta, sees=_sees, changes=changes)
        self.version = base.create(self.storage, replace(self.relation, base_version=-1))
        self.covered: list[CoveredSpan] = []
        self.published = 0
        self.settings = DEFAULTS

    def publish(self) -> int:
        """Makes the history so far part of the log; returns its last index."""
        first, last = self.published + 1, len(self.history.changes)
        if last >= first:
            part = Part(self.relation.origin.upstream_id, 1, 0, last - first + 1, first, last)
            with self.meta.write() as c:
                segments.insert(c, Segment(1, first, last, last, f"s{first}", 1, first * 10, last * 10, (part,)))
            self.published = last
        return last

    def scan(self, span: Span, ordinal: int, at: int, log_index: int = 0) -> None:
        """Reads the span as the upstream was at an index into a file of the base, and covers it."""
        rows = {k: r for k, r in self.history.states[at].items() if inside(span, k)}
        path = f"part-{ordinal}-{at}.parquet"
        target = Path(self.storage.address(f"{self.relation.base_path}/{path}"))
        pq.write_table(rows_table(rows, self.history.columns, self.history.key), target)
        firsts = [key[0] for key in rows if key[0] is not None]
        low, high = (min(firsts), max(firsts)) if firsts else (None, None)
        nulls = {"k": len(rows) - len(firsts)}
        stats = {"numRecords": len(rows), "minValues": {"k": low}, "maxValues": {"k": high}, "nullCount": nulls}
        file = DataFile(path, target.stat().st_size, len(rows), json.dumps(stats))
        self.version = base.add_files(self.storage, self.relation.base_path, [file], f"scan-{ordinal}", 1)
        self.covered.append(CoveredSpan(span, log_index, at, (str(at),)))

    def layout(self, complete: bool = True) -> Layout:
        ordered = sorted(self.covered, key=lambda s: () if s.span.lo is None else _values(s.span.lo))
        return Layout(self.relation.id, self.version, tuple(ordered), complete)

    def read(self, layout: Layout, index: int) -> Rows:
        with self.overlays.use(self.relation, layout, index) as overlay:
            frame = read.dataframe(self.session, self.storage, self.relation, layout, overlay)
            rows = [r.asDict() for r in frame.collect()]
        found = {self.history.key_of(r): r for r in rows}
        assert len(found) == len(rows), "a key came twice"
        return found

    def fold(self, layout: Layout, index: int, version: int = 1) -> None:
        """Folds to the index, and settles every covered span there."""
        with self.overlays.use(self.relation, layout, index) as overlay:
            what = self.session, self.storage, self.relation, layout, overlay, "fold", version, PERMIT
            self.version = fold.fold(*what, settings=self.settings)
        self.covered = [CoveredSpan(s.span, index, s.cover_index) for s in self.covered]


def _sees(saw: str, txn: Any) -> Any:
    return txn <= int(saw) * 10


def inside(span: Span, key: tuple[Any, ...]) -> bool:
    """Whether a key is in a span that ends after keys, as `(lo, hi]`."""
    return (span.lo is None or key > _values(span.lo)) and (span.hi is None or key <= _values(span.hi))


def _values(bound: Bound) -> tuple[Any, ...]:
    return (int(bound.key[0]), *bound.key[1:])
