"""The status of a home: from meta, plus what only the running server knows.

The cost does not depend on the number of spans: the database aggregates them, for all relations at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.engine.failures import Failures
from headwater.engine.home import Home
from headwater.engine.live import Lag, Serving
from headwater.engine.results import ConnectionStatus, JobStatus, Status, TableStatus
from headwater.engine.status.progress import estimated_rows, seconds_left
from headwater.engine.status.views import UNFINISHED, ViewProgress, progress_of
from headwater.errors import HeadwaterError
from headwater.meta import changes as changes_of
from headwater.meta import connections, epochs, progress, relations
from headwater.meta.progress import Progress
from headwater.model import ConnectionInfo, ConnectionState, Control, Epoch, RelationInfo, TableState


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One snapshot of meta, for all tables."""

    c: Connection
    connections: dict[int, ConnectionInfo]
    lags: dict[int, Lag | None]
    relations: dict[int, RelationInfo]
    progress: dict[int, Progress]
    unrepresentable: dict[int, int]
    unwatched: dict[int, str]
    overlays: dict[int, int]
    views: dict[int, ViewProgress]
    newest: Epoch | None
    server: Serving | None
    failures: Failures


def status_of(home: Home, server: Serving | None) -> Status:
    """The status of a home; without a server only what is in meta."""
    with home.meta.read() as c:
        known = connections.all(c)
        found = relations.all(c)
        newest = epochs.newest(c)
        reached = progress.of_all(c)
        seen = _Snapshot(
            c,
            {x.id: x for x in known},
            {x.id: server.lag(x.id, x.position) if server else None for x in known},
            {r.id: r for r in found},
            reached,
            progress.notices(c, "value.unrepresentable"),
            relations.noted(c, relations.UNWATCHED),
            _overlays(c, found, reached, newest, server),
            progress_of(c, found, server),
            newest,
            server,
            home.live.failures,
        )
        linked = tuple(_connection(seen, x) for x in known)
        lag_s = {x.id: status.lag_s for x, status in zip(known, linked, strict=True)}
        tables = tuple(_table(seen, r, lag_s) for r in found)
    return Status(
        home=str(home.path),
        server_pid=server.pid if server else None,
        epoch=newest.id if newest else 0,
        epoch_age_s=time.time() - newest.created_at if newest else None,
        connections=linked,
        tables=tables,
        jobs=tuple(JobStatus(name=job, **_error_fields(e.as_dict())) for job, e in home.live.failures.of()),
    )


def shown_name(r: RelationInfo, known: Iterable[RelationInfo]) -> str:
    """The display name of a relation: one that will replace another is shown as that one's resync or refresh."""
    if not r.replaces:
        return r.name
    replaced = next((x.name for x in known if x.id == r.replaces), r.name.removeprefix(relations.BESIDE))
    return f"{replaced} ({'resync' if r.view is None else 'refresh'})"


def _error_fields(error: Mapping[str, str]) -> dict[str, str]:
    """An error as the fields of a status; empty values without one."""
    return {
        "code": error.get("code", ""),
        "error": error.get("message", ""),
        "hint": error.get("hint", ""),
        "retry": error.get("retry", ""),
    }


def _last_failure(failed: list[tuple[str, HeadwaterError]]) -> dict[str, str]:
    """The last error of the server's work on a table or a connection, which it retries."""
    return failed[-1][1].as_dict() if failed else {}


def connection_error(x: ConnectionInfo, failures: Failures) -> dict[str, str]:
    """Why a connection does not work, or waits: its capture's error, or that of the server's work on it."""
    return x.error or _last_failure(failures.of(connection=x.id))


def _connection(seen: _Snapshot, x: ConnectionInfo) -> ConnectionStatus:
    error = connection_error(x, seen.failures)
    lag = seen.lags[x.id]
    runs = seen.server is not None or x.state is ConnectionState.FAILED  # a capture stops with the server
    state = x.state if runs else ConnectionState.DEFINED
    end = seen.server.log_end(x.id) if seen.server else None
    return ConnectionStatus(
        name=x.name,
        state=state,
        index=x.committed_index,
        position=x.position,
        lag_s=lag.seconds if lag else _silence(seen.c, x, state, error),
        lag_bytes=lag.bytes if lag else None,
        slot_bytes=end.kept_bytes if end else None,
        slot_limit_bytes=end.limit_bytes if end else None,
        **_error_fields(error),
        waiting_for=seen.server.preparing(x.id) if seen.server else "",
        note=end.notice if end else "",
    )


def _silence(c: Connection, x: ConnectionInfo, state: ConnectionState, error: Mapping[str, str]) -> float | None:
    """How long the changelog has not grown, if the upstream's position is unknown: an upper bound of the lag.

    None while it is about to become known: the capture runs, and nothing is wrong.
    """
    if (state is ConnectionState.RUNNING and not error) or not x.position:
        return None
    return time.time() - connections.position_at(c, x.id)


