"""Looks for what the log does not tell: upstream tables that were rewritten, re-partitioned, dropped or replaced."""

from __future__ import annotations

import logging
from collections import defaultdict

from headwater.engine.home import Home
from headwater.engine.upstreams import upstream_of
from headwater.errors import DataError, Retry
from headwater.meta import connections, lease, relations
from headwater.meta.lease import Lease
from headwater.model import ConnectionState, RelationInfo, TableState

log = logging.getLogger(__name__)


class Watcher:
    """Compares each table's fingerprint with the last one; a table that changed behind the log's back is stopped."""

    def __init__(self, home: Home, held: Lease) -> None:
        self._home = home
        self._held = held

    def tick(self) -> None:
        """One look at every connection that runs: one question each."""
        by_connection: defaultdict[int, list[RelationInfo]] = defaultdict(list)
        with self._home.meta.read() as c:
            running = {x.id for x in connections.all(c) if x.state is ConnectionState.RUNNING}
            for relation in relations.all(c):
                if relation.connection_id in running and relation.state in (TableState.FILLING, TableState.LIVE):
                    by_connection[relation.connection_id].append(relation)
            before = {r.id: relations.fingerprint(c, r.id) for rs in by_connection.values() for r in rs}
        for connection_id, watched in by_connection.items():
            upstream = upstream_of(self._home.meta, connection_id)
            now = upstream.fingerprint([r.upstream_id for r in watched])
            for relation in watched:
                old, new = before[relation.id], now[relation.upstream_id]
                if old and old != new:
                    self._record(relation, new, upstream.rewritten(old, new))

    def _record(self, relation: RelationInfo, fingerprint: str, what: str) -> None:
        with self._home.meta.write() as c:
            lease.check(c, self._held)
            if not what:
                relations.set_fingerprint(c, relation.id, fingerprint)
                return
            log.error("table failed name=%s code=data.rewritten", relation.name)
            error = DataError(
                "data.rewritten",
                f"{what}: the log does not say how its rows changed",
                f"DROP TABLE {relation.name}; and CREATE TABLE it again.",
                Retry.NEVER,
            )
            relations.set_state(c, relation.id, TableState.FAILED, error)
