"""What framing makes of a log's messages: rows, transactions, tables. The same for every upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headwater.model import Column, LogColumn, SchemaVersion
from headwater.source.base import Bytes, Longs

Ops = np.ndarray[Any, np.dtype[np.int8]]


@dataclass(frozen=True, slots=True)
class FramedTo:
    """Where framing stands between two batches.

    `position` is the end of the last commit, or an idle upstream's position outside any transaction after it.
    """

    next_index: int
    position: str
    last_txn: int = 0  # the last transaction's number
    open: bool = False
    txn: int = 0  # of the open transaction
    first_index: int = 0  # of the open transaction
    own: Any = None  # what else the framing of this kind of log must know; never changed in place


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where received messages may be cut: `whole` outside any transaction, `piece` inside the one that is open."""

    whole: int
    whole_bytes: int
    piece: int  # such that the commit never comes without a row: a segment needs one
    piece_bytes: int
    commits: int
    position: int  # the last one that was told outside any transaction, as a number, or 0


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions that a batch completes, in commit order; empty ones are left out."""

    txn: Longs
    commit: Longs  # the position at which each ends, as a number
    commit_time_us: Longs  # since 2000-01-01 UTC
    first_index: Longs
    last_index: Longs

    def __len__(self) -> int:
        return len(self.txn)


@dataclass(frozen=True, slots=True)
class Relation:
    """How the log writes rows of a table from row number `row` of the batch on.

    `broken` says what happened to the table that the log cannot tell in rows; nothing after it can be followed.
    """

    row: int
    upstream_id: int
    schema: str
    table: str
    identity: str
    columns: tuple[LogColumn, ...]
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Frames:
    """The rows of a batch: row i has index `first_index + i`; its message is `data[start[i]:start[i] + length[i]]`."""

    data: Bytes
    first_index: int
    op: Ops
    txn: Longs
    upstream_id: Longs
    start: Longs
    length: Longs
    transactions: Transactions
    relations: tuple[Relation, ...]

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True)
class Taken:
    """What one relation takes of an upstream table."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]


class Memory(Protocol):
    """What a framing may ask of the home, and keep there. Used by the thread that frames."""

    def followed(self) -> frozenset[int]:
        """The upstream ids of the tables that are followed now."""

    def taken(self, upstream_id: int) -> tuple[Taken, ...]:
        """What relations take of the table, one for each; while a table is resynced there are two."""

    def version(self, upstream_id: int) -> SchemaVersion | None:
        """How the log wrote rows of the table last, as far as it is published."""

    def put(self, name: str, part: int, data: bytes) -> None:
        """Keeps bytes aside, durable on return. Part 0 begins anew: earlier parts under the name are forgotten, so
        that a batch that is framed again, or comes again after a crash, leaves the same."""

    def get(self, name: str) -> bytes | None:
        """All that was kept under the name, or None."""

    def remove(self, name: str) -> None:
        """Forgets what was kept, once the batch that is being framed is published."""


class Framing(Protocol):
    """How one kind of log is cut into rows. `boundary` and `end` may be asked by another thread than `frame`."""

    def begin(self, position: str, next_index: int, last_txn: int) -> FramedTo:
        """Where framing stands before the first message of a flow."""

    def number(self, position: str) -> int:
        """A position as a number: later positions of the flow have larger ones."""

    def boundary(self, data: Bytes, lengths: Longs, open: bool) -> Boundary:
        """Where these messages may be cut; `open` says that they begin inside a transaction."""

    def end(self, data: Bytes, lengths: Longs, open: bool, position: int, time_us: int) -> int:
        """How many of these messages lie before an end: a position's number, or a time since 2000 (0: no such end).

        -1 while the end is not among them. A transaction belongs to what lies before it if it committed there.
        """

    def frame(self, data: Bytes, lengths: Longs, before: FramedTo, memory: Memory) -> tuple[Frames, FramedTo]:
        """The rows, transactions and descriptions of a batch, and where framing stands after it. May be repeated."""
