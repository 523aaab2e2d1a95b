"""The nouns of Headwater: frozen values that pass between the stages."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any


class Op(IntEnum):
    """What a change does to a row; the number is what segments and runs store."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    TRUNCATE = 4
    BREAK = 5  # something happened to the table that the log does not tell in rows


class TableState(StrEnum):
    """Where a table stands. Set by the server only; shown under the same word everywhere."""

    DEFINED = "defined"  # stored; no server has begun it
    WAITING = "waiting"  # Begin: waits for transactions older than the publication
    FILLING = "filling"  # spans are being scanned
    LIVE = "live"  # every span is covered
    FAILED = "failed"  # stopped with an error; other tables go on


class Control(StrEnum):
    """What the user has said of a table's backfill."""

    RUN = ""
    PAUSED = "paused"  # no scan begins until RESUME BACKFILL
    CANCELLED = "cancelled"  # what was not read by then is not read; changes go on


class ConnectionState(StrEnum):
    """Where a connection stands. Set by the capture (running, failed) and the server (the rest)."""

    DEFINED = "defined"
    RUNNING = "running"
    RETRYING = "retrying"
    FAILED = "failed"


class SpanState(StrEnum):
    """The life of a span, in order (DESIGN: pending → scanning → scanned → covered → settled)."""

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
    """A column's type as the upstream names it, domains resolved to what they stand on.

    `name` is the upstream's own name for the type in its `dialect` (whose decoder reads it). `oid` and `modifier` are
    what the log says for the column. `ordered` says that the database orders such values as the lake does, so spans
    can be told apart outside it; `textual`, that it still does when they are kept as text.
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
    stored_aside: bool = True  # may be kept outside its row, and an update that leaves it alone may not carry it
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()  # of an enumeration, in its order
    collation: str = field(default="", compare=False)  # of a text, where it alone tells its order; '': unknown, or none
    place: int = field(default=0, compare=False)  # the column's number, which outlives its name; 0: it has none
    unique: bool = field(default=False, compare=False)  # of a key that rests on a unique index, not on the primary key


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its lake type (Spark DDL in capitals) and what it comes from."""

    name: str
    lake_type: str
    upstream: UpstreamType
    nullable: bool = True

    @property
    def ordered(self) -> bool:
        """Lake values compare as the database compares its own: a number or a date declared STRING no longer does."""
        return self.upstream.ordered and (self.lake_type != "STRING" or self.upstream.textual)


@dataclass(frozen=True, slots=True)
class Test:
    """Of a filter: one column against constants. `op` is a comparison, `in`, or `null` (is it NULL)."""

    __test__ = False  # no test class, whatever pytest thinks of the name

    column: str
    op: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """Of a filter: `and`, `or` or `not` of conditions."""

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


@dataclass(frozen=True, slots=True)
class CoveredSpan:
    """A span that a reader may see, with where its overlay begins.

    A change to a key of the span counts iff its index is above `log_index` and at least one of `saw` did not see its
    transaction; `saw` is empty once the span is settled (or the delivery is at-least-once): then every change counts.
    `saw` has several entries only where keys cannot be ordered outside the database.
    """

    span: Span
    log_index: int
    cover_index: int
    saw: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """What a base version holds: one immutable value, written with an epoch.

    `spans` are the covered spans in key order; a key in none of them is hidden. `complete` = they are the whole table.
    """

    relation_id: int
    base_version: int
    spans: tuple[CoveredSpan, ...]
    complete: bool

    @property
    def log_index(self) -> int:
        """The index after which the overlay of the layout begins."""
        return min((s.log_index for s in self.spans), default=0)

    @property
    def settled(self) -> bool:
        """Every change after `log_index` counts, whatever its key."""
        return self.complete and all(not s.saw and s.log_index == self.log_index for s in self.spans)


