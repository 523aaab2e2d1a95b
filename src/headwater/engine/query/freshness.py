"""How old results from a connection's tables are, and why."""

from __future__ import annotations

import time
from collections.abc import Collection

from sqlalchemy.engine import Connection

from headwater.engine.live import Serving
from headwater.engine.results import Behind
from headwater.meta import connections, epochs
from headwater.model import ConnectionInfo, ConnectionState, Epoch

WORTH_SAYING_S = 10.0  # one heartbeat: anything younger is as fresh as we can know
UNHEARD_S = 30.0  # a running capture without progress for three heartbeats


def behind(
    c: Connection, server: Serving | None, ids: Collection[int], names: Collection[str] = (), now: float | None = None
) -> list[Behind]:
    """How far the connections with these ids or names are behind their upstreams, as far as is known.

    `server` is the one that follows them; None if none does.
    """
    now = time.time() if now is None else now
    meant = {n.lower() for n in names}
    newest = epochs.newest(c)
    used = [x for x in connections.all(c) if x.id in ids or x.name.lower() in meant]
    return [_behind(c, server, x, newest, now) for x in used if x.position]


def worth_saying(found: Collection[Behind]) -> tuple[Behind, ...]:
    """Those worth a warning."""
    return tuple(b for b in found if b.seconds > (UNHEARD_S if b.reason == _UNHEARD else WORTH_SAYING_S))


_UNHEARD = "nothing has been heard from the upstream"


def _behind(c: Connection, server: Serving | None, x: ConnectionInfo, newest: Epoch | None, now: float) -> Behind:
    follows = server is not None and x.state is ConnectionState.RUNNING
    lag = server.lag(x.id, x.position) if server is not None and follows else None
    if newest is not None and follows and newest.index_of(x.id) < x.committed_index:
        unpublished = now - newest.created_at
        if unpublished > WORTH_SAYING_S:
            return Behind(x.name, unpublished, "its newest changes have not been published yet")
    if lag is not None:
        paused = server is not None and server.paused(x.id)
        return Behind(x.name, lag.seconds, "its capture is waiting for folds" if paused else "catching up")
    # we do not know how far the upstream has advanced: this is an upper bound
    silence = max(0.0, now - connections.position_at(c, x.id))
    if x.error:
        return Behind(x.name, silence, x.error["code"])
    if server is None:
        return Behind(x.name, silence, "no server is running")
    return Behind(x.name, silence, _UNHEARD if follows else "its capture has not started")
