"""The nouns of Headwater: frozen values that pass between the stages."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

from headwater.origin import Ordering as Ordering
from headwater.origin import TableOrigin as TableOrigin
from headwater.origin import ViewOrigin as ViewOrigin


class Op(IntEnum):
    """What a change does to a row; segments and runs store the number."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4
    BREAK = 5  # something happened to the table that the log does not express in rows


class TableState(StrEnum):
    """The state of a table or a view. Set by the server only; shown under the same word everywhere."""

    DEFINED = "defined"  # stored; no server has started on it
    WAITING = "waiting"  # a table (Begin): for transactions older than the publication; a view: for its inputs
    FILLING = "filling"  # spans are being scanned, or slices of a view computed
    LIVE = "live"  # every span is covered
    FAILED = "failed"  # stopped with an error; others continue. A view stays readable, and is retried unless stale


class Control(StrEnum):
    """What the user has requested for a table's backfill, or for a view."""

    RUN = ""
    PAUSED = "paused"  # no scan starts until RESUME BACKFILL; of a view: no slice and no refresh until RESUME
    CANCELLED = "cancelled"  # what was not read by then stays unread; changes continue


class ConnectionState(StrEnum):
    """The state of a connection. Set by the capture (running, failed) and the server (the rest)."""

    DEFINED = "defined"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"


class SpanState(StrEnum):
    """The lifecycle of a span, in order: pending → scanning → scanned → covered → settled."""

    PENDING = "pending"
    SCANNING = "scanning"
    SCANNED = "scanned"
    COVERED = "covered"
    SETTLED = "settled"


class Delivery(StrEnum):
    """Whether a change that a scan already saw is applied again."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class UpstreamType:
    """A column's type as the upstream names it, with domains resolved to their base types.

    `name` is the upstream's own name for the type in its `dialect` (whose decoder reads it). `oid` and `modifier` are
    the log's for the column. `ordered` means that the database orders such values like the lake does, so spans
    can be told apart outside it; `textual`, that it still does if they are stored as text.
    """

    name: str
    oid: int
    modifier: int = -1
    precision: int | None = None
    scale: int | None = None
    length: int | None = None
    ordered: bool = False
    dimensions: int = 0  # of an array, as declared; above 1 it stays text
    dialect: str = ""
    textual: bool = False
    stored_aside: bool = True  # may be stored outside its row, and an update that leaves it unchanged may omit it
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()  # of an enum, in its order
    collation: str = field(default="", compare=False)  # of a text whose order depends on it; '': unknown, or none
    number: int = field(default=0, compare=False)  # the column's number, which survives a rename; 0: it has none
    unique: bool = field(default=False, compare=False)  # of a key that is a unique index, not the primary key


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its lake type (Spark DDL in upper case) and its upstream type."""

    name: str
    lake_type: str
    upstream: UpstreamType
    nullable: bool = True

    @property
    def ordered(self) -> bool:
        """Whether lake values compare like the database's: a number or a date declared STRING no longer does."""
        return self.upstream.ordered and (self.lake_type != "STRING" or self.upstream.textual)