def _lag_of_view(
    seen: _Snapshot, r: RelationInfo, own: ViewProgress, lag_s: Mapping[int, float | None]
) -> float | None:
    """How far a view is behind the upstreams: behind its inputs, and these behind theirs."""
    if own.lag_s is None:
        return None
    return own.lag_s + max((lag_s[id] or 0.0 for id in changes_of.connections_of(seen.c, [r])), default=0.0)


def _table(seen: _Snapshot, r: RelationInfo, lag_s: Mapping[int, float | None]) -> TableStatus:
    """The status of a table or a view: what only a table has is empty for a view."""
    p, own = seen.progress[r.id], seen.views.get(r.id)
    connection = None if own is not None else seen.connections[changes_of.connection_of(r)]
    lag = None if connection is None else seen.lags[connection.id]
    filling = r.shown_state == TableState.FILLING
    rate = seen.server.rate(r.id) if seen.server and filling else 0.0
    error = r.error or _last_failure(seen.failures.of(table=r.id))
    if connection is not None:
        error = error or connection_error(connection, seen.failures)
    slices = own is not None and not p.complete  # a view is readable with its last slice: the others are progress
    return TableStatus(
        name=shown_name(r, seen.relations.values()),
        state=r.shown_state,
        spans_done=p.scanned if slices else p.covered,
        spans_total=p.total,
        scanned_rows=p.rows,
        rate=rate,
        covered=p.scanned / max(1, p.total) if slices else p.share,
        rows_estimate=estimated_rows(p),
        left_s=seconds_left(p, rate) if filling else None,
        position="" if connection is None else _cut(seen, connection, p),
        lag_s=_lag_of_view(seen, r, own, lag_s) if own is not None else lag_s[changes_of.connection_of(r)],
        lag_bytes=lag.bytes if lag else None,
        waiting_for=own.waiting_for if own is not None else _waits_for(seen, r, p),
        note="; ".join(x for x in (seen.unwatched.get(r.id, ""), _note(r, p)) if x),
        **_error_fields(error),
        overlay=seen.overlays.get(r.id, 0),
        unrepresentable=seen.unrepresentable.get(r.id, 0),
        connection="" if connection is None else connection.name,
        kind=r.kind,
    )


def _cut(seen: _Snapshot, connection: ConnectionInfo, p: Progress) -> str:
    """The upstream position at which the table is read now; empty while nothing is readable."""
    entries = seen.newest.entries if seen.newest and p.covered else ()
    cut = next((x for x in entries if x.connection_id == connection.id), None)
    if cut is None:
        return ""
    # progress without changes makes no epoch: the same rows are current at the position reached since
    return connection.position if cut.index == connection.committed_index else cut.position


def _overlays(
    c: Connection, found: list[RelationInfo], reached: dict[int, Progress], newest: Epoch | None, server: Serving | None
) -> dict[int, int]:
    """Changes that are not folded into the base: as of the server's last check, otherwise counted now."""
    known = {r.id: n for r in found if server is not None and (n := server.overlay_changes(r.id)) is not None}
    if newest is None:
        return known
    ranges = [
        (r, begin, changes_of.current(c, r, newest))
        for r in found
        if r.id not in known and (begin := reached[r.id].log_index) is not None
    ]
    return known | changes_of.counts(c, ranges)


def _waits_for(seen: _Snapshot, r: RelationInfo, p: Progress) -> str:
    """What an incomplete table is waiting for, as text; empty while it makes progress."""
    if r.state is TableState.FAILED:
        return ""
    if r.block and p.complete:
        others = [x for x in seen.relations.values() if x.block == r.block and not seen.progress[x.id].complete]
        return f"the other tables of its block: {_names(others)}" if others else ""
    if r.state not in UNFINISHED:
        return ""
    if r.control is Control.PAUSED:
        return f"RESUME BACKFILL {r.name.removeprefix(relations.BESIDE)}"
    if seen.server is None:
        return "a server: start `headwater run`"
    waits = seen.server.waiting_for(r.id) or seen.server.preparing(changes_of.connection_of(r))
    if waits.startswith("backfill.rate_limit"):  # above 0 it continues at that rate, which is in its note
        return f"ALTER TABLE {r.name} SET (backfill.rate_limit = …): it is 0" if _limit(r) == 0 else ""
    connection = seen.connections[changes_of.connection_of(r)]
    return waits or ("" if connection.state is ConnectionState.RUNNING else f"connection {connection.name}")


def _limit(r: RelationInfo) -> int | None:
    """Rows per second that the user allows; None: no limit."""
    limit = r.options.get("backfill.rate_limit")
    return None if limit is None else int(limit)


def _note(r: RelationInfo, p: Progress) -> str:
    """What the user chose and should still be reminded of, as text."""
    if r.control is Control.CANCELLED:
        return "its backfill was cancelled: rows that were not read by then appear only with their next change"
    if not r.whole:
        return "without its history: rows appear only with their next change"
    limit = _limit(r)
    if limit and r.shown_state == TableState.FILLING:
        return f"limited to {limit:,} rows/s by backfill.rate_limit"
    if p.total and not p.complete and not r.ordered and r.view is None:
        return "only the database can order its keys: readable when complete"
    return ""


def _names(found: Sequence[RelationInfo]) -> str:
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return ", ".join(r.name for r in found[:3]) + more
