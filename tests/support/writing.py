"""What a random writer does, whatever the database: transactions of all kinds, from several sessions, from one seed.

Sessions pick keys from a common range, so they collide: they wait for each other and some are rolled back by a
deadlock. How a statement is written, and what a database can do, depends on the dialect: see `writer` and
`writer_mysql`.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

SESSIONS = 6
KEYS = 400  # per table; small, so that one key gets a long history
BIG = 3000  # rows of a big transaction
ACCOUNTS = 50
TOTAL = ACCOUNTS * 1000  # of ledger_a and ledger_b together, in every committed state
LEDGERS = ("ledger_a", "ledger_b")


class Taken(Exception):
    """The key already exists; the statement is undone, the transaction continues."""


class Refused(Exception):
    """Sessions collided: a deadlock, or a lock timeout. The transaction must end."""


class Gone(Exception):
    """The server was stopped or killed: that is part of some tests."""


Make = Callable[[random.Random], Any]


@dataclass(frozen=True)
class Shape:
    """How the writer makes rows of a table: its key columns, and per column a maker of values."""

    key: tuple[str, ...]
    make: dict[str, Make]
    large: str | None = None  # the column with large values

    def row(self, pick: random.Random) -> dict[str, Any]:
        return {column: make(pick) for column, make in self.make.items()}


class Session(Protocol):
    """A session of the writer. Every method raises `Taken`, `Refused` or `Gone` on the corresponding errors."""

    def transaction(self, *, undo: bool = False) -> AbstractContextManager[Any]:
        """A block that is committed, or undone; inside another one it is a savepoint."""

    def prepared(self, *, undo: bool) -> AbstractContextManager[Any]:
        """A block whose transaction is prepared first; only if the dialect declares `two_phase`."""

    def upsert(self, table: str, shape: Shape, row: Mapping[str, Any]) -> None: ...

    def update(self, table: str, shape: Shape, row: Mapping[str, Any], values: Mapping[str, Any]) -> None: ...

    def delete(self, table: str, shape: Shape, row: Mapping[str, Any]) -> None: ...

    def add_amount(self, table: str, id: int, amount: int) -> None: ...

    def truncate(self, table: str) -> None:
        """Waits for its lock for about half a second."""

    def insert_many(self, first: int, last: int) -> None:
        """Rows of `ints` with these keys; existing ones are counted up."""

    def delete_many(self, first: int) -> None:
        """Rows of `ints` from this key on."""


class Dialect(Protocol):
    """How to write to a kind of database."""

    shapes: Mapping[str, Shape]
    two_phase: bool

    def connect(self, pick: random.Random, name: str) -> AbstractContextManager[Session]: ...


def key(pick: random.Random) -> int:
    return pick.randint(0, KEYS - 1)


def maybe(make: Make) -> Make:
    return lambda pick: None if pick.random() < 0.1 else make(pick)


def number(pick: random.Random) -> int:
    return pick.randint(-(2**31), 2**31 - 1)


class RandomWriter:
    """Writes until stopped. `rate` is transactions per second over all sessions (0: as fast as possible)."""

    def __init__(
        self,
        dialect: Dialect,
        seed: int,
        tables: Sequence[str],
        rate: float = 0.0,
        *,
        sessions: int = SESSIONS,
        truncates: bool = True,
        two_phase: bool = True,
    ) -> None:
        print(f"writer seed {seed}")
        self.seed = seed
        self.errors: list[BaseException] = []
        self.done: Counter[str] = Counter()
        self._dialect = dialect
        self._known = dialect.shapes
        self._shapes = [t for t in tables if t in dialect.shapes]
        self._ledgers = all(t in tables for t in LEDGERS)
        self._truncates = truncates
        self._two_phase = two_phase and dialect.two_phase
        self._pause_s = sessions / rate if rate else 0.0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._session, args=(random.Random(seed * 1000 + i), f"writer {i}"))
            for i in range(sessions)
        ]

    def start(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Ends all sessions; raises the first error that no database should return."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _session(self, pick: random.Random, name: str) -> None:
        while not self._stop.is_set():
            try:
                with self._dialect.connect(pick, name) as session:
                    while not self._stop.is_set():
                        self._transaction(session, pick)
            except Gone:
                self._stop.wait(0.05)
            except BaseException as e:
                self.errors.append(e)
                return

    def _transaction(self, session: Session, pick: random.Random) -> None:
        kinds = [self._mixed] * 16 + [self._rolled_back] * 2 + [self._nested] * 3 + [self._large] * 3
        kinds += [self._again] * 2 + [self._big] * (pick.random() < 0.2)
        kinds += [self._transfer] * 6 if self._ledgers else []
        kinds += [self._truncate] * (self._truncates and pick.random() < 0.05)
        kinds += [self._prepared] * 2 if self._two_phase else []
        kind = pick.choice(kinds if self._shapes else [self._transfer])
        try:
            kind(session, pick)
            self.done[kind.__name__] += 1
        except (Taken, Refused):
            self.done["refused"] += 1  # sessions collided on a key: what a live database does all day
        if self._pause_s:
            self._stop.wait(pick.expovariate(1 / self._pause_s))

    # kinds of transactions

    def _mixed(self, session: Session, pick: random.Random) -> None:
        with session.transaction():
            for _ in range(pick.randint(1, 8)):
                self._change(session, pick, pick.choice(self._shapes))

    def _rolled_back(self, session: Session, pick: random.Random) -> None:
        with session.transaction(undo=True):
            for _ in range(pick.randint(1, 5)):
                self._change(session, pick, pick.choice(self._shapes))

    def _nested(self, session: Session, pick: random.Random) -> None:
        """Savepoints that are kept, and some that are not."""
        with session.transaction():
            for _ in range(pick.randint(1, 4)):
                with session.transaction(undo=pick.random() < 0.4):
                    self._change(session, pick, pick.choice(self._shapes))
                    with session.transaction(undo=pick.random() < 0.3):
                        self._change(session, pick, pick.choice(self._shapes))

    def _large(self, session: Session, pick: random.Random) -> None:
        """A large value that stays unchanged while the rest of its row, including its key, changes."""
        table = pick.choice([t for t in self._shapes if self._known[t].large] or self._shapes)
        shape = self._known[table]
        with session.transaction():
            row = shape.row(pick)
            session.upsert(table, shape, row)
            for _ in range(pick.randint(1, 3)):
                session.update(table, shape, row, {"n": shape.make["n"](pick)})
            if pick.random() < 0.5:
                self._move(session, table, row, pick)

    def _again(self, session: Session, pick: random.Random) -> None:
        """Delete and insert of one key in one transaction, and the other way round."""
        table = pick.choice(self._shapes)
        shape = self._known[table]
        with session.transaction():
            row = shape.row(pick)
            session.delete(table, shape, row)
            session.upsert(table, shape, row)
            if pick.random() < 0.5:
                session.delete(table, shape, row)
                if pick.random() < 0.5:
                    session.upsert(table, shape, {**row, "n": None})

    def _big(self, session: Session, pick: random.Random) -> None:
        if "ints" not in self._shapes:
            return
        first = KEYS + pick.randint(0, BIG)
        with session.transaction():
            session.insert_many(first, first + BIG)
        if pick.random() < 0.7:
            with session.transaction():
                session.delete_many(KEYS)

    def _transfer(self, session: Session, pick: random.Random) -> None:
        amount = pick.randint(1, 100)
        source, target = pick.sample(LEDGERS, 2) if pick.random() < 0.7 else (LEDGERS[0], LEDGERS[0])
        with session.transaction(undo=pick.random() < 0.05):
            for table, change in ((source, -amount), (target, amount)):
                session.add_amount(table, pick.randint(1, ACCOUNTS), change)

    def _truncate(self, session: Session, pick: random.Random) -> None:
        table = pick.choice(self._shapes)
        with session.transaction(undo=pick.random() < 0.2):
            self._change(session, pick, table)
            session.truncate(table)
            for _ in range(pick.randint(0, 5)):
                self._change(session, pick, table)

    def _prepared(self, session: Session, pick: random.Random) -> None:
        """Two phases: what is prepared is in some logs before anybody decides whether it happens."""
        with session.prepared(undo=pick.random() < 0.3):
            for _ in range(pick.randint(1, 4)):
                self._change(session, pick, pick.choice(self._shapes))

    def _change(self, session: Session, pick: random.Random, table: str) -> None:
        shape = self._known[table]
        row = shape.row(pick)
        what = pick.random()
        if what < 0.4:
            session.upsert(table, shape, row)
        elif what < 0.65:
            rest = [c for c in shape.make if c not in shape.key]
            chosen = pick.sample(rest, pick.randint(1, len(rest)))
            session.update(table, shape, row, {c: row[c] for c in chosen})
        elif what < 0.8:
            self._move(session, table, row, pick)
        else:
            session.delete(table, shape, row)

    def _move(self, session: Session, table: str, row: dict[str, Any], pick: random.Random) -> None:
        """A key change; if another row has the key, that one is deleted first."""
        shape = self._known[table]
        target = {k: shape.make[k](pick) for k in shape.key}
        with session.transaction():  # a savepoint: a taken key must not undo what came before
            try:
                with session.transaction():
                    session.update(table, shape, row, target)
            except Taken:
                session.delete(table, shape, target)
                session.update(table, shape, row, target)