@dataclass(frozen=True, slots=True)
class Cut:
    """What an epoch says of one connection: the last index it holds and the upstream position that it reached."""

    connection_id: int
    index: int
    position: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """A consistent cut over all connections."""

    id: int
    created_at: float
    cuts: tuple[Cut, ...]

    def index_of(self, connection_id: int) -> int:
        return next((c.index for c in self.cuts if c.connection_id == connection_id), 0)

    def index_for(self, relation: RelationInfo) -> int:
        """The last index of the relation's changes that the epoch holds."""
        return self.index_of(relation.origin.connection_id)


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
    """How the log wrote rows of one upstream table from `from_index` on."""

    id: int
    upstream_id: int
    from_index: int
    schema: str
    table: str
    identity: str  # what the log carries of a row's old form
    columns: tuple[LogColumn, ...]
    broken: str = ""  # what happened to the table there that the log does not tell in rows


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
    """A published run of a changelog. `path` is relative to the home; `txn_*` are over the changes in it."""

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
    """A connection as meta knows it. `options` never holds a secret's value; see config.Secret."""

    id: int
    name: str
    type: str
    options: dict[str, str]
    state: ConnectionState
    error: dict[str, str] | None
    identity: dict[str, str]  # what makes the server itself: system identifier, timeline
    last_index: int
    committed_index: int
    resume_position: str  # end of the last durable commit
    position: str  # published progress, idle progress included
    last_txn: int


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """An origin: one table of an upstream, followed through its connection's changelog."""

    connection_id: int
    schema: str
    table: str
    upstream_id: int  # the upstream's own number of the table
    begin_index: int = 0  # changes at or below it concern no span of the relation

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """A table (later also a view) as meta knows it. Only who follows or reads an upstream looks at the `origin`."""

    id: int
    name: str
    origin: TableOrigin
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    options: dict[str, str]
    state: TableState
    error: dict[str, str] | None
    base_path: str  # relative to the home
    base_version: int
    control: Control = Control.RUN
    block: int = 0  # tables of one BEGIN … COMMIT become readable together; 0 once they are
    replaces: int = 0  # the relation whose place this one takes when it is complete (RESYNC TABLE)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[k] for k in self.key)

    @property
    def ordered(self) -> bool:
        """Keys compare outside the database as inside it, so covered spans are readable before the last one."""
        return all(c.ordered for c in self.key_columns)

    @property
    def shown_state(self) -> str:
        """Where it stands, in the word that every screen uses."""
        unfinished = (TableState.DEFINED, TableState.WAITING, TableState.FILLING)
        return str(self.control if self.control is Control.PAUSED and self.state in unfinished else self.state)

    @property
    def failed_at(self) -> float | None:
        """When it has stopped, in seconds since 1970; None if it has not."""
        at = (self.error or {}).get("at")
        return None if at is None or self.state is not TableState.FAILED else float(at)

    @property
    def stopped_at(self) -> int | None:
        """The index up to which a table that has stopped is in its base whole: it reads and needs no later change."""
        at = (self.error or {}).get("stopped_at")
        return None if at is None or self.state is not TableState.FAILED else int(at)

    @property
    def history_missing(self) -> bool:
        """It has stopped, and changes that it would need to go on are no longer kept for it."""
        return self.state is TableState.FAILED and (self.error or {}).get("code") == "data.history_missing"

    @property
    def whole(self) -> bool:
        """Its history is read: a complete table holds every row of the upstream."""
        return self.options.get("snapshot", "true") == "true" and self.control is not Control.CANCELLED

    @property
    def filter(self) -> str:
        """Which rows it holds, as the user wrote it; empty = all."""
        return self.options.get("backfill.filter", "")

    @property
    def partial(self) -> bool:
        """The upstream may have rows that this table has never read, and that a change can bring in."""
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
    again: bool = False  # it was scanned before, and the base may hold what that scan read


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file next to a base: path relative to the base, Delta statistics as JSON text."""

    path: str
    bytes: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The one value of a scan: what it saw, how far the log must come, what it wrote.

    `stopped_at` is set when the scan ended early: what was read is `(lo, stopped_at]`, the rest goes back to pending.
    """

    saw: str
    high: str
    files: tuple[DataFile, ...]
    rows: int
    unrepresentable: dict[str, int] = field(default_factory=dict)  # column → values that could not be kept exactly
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
    truncate_index: int = 0  # the last TRUNCATE in it, or 0; what lies before that is not in the run


class Json:
    """Turns the nouns above into JSON text and back, for meta and for tasks."""

    @staticmethod
    def dump(value: Any) -> str:
        return json.dumps(asdict(value) if hasattr(value, "__dataclass_fields__") else value, ensure_ascii=False)

    @staticmethod
    def bound(value: dict[str, Any] | None) -> Bound | None:
        return None if value is None else Bound(tuple(value["key"]), value["after"])

    @classmethod
    def span(cls, value: dict[str, Any]) -> Span:
        return Span(cls.bound(value["lo"]), cls.bound(value["hi"]))

    @classmethod
    def layout(cls, text: str) -> Layout:
        v = json.loads(text)
        spans = tuple(
            CoveredSpan(cls.span(s["span"]), s["log_index"], s["cover_index"], tuple(s["saw"])) for s in v["spans"]
        )
        return Layout(v["relation_id"], v["base_version"], spans, v["complete"])

    @classmethod
    @lru_cache(maxsize=1024)  # read many times a second, and hardly ever different
    def columns(cls, text: str) -> tuple[Column, ...]:
        return tuple(
            Column(c["name"], c["lake_type"], cls._type(c["upstream"]), c["nullable"]) for c in json.loads(text)
        )

    @staticmethod
    def _type(value: dict[str, Any]) -> UpstreamType:
        return UpstreamType(**{**value, "labels": tuple(value.get("labels", ()))})

    @classmethod
    def scan_result(cls, text: str) -> ScanResult:
        v = json.loads(text)
        files = tuple(DataFile(**f) for f in v.pop("files"))
        stopped = cls.bound(v.pop("stopped_at"))
        return ScanResult(files=files, stopped_at=stopped, **v)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a user should know about a relation that is not an error: code, text, how often."""

    relation_id: int
    code: str
    text: str
    count: int
