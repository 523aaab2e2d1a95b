"""A model of a database under concurrent writers: commit order, visibility and locks as in PostgreSQL.

A transaction's commit record enters the log at one moment (`logged`), and the transaction becomes visible at a later
one (`end`); in between it keeps its locks. Snapshots list unfinished transactions. Scans read what is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headwater.backfill.rule import counts, truncated
from headwater.backfill.span import locate
from headwater.model import Column, Layout, Op, Span
from headwater.source.postgres.scan.snapshot import sees

Key = tuple[object, ...]
ABSENT = None


class Change(NamedTuple):
    """A committed change; a key change is split into a delete and an insert."""

    index: int
    txn: int
    op: Op
    key: Key | None
    value: int | None


@dataclass
class Txn:
    xid: int
    writes: list[tuple[Op, Key | None, Key | None, int | None]] = field(default_factory=list)  # op, old, key, value
    touched: set[Key] = field(default_factory=set)
    exclusive: bool = False
    logged: bool = False


@dataclass(frozen=True)
class Scan:
    """A scan of one span: its snapshot, the commits that the log held at that moment, and the rows that it read."""

    span: int
    saw: str
    high: int
    rows: dict[Key, int]


class Model:
    """The database. A step that PostgreSQL would make wait is ignored."""

    def __init__(self, keys: Sequence[Key], place: dict[Key, int], first_xid: int, rows: dict[Key, int]) -> None:
        self.keys = keys
        self.place = place  # key → ordinal of its span
        self.next_xid = first_xid
        self.initial = dict(rows)
        self.visible = dict(rows)
        self.running: list[Txn] = []
        self.log: list[Change] = []
        self.commits: list[int] = []  # last index of each commit, in log order
        self.first_index: list[int] = []
        self.scans: dict[int, Scan] = {}
        self._index = 0

    def begin(self) -> None:
        if len(self.running) < 4:
            self.running.append(Txn(self.next_xid))
            self.next_xid += 1

    def write(self, who: int, key: Key, other: Key, value: int | None) -> None:
        """Inserts, updates, deletes or (to `other`) renames the row of a key, whichever its state allows."""
        txn = self._open(who)
        if txn is None or any(t.exclusive for t in self.running if t is not txn):
            return
        busy = set().union(*(t.touched for t in self.running if t is not txn)) if len(self.running) > 1 else set()
        state = self._own_view(txn)
        if key in busy:
            return
        if key not in state:
            txn.writes.append((Op.INSERT, None, key, value or 0))
        elif value is None:
            txn.writes.append((Op.DELETE, key, key, None))
        elif other != key and other not in busy and other not in state:
            txn.writes.append((Op.UPDATE, key, other, value))
            txn.touched.add(other)
        else:
            txn.writes.append((Op.UPDATE, key, key, value))
        txn.touched.add(key)

    def truncate(self, who: int) -> None:
        txn = self._open(who)
        if txn is not None and not any(t.touched or t.exclusive for t in self.running if t is not txn):
            txn.writes.append((Op.TRUNCATE, None, None, None))
            txn.exclusive = True

    def commit_record(self, who: int) -> None:
        """The commit enters the log; nobody sees it yet."""
        txn = self._open(who)
        if txn is None or not txn.writes:
            return
        txn.logged = True
        self.first_index.append(self._index + 1)
        for op, old, key, value in txn.writes:
            self._index += 1
            if op is Op.UPDATE and old != key:
                self.log.append(Change(self._index, txn.xid, Op.DELETE, old, None))
                self.log.append(Change(self._index, txn.xid, Op.INSERT, key, value))
            else:
                self.log.append(Change(self._index, txn.xid, op, key, value))
        self.commits.append(self._index)

    def end(self, who: int) -> None:
        """Makes a logged transaction visible; rolls back any other."""
        if not self.running:
            return
        txn = self.running.pop(who % len(self.running))
        if txn.logged:
            self.visible = self._with(self.visible, txn)

    def scan(self, span: int) -> None:
        """Reads a span once; the table lock waits for an unfinished TRUNCATE."""
        if span in self.scans or any(t.exclusive for t in self.running):
            return
        running = [t.xid for t in self.running]
        saw = f"{min([*running, self.next_xid])}:{self.next_xid}:{','.join(map(str, sorted(running)))}"
        rows = {k: v for k, v in self.visible.items() if self.place[k] == span}
        self.scans[span] = Scan(span, saw, len(self.commits), rows)

    def state_at(self, epoch: int) -> dict[Key, int]:
        """The rows after the first `epoch` commits of the log."""
        state = dict(self.initial)
        upto = self.index_at(epoch)
        for change in self.log:
            if change.index <= upto:
                apply(state, change)
        return state

    def index_at(self, epoch: int) -> int:
        return self.commits[epoch - 1] if epoch else 0

    def _open(self, who: int) -> Txn | None:
        """A running transaction that has not begun to commit."""
        candidates = [t for t in self.running if not t.logged]
        return candidates[who % len(candidates)] if candidates else None

    def _own_view(self, txn: Txn) -> dict[Key, int]:
        return self._with(self.visible, txn)

    @staticmethod
    def _with(state: dict[Key, int], txn: Txn) -> dict[Key, int]:
        result = dict(state)
        for op, old, key, value in txn.writes:
            if op is Op.UPDATE and old is not None:
                result.pop(old)
            apply(result, Change(0, txn.xid, op, key, value))
        return result


def apply(state: dict[Key, int], change: Change) -> None:
    """Applies a change to the rows."""
    if change.op is Op.TRUNCATE:
        state.clear()
    elif change.op is Op.DELETE:
        assert change.key is not None
        state.pop(change.key, None)
    else:
        assert change.key is not None and change.value is not None
        state[change.key] = change.value


WHO = st.integers(0, 3)
ANY = st.integers(0, 99)
FEW_STEPS = st.lists(  # these shrink to the shortest history that fails
    st.one_of(
        st.tuples(st.just("begin")),
        st.tuples(st.just("write"), WHO, ANY, ANY, st.integers(0, 9)),
        st.tuples(st.just("write"), WHO, ANY, ANY, st.none()),
        st.tuples(st.just("truncate"), WHO),
        st.tuples(st.just("commit_record"), WHO),
        st.tuples(st.just("end"), WHO),
        st.tuples(st.just("scan"), ANY),
    ),
    max_size=30,
)
WEIGHTS = {"begin": 6, "write": 14, "truncate": 1, "commit_record": 5, "end": 4, "scan": 2}


def long_history(seed: int) -> list[tuple[object, ...]]:
    """Many interleaved transactions, with scans among them."""
    random = Random(seed)
    steps: list[tuple[object, ...]] = []
    for name in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=random.randint(40, 160)):
        who, key, other = random.randrange(4), random.randrange(100), random.randrange(100)
        if name == "write":
            rename = other if random.random() < 0.3 else key
            steps.append((name, who, key, rename, None if random.random() < 0.3 else random.randrange(10)))
        elif name == "begin":
            steps.append((name,))
        else:
            steps.append((name, key if name == "scan" else who))
    return steps


STEPS = st.one_of(FEW_STEPS, st.integers(0, 2**32).map(long_history), st.integers(0, 2**32).map(long_history))


def run(model: Model, steps: Sequence[tuple[object, ...]], spans: Sequence[Span]) -> None:
    """Plays the steps, then ends everything and scans the rest."""
    for name, *arguments in steps:
        numbers = [a if a is None else int(a) for a in arguments]  # type: ignore[call-overload]
        if name == "write":
            who, key, other, value = numbers
            model.write(who, model.keys[key % len(model.keys)], model.keys[other % len(model.keys)], value)  # type: ignore[arg-type, operator]
        elif name == "scan":
            model.scan(numbers[0] % len(spans))  # type: ignore[operator]
        else:
            getattr(model, str(name))(*numbers)
    while model.running:
        model.end(0)
    for span in range(len(spans)):
        model.scan(span)


Judge = Callable[[Layout, tuple[Column, ...], list[Change]], list[bool]]
Sees = Callable[[str, Any], Any]  # `Upstream.sees` of some kind


def key_table(columns: Sequence[Column], keys: Sequence[Key]) -> pa.Table:
    types = {"INT": pa.int32(), "BIGINT": pa.int64(), "STRING": pa.string()}
    arrays = [pa.array([k[i] for k in keys], types[c.lake_type]) for i, c in enumerate(columns)]
    return pa.table(arrays, names=[c.name for c in columns])


def by_rule(sees: Sees) -> Judge:
    """The judge for a kind of upstream: which of the changes count, without TRUNCATEs."""

    def judge(layout: Layout, columns: tuple[Column, ...], changes: list[Change]) -> list[bool]:
        keys = key_table(columns, [c.key for c in changes if c.key is not None])
        index, txn = (np.array([getattr(c, n) for c in changes], np.int64) for n in ("index", "txn"))
        return counts(layout, columns, keys, index, txn, sees).tolist()

    return judge


def read(
    layout: Layout,
    columns: tuple[Column, ...],
    base: dict[Key, int],
    log: list[Change],
    judge: Judge | None = None,
    sees: Sees = sees,
) -> dict[Key, int]:
    """A relation as its readers see it: base rows of covered spans, overlaid by the last counted change of each key."""
    spans = [s.span for s in layout.spans]

    def places(keys: Sequence[Key]) -> list[int]:
        return locate(spans, columns, key_table(columns, keys)).tolist()

    emptied = truncated(layout, [(c.index, c.txn) for c in log if c.op is Op.TRUNCATE], sees)
    rows = {k: v for (k, v), p in zip(base.items(), places(list(base)), strict=True) if p >= 0 and not emptied[p]}
    changes = [c for c in log if c.op is not Op.TRUNCATE]
    counted = (judge or by_rule(sees))(layout, columns, changes)
    for change, counts_, p in zip(changes, counted, places([c.key for c in changes if c.key]), strict=True):
        if counts_ and change.index > emptied[p]:
            assert change.key is not None
            rows.pop(change.key, None)
            if change.value is not None:
                rows[change.key] = change.value
    return rows
