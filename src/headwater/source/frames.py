"""What framing produces from a log's messages: rows, transactions, tables. The same for every upstream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from headwater.model import Column, LogColumn, SchemaVersion
from headwater.source.base import Bytes, Longs

Ops = np.ndarray[Any, np.dtype[np.int8]]


@dataclass(frozen=True, slots=True)
class FramedTo:
    """The state of framing between two batches.

    `position` is the end of the last commit, or an idle upstream's position outside any transaction after it.
    """

    next_index: int
    position: str
    last_txn: int = 0  # the last transaction's number
    open: bool = False
    txn: int = 0  # of the open transaction
    first_index: int = 0  # of the open transaction
    own: Any = None  # other state that this kind of framing needs; never changed in place


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where received messages may be split: `whole` outside any transaction, `piece` inside the open one."""

    whole: int
    whole_bytes: int
    piece: int  # chosen so that the commit never comes without a row: a segment needs one
    piece_bytes: int
    commits: int
    position: int  # the last position outside any transaction, as a number, or 0


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions that a batch completes, in commit order, without empty ones."""

    txn: Longs
    commit: Longs  # the position at which each ends, as a number
    commit_time_us: Longs  # since 2000-01-01 UTC
    first_index: Longs
    last_index: Longs

    def __len__(self) -> int:
        return len(self.txn)


@dataclass(frozen=True, slots=True)
class Described:
    """How the log writes a table's rows, starting with row number `row` of the batch.

    `broken` says what happened to the table that the log cannot express in rows; nothing after it can be followed.
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
    relations: tuple[Described, ...]

    def __len__(self) -> int:
        return len(self.op)


@dataclass(frozen=True, slots=True)
class Taken:
    """What one relation follows of an upstream table."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]


class Memory(Protocol):
    """What framing may read from the home, and store there. Used by the framing thread."""

    def followed(self) -> frozenset[int]:
        """The upstream ids of the followed tables."""

    def taken(self, upstream_id: int) -> tuple[Taken, ...]:
        """What relations follow of the table, one entry each; there are two while a table is resynced."""

    def version(self, upstream_id: int) -> SchemaVersion | None:
        """How the log last wrote rows of the table, according to what is published."""

    def put(self, name: str, part: int, data: bytes) -> None:
        """Stores bytes aside, durable on return.

        Part 0 starts over: earlier parts under the name are discarded, so that a batch that is framed again, or sent
        again after a crash, leaves the same bytes.
        """

    def get(self, name: str) -> bytes | None:
        """Everything stored under the name, or None."""

    def remove(self, name: str) -> None:
        """Removes what was stored, once the batch being framed is published."""


class Framing(Protocol):
    """How one kind of log is split into rows. `boundary` and `end` may be called by another thread than `frame`."""

    def begin(self, position: str, next_index: int, last_txn: int) -> FramedTo:
        """The state of framing before the first message of a flow."""

    def number(self, position: str) -> int:
        """A position as a number: later positions of the flow have larger ones."""

    def boundary(self, data: Bytes, lengths: Longs, open: bool) -> Boundary:
        """Where these messages may be split; `open` means that they begin inside a transaction."""

    def end(self, data: Bytes, lengths: Longs, open: bool, position: int, time_us: int) -> int:
        """How many of these messages lie before an end: a position's number, or a time since 2000 (0: no such end).

        Returns -1 while the end is not among them. A transaction lies before the end if it committed before it.
        """

    def frame(self, data: Bytes, lengths: Longs, before: FramedTo, memory: Memory) -> tuple[Frames, FramedTo]:
        """The rows, transactions and descriptions of a batch, and the state of framing after it. May be repeated."""
