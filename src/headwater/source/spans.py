"""The seam between a backfill and an upstream: short transactions that read spans, table extents, comparable cuts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headwater.model import Bound, Column, Condition, SchemaVersion, Span

Hooks = Callable[[str], None]
OnWait = Callable[[str], None]  # called every second with a description of who is being waited for


@dataclass(frozen=True, slots=True)
class ScanTable:
    """The upstream table of a scan, and what decoding needs selected. Values only: it travels to tasks.

    `select` (per column) and `key_text` (per key column) are expressions with `{0}` for the quoted column.
    `identity` is the connection's server identity, `upstream_id` the table's; empty or 0: not checked.
    """

    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    select: tuple[str, ...]
    key_text: tuple[str, ...]
    filter: Condition | None = None
    upstream_id: int = 0
    identity: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a transaction saw, the log position that includes all of it, and the life of the server."""

    saw: str
    high: str
    server_life: str


@dataclass(frozen=True, slots=True)
class Extent:
    """A table when planning began, seen by one transaction: its ends, its size, and what the transaction saw."""

    first: tuple[str, ...] | None
    last: tuple[str, ...] | None  # None: the table is empty
    bytes: int
    rows_estimate: int  # -1: unknown; may be stale
    saw: str
    high: str
    server_life: str


class Scan(AbstractContextManager["Scan"], Protocol):
    """One short transaction that reads rows of a table; `seen` is fixed when it opens.

    `described` is the table in that transaction as its log would describe it; None: the scan itself refuses a table
    that has changed.
    """

    seen: Seen
    described: SchemaVersion | None

    def batches(self, span: Span, max_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """The span's rows in key order, limited to `max_rows` if that is not 0; `decode.scanned` reads them."""

    def bound_after(self, batch: pa.RecordBatch) -> Bound:
        """The place just after the last row of a batch."""

    def stop(self) -> None:
        """Ends the stream of rows early; the rest of the span was not read."""

    def finish(self) -> None:
        """Ends the transaction, and makes even an idle database's log reach `seen.high`."""


class KeyWalk(AbstractContextManager["KeyWalk"], Protocol):
    """A session that walks along a table's key; every call is its own short transaction."""

    def next_bound(self, after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        """The place `rows` rows after `after` in the database's own order, if it is before the key of `upto`."""


class UpstreamCut(Protocol):
    """A cut of the upstream that is also a cut of its log: exactly what committed at or before `position`."""

    @property
    def position(self) -> str: ...

    def scan(self, table: ScanTable) -> AbstractContextManager[Scan | None]:
        """Reads the table at the cut; None if it was emptied or rewritten since and can no longer be read there."""


class Reach(Protocol):
    """How to reach an upstream, as a value that travels to tasks. Its repr hides the password."""

    def open_scan(self, table: ScanTable, *, lock_timeout_s: float, batch_bytes: int, hooks: Hooks) -> Scan:
        """Opens a scan. Hooks are called with `scan.before_snapshot` and `scan.after_snapshot`."""

    def read_extent(self, table: ScanTable) -> Extent:
        """The table's ends and size, read in its own transaction, which has ended on return."""

    def walk(self, table: ScanTable) -> KeyWalk:
        """A session along the table's key."""

    def cut(self, on_wait: OnWait) -> AbstractContextManager[UpstreamCut]:
        """A comparable cut that stays open while the block runs."""
