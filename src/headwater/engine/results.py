"""The facade's return values, for screens, the wire and programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self, TypeVar

import pyarrow as pa

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a result from a connection's tables is behind its upstream, and why.

    `reason` is the code of the connection's error, or text. While the upstream is unreachable, `seconds` is how long
    the changelog has not grown.
    """

    connection: str
    seconds: float
    reason: str

    def __str__(self) -> str:
        return f"{self.connection}: {age(self.seconds)} behind: {self.reason}"


def age(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h`, `5 days`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one statement: rows (a query, SHOW, …) or a message (a definition).

    `types` are Spark DDL types, one per column. `warnings`, for people, say what the rows do not contain yet. `behind`
    lists the connections that the statement read and that are not fresh. `statement` is the statement's text, for
    programs that sent several; it never contains a password. `epoch` is the one that a query read; if it names views,
    `age_s` is for how long there has been a newer one.
    """

    columns: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: pa.Table | None = None
    message: str = ""
    warnings: tuple[str, ...] = ()
    statement: str = ""
    behind: tuple[Behind, ...] = ()
    epoch: int = 0
    age_s: float | None = None

    def header(self) -> dict[str, Any]:
        """Everything but the rows, as JSON values."""
        return {
            "columns": list(self.columns),
            "types": list(self.types),
            "message": self.message,
            "warnings": list(self.warnings),
            "statement": self.statement,
            "behind": [asdict(b) for b in self.behind],
            "epoch": self.epoch,
            "age_s": self.age_s,
        }

    @classmethod
    def of(cls, header: dict[str, Any], rows: pa.Table | None) -> Self:
        """The result that `header()` and the rows describe."""
        return cls(
            tuple(header["columns"]),
            tuple(header["types"]),
            rows,
            header["message"],
            tuple(header["warnings"]),
            header["statement"],
            tuple(_read(Behind, b) for b in header.get("behind", ())),
            header.get("epoch", 0),
            header.get("age_s"),
        )


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of one table or materialized view.

    `covered` is the share (0 to 1) of its spans that readers see. `rows_estimate` (total rows) and `left_s` (remaining
    scan time) are estimates. `position` is the cut at which it is read now. `lag_s` and `lag_bytes`: how far its
    connection is behind the upstream (a view: it is behind its inputs, and these behind theirs), None while unknown.
    `waiting_for`: what it is waiting for, as text. `note`: not an error, but worth knowing. `error`: why it stopped;
    `hint`: the fix; `retry`: `auto`, `after fix` or `never`. `overlay`: the number of changes that are not in the base.
    """

    name: str
    state: str
    spans_done: int = 0
    spans_total: int = 0
    scanned_rows: int = 0  # read by scans: not how many the table has
    rate: float = 0.0  # rows per second
    covered: float = 0.0
    rows_estimate: int | None = None
    left_s: float | None = None
    position: str = ""
    lag_s: float | None = None
    lag_bytes: int | None = None
    waiting_for: str = ""
    note: str = ""
    code: str = ""
    error: str = ""
    hint: str = ""
    retry: str = ""
    overlay: int = 0
    unrepresentable: int = 0  # values that the lake could not keep exactly; they are NULL there
    connection: str = ""
    kind: str = "table"  # or `materialized view`


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """The status of one connection.

    The upstream retains `slot_bytes` of log for us, at most `slot_limit_bytes` (None: no limit, or unknown). `lag_s` is
    how long the upstream has been ahead; while it is unreachable, how long the changelog has not grown. `note`: not an
    error, but may surprise.
    """

    name: str
    state: str
    index: int = 0
    position: str = ""
    lag_s: float | None = None
    lag_bytes: int | None = None
    slot_bytes: int | None = None
    slot_limit_bytes: int | None = None
    waiting_for: str = ""
    note: str = ""
    code: str = ""
    error: str = ""
    hint: str = ""
    retry: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of the server that is failing and being retried; it belongs to no table or connection."""

    name: str
    code: str = ""
    error: str = ""
    hint: str = ""
    retry: str = ""
    waiting_for: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a home: its server (`server_pid` is None: none runs), newest epoch, connections, tables, views.

    `jobs` are the server's own jobs that are failing.
    """

    home: str
    server_pid: int | None = None
    epoch: int = 0
    epoch_age_s: float | None = None
    connections: tuple[ConnectionStatus, ...] = ()
    tables: tuple[TableStatus, ...] = ()
    jobs: tuple[JobStatus, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        connections = tuple(_read(ConnectionStatus, c) for c in value.get("connections", ()))
        tables = tuple(_read(TableStatus, t) for t in value.get("tables", ()))
        jobs = tuple(_read(JobStatus, j) for j in value.get("jobs", ()))
        return _read(cls, {**value, "connections": connections, "tables": tables, "jobs": jobs})


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of comparing one table with its upstream at one cut.

    `missing` are keys that only the upstream has, `extra` keys that only the lake has, `different` keys whose rows
    differ: a few of each, as text; `differences` counts them (0 if the upstream could not be read again to list
    them). `skipped` says why there was nothing to compare; `error` (with its code and hint) why it failed.
    """

    table: str
    equal: bool
    lake_rows: int = 0
    upstream_rows: int = 0
    position: str = ""
    epoch: int = 0
    differences: int = 0
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    seconds: float = 0.0
    skipped: str = ""
    code: str = ""
    error: str = ""
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """The inverse of `as_dict`."""
        return _read(cls, {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()})


def _read(kind: type[T], value: dict[str, Any]) -> T:
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    return kind(**{k: v for k, v in value.items() if k in known})