@dataclass(frozen=True, slots=True)
class Test:
    """Part of a filter: one column against constants. `op` is a comparison, `in`, or `null` (is it NULL)."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    column: str
    op: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """Part of a filter: `and`, `or` or `not` of conditions."""

    word: str
    parts: tuple[Condition, ...]


Condition = Test | Joined


@dataclass(frozen=True, slots=True)
class Bound:
    """A place in a relation's key order: just after the key, or just before it. Values are the database's own text."""

    key: tuple[str, ...]
    after: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """A key range; `lo` or `hi` of None is the end of the key order. `(a, b]` is Bound(a, after) … Bound(b, after)."""

    lo: Bound | None
    hi: Bound | None

    def meets(self, after: Span) -> bool:
        """Whether another span begins where this one ends."""
        return self.hi is not None and self.hi == after.lo


FIRST_SCHEMA = 1  # the version of a relation's columns as they were defined


@dataclass(frozen=True, slots=True)
class CoveredSpan:
    """A span that a reader may see, and where its overlay begins.

    A change to a key of the span counts iff its index is above `log_index` and at least one of `saw` did not see its
    transaction; `saw` is empty once the span is settled (or the delivery is at-least-once): then every change counts.
    `saw` has several entries only if keys cannot be ordered outside the database. Indexes are those of one
    connection's changelog: a span comes from one upstream table.
    """

    span: Span
    log_index: int
    cover_index: int
    saw: tuple[str, ...] = ()
    connection_id: int = 0  # 0: the relation's only one


@dataclass(frozen=True, slots=True)
class Layout:
    """What a base version holds: one immutable value, written with an epoch.

    `spans` are the covered spans in key order; a key in none of them is hidden. `complete` = they are the whole table.
    The base is written in `schema_version` of the relation's columns.
    """

    relation_id: int
    base_version: int
    spans: tuple[CoveredSpan, ...]
    complete: bool
    schema_version: int = FIRST_SCHEMA

    @property
    def indexes(self) -> dict[int, int]:
        """What the base holds: per connection the index after which its changes are in the overlay."""
        found: dict[int, int] = {}
        for s in self.spans:
            found[s.connection_id] = min(s.log_index, found.get(s.connection_id, s.log_index))
        return found

    def index_for(self, relation: RelationInfo) -> int:
        """The index after which the overlay of the relation begins."""
        return self.indexes.get(relation.origin.connection_id, self.indexes.get(0, 0))

    def overlay_start(self, relation: RelationInfo) -> int:
        """The same, without changes from before the relation's beginning, which concern none of its spans."""
        return max(self.index_for(relation), relation.origin.begin_index)

    @property
    def settled(self) -> bool:
        """Whether every change after the start of the overlay counts, whatever its key."""
        begins = self.indexes
        return self.complete and all(not s.saw and s.log_index == begins[s.connection_id] for s in self.spans)


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """An epoch's entry for one connection: the last index it holds and the upstream position it reached."""

    connection_id: int
    index: int
    position: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """A consistent cut over all connections."""

    id: int
    created_at: float
    entries: tuple[EpochEntry, ...]

    def index_of(self, connection_id: int) -> int:
        return next((c.index for c in self.entries if c.connection_id == connection_id), 0)

    def index_for(self, relation: RelationInfo) -> int:
        """The last index of the relation's changes that the epoch holds."""
        return self.id if relation.view is not None else self.index_of(relation.origin.connection_id)


@dataclass(frozen=True, slots=True)
class Barrier:
    """A numbered epoch at which views stop, so that they meet there."""

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class LogColumn:
    """A column as the log describes it at some index."""

    name: str
    type_oid: int
    modifier: int
    key: bool
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """How the log wrote rows of one upstream table, starting at `from_index`."""

    id: int
    upstream_id: int
    from_index: int
    schema: str
    table: str
    identity: str  # what the log has of a row's old version
    columns: tuple[LogColumn, ...]
    broken: str = ""  # what happened to the table there that the log does not express in rows


