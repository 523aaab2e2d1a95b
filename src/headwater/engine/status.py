"""Where everything stands: meta's view, with what only the running server knows."""

from __future__ import annotations

import time
from typing import Protocol

from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.results import ConnectionStatus, Status, TableStatus
from headwater.meta import connections, epochs, relations, segments, spans
from headwater.model import ConnectionInfo, ConnectionState, Epoch, RelationInfo, SpanState


class Waits(Protocol):
    """What a running server can say about what is being waited for."""

    def waiting_for(self, relation_id: int) -> str: ...

    def preparing(self, connection_id: int) -> str: ...

    def rate(self, relation_id: int, rows: int) -> float: ...

    @property
    def pid(self) -> int: ...


def status_of(home: Home, server: Waits | None) -> Status:
    """The status of a home; without a server only what meta knows."""
    with home.meta.read() as c:
        newest = epochs.newest(c)
        known = connections.all(c)
        names = {x.id: x for x in known}
        tables = tuple(_table(c, r, names[r.connection_id], newest, server) for r in relations.named(c))
        linked = tuple(_connection(c, x) for x in known)
    return Status(
        home=str(home.path),
        server_pid=server.pid if server else None,
        epoch=newest.id if newest else 0,
        epoch_age_s=time.time() - newest.created_at if newest else None,
        connections=linked,
        tables=tables,
    )


def _connection(c: Connection, x: ConnectionInfo) -> ConnectionStatus:
    error = x.error or {}
    return ConnectionStatus(
        name=x.name,
        state=x.state,
        index=x.committed_index,
        position=x.position,
        lag_s=_lag(c, x),
        error=error.get("message", ""),
        hint=error.get("hint", ""),
    )


def _lag(c: Connection, x: ConnectionInfo) -> float | None:
    """While the capture runs its position moves with the upstream's; otherwise nobody knows how far that has gone."""
    if x.state is ConnectionState.RUNNING:
        return None
    return time.time() - connections.position_at(c, x.id) if x.position else None


def _table(
    c: Connection, r: RelationInfo, connection: ConnectionInfo, newest: Epoch | None, server: Waits | None
) -> TableStatus:
    found = spans.all(c, r.id)
    done = sum(s.state in (SpanState.COVERED, SpanState.SETTLED) for s in found)
    rows = sum(s.rows for s in found)
    layout = epochs.layout_at(c, r.id, newest.id) if newest else None
    overlay = 0
    if newest is not None and layout is not None and layout.spans:
        index = newest.index_of(r.connection_id)
        overlay = segments.count_changes(c, r.connection_id, r.upstream_id, layout.log_index, index)
    error = r.error or connection.error or {}
    waiting = (server.waiting_for(r.id) or server.preparing(r.connection_id)) if server else ""
    return TableStatus(
        name=r.name,
        state=r.state,
        spans_done=done,
        spans_total=len(found),
        rows=rows,
        rate=server.rate(r.id, rows) if server else 0.0,
        covered=1.0 if layout and layout.complete else done / len(found) if found else 0.0,
        lag_s=_lag(c, connection),
        waiting_for=waiting,
        error=error.get("message", ""),
        hint=error.get("hint", ""),
        overlay=overlay,
        unkept=sum(n.count for n in relations.notices(c, r.id) if n.code == "value.unkept"),
        connection=connection.name,
    )