@dataclass(frozen=True, slots=True)
class Part:
    """One record batch of a segment: the changes of one upstream table under one schema version."""

    upstream_id: int
    schema_id: int
    batch: int
    changes: int
    first_index: int
    last_index: int
    truncates: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """A published run of a changelog. `path` is relative to the home; `txn_*` cover the changes in it."""

    connection_id: int
    first_index: int
    last_index: int
    committed_index: int  # last index of the last transaction completed in or before it
    path: str
    bytes: int
    txn_min: int
    txn_max: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A connection as stored in meta. `options` never holds a secret's value; see config.Secret."""

    id: int
    name: str
    type: str
    options: dict[str, str]
    state: ConnectionState
    error: dict[str, str] | None
    identity: dict[str, str]  # what identifies the server: system identifier, timeline
    last_index: int
    committed_index: int
    resume_position: str  # end of the last durable commit
    position: str  # published progress, including idle progress
    last_txn: int


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """A table or a materialized view as stored in meta.

    Only code that follows or reads an upstream, or computes a view, uses the `origin`.
    """

    id: int
    name: str
    origin: TableOrigin | ViewOrigin
    columns: tuple[Column, ...]  # as they are in `schema_version`
    key: tuple[str, ...]
    options: dict[str, str]
    state: TableState
    error: dict[str, str] | None
    base_path: str  # relative to the home
    base_version: int
    control: Control = Control.RUN
    block: int = 0  # tables of one BEGIN … COMMIT become readable together; 0 once they are
    replaces: int = 0  # the relation that this one replaces when it is complete (RESYNC TABLE, REFRESH)
    replaced_by: int = 0  # the relation that has taken its place; it is read where that one cannot be
    schema_version: int = FIRST_SCHEMA

    @property
    def table_origin(self) -> TableOrigin:
        """The upstream table that a table follows."""
        assert isinstance(self.origin, TableOrigin), f"{self.name} is a view"
        return self.origin

    @property
    def view(self) -> ViewOrigin | None:
        """The query that a view stores; None for a table."""
        return self.origin if isinstance(self.origin, ViewOrigin) else None

    @property
    def kind(self) -> str:
        """What a user calls it."""
        return "table" if self.view is None else "materialized view"

    @property
    def shown_columns(self) -> tuple[Column, ...]:
        """The columns that a reader sees."""
        return self.columns if self.view is None else self.columns[: self.view.visible]

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[k] for k in self.key)

    @property
    def ordered(self) -> bool:
        """Whether keys compare the same outside the database: covered spans are then readable before the last one."""
        return all(c.ordered for c in self.key_columns)

    @property
    def shown_state(self) -> str:
        """Its state, in the word that every screen uses."""
        unfinished = self.state in (TableState.DEFINED, TableState.WAITING, TableState.FILLING)
        pausable = unfinished or (self.view is not None and self.state is TableState.LIVE)
        return str(self.control if self.control is Control.PAUSED and pausable else self.state)

    @property
    def failed_at(self) -> float | None:
        """When it stopped, in seconds since 1970; None if it has not."""
        at = (self.error or {}).get("at")
        return None if at is None or self.state is not TableState.FAILED else float(at)

    @property
    def stopped_at(self) -> int | None:
        """The index up to which a stopped table is complete in its base: it reads and needs no later change."""
        at = (self.error or {}).get("stopped_at")
        return None if at is None or self.state is not TableState.FAILED else int(at)

    @property
    def history_missing(self) -> bool:
        """Whether it has stopped, and changes that it would need to continue are no longer kept for it."""
        return self.state is TableState.FAILED and (self.error or {}).get("code") == "data.history_missing"

    @property
    def whole(self) -> bool:
        """Whether its history is read: a complete table then holds every row of the upstream."""
        return self.options.get("snapshot", "true") == "true" and self.control is not Control.CANCELLED

    @property
    def filter(self) -> str:
        """Which rows it holds, as the user wrote it; empty = all."""
        return self.options.get("backfill.filter", "")

    @property
    def partial(self) -> bool:
        """Whether the upstream may have rows that this table has never read, and that a change can bring in."""
        return bool(self.filter) or not self.whole

    @property
    def delivery(self) -> Delivery:
        return Delivery(self.options.get("delivery", Delivery.EXACTLY_ONCE))


@dataclass(frozen=True, slots=True)
class SpanInfo:
    """A span with its progress."""

    id: int
    relation_id: int
    span: Span
    state: SpanState
    saw: str | None = None
    high: str | None = None
    log_index: int | None = None
    cover_index: int | None = None
    rows: int = 0
    again: bool = False  # it was scanned before, and the base may hold rows of that scan


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file next to a base: path relative to the base, Delta statistics as JSON text."""

    path: str
    bytes: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The one value of a scan: what it saw, the log position it needs, what it wrote.

    `stopped_at` is set if the scan ended early: what was read is `(lo, stopped_at]`, the rest goes back to pending.
    """

    saw: str
    high: str
    files: tuple[DataFile, ...]
    rows: int
    unrepresentable: dict[str, int] = field(default_factory=dict)  # column → number of unrepresentable values
    stopped_at: Bound | None = None
    server_life: str = ""


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A typed, netted Parquet file of a settled relation's changes in (first_index - 1, last_index]."""

    id: int
    relation_id: int
    first_index: int
    last_index: int
    path: str
    rows: int
    bytes: int
    missing: bool
    truncate_index: int = 0  # the last TRUNCATE in it, or 0; the run does not contain what lies before that
    schema_version: int = FIRST_SCHEMA  # of the relation's columns that it is written in
    base_index: int = -1  # what the base held that rows with missing values refer to; -1: unknown
    before_path: str = ""  # of a view's run: the rows that it replaces or removes, as they were


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a user should know about a relation that is not an error: code, text, count."""

    relation_id: int
    code: str
    text: str
    count: int
