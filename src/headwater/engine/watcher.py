"""Looks for what the log does not tell: upstream tables that were rewritten, re-partitioned, dropped or replaced."""

from __future__ import annotations

import logging
from collections import defaultdict

from headwater.decode.layout import Layout
from headwater.engine.home import Home
from headwater.engine.upstreams import passed, upstream_of
from headwater.errors import DataError
from headwater.meta import connections, lease, relations, segments
from headwater.meta.lease import Lease
from headwater.model import ConnectionState, RelationInfo, SchemaVersion, TableState
from headwater.source.upstream import Upstream

log = logging.getLogger(__name__)


class Watcher:
    """Compares each table's fingerprint with the last one; a table that changed behind the log's back is stopped."""

    def __init__(self, home: Home, held: Lease) -> None:
        self._home = home
        self._held = held
        self._looks: dict[int, tuple[str, str]] = {}  # relation → a new fingerprint and where the upstream stood then
        self._schemas: dict[int, int] = {}  # relation → the last schema version that was found to be fine
        self._truncates: dict[int, int] = {}  # relation → TRUNCATEs that an accepted fingerprint has accounted for

    def tick(self) -> None:
        """One look at every connection that runs: one question each."""
        versions: dict[int, list[SchemaVersion]] = {}
        by_connection: defaultdict[int, list[RelationInfo]] = defaultdict(list)
        with self._home.meta.read() as c:
            running = {x.id for x in connections.all(c) if x.state is ConnectionState.RUNNING}
            for relation in relations.all(c):
                if relation.connection_id in running and relation.state in (TableState.FILLING, TableState.LIVE):
                    by_connection[relation.connection_id].append(relation)
            before = {r.id: relations.fingerprint(c, r.id) for rs in by_connection.values() for r in rs}
            for relation in (r for rs in by_connection.values() for r in rs):
                known = segments.schemas(c, relation.connection_id, relation.upstream_id)
                seen = self._schemas.get(relation.id, 0)
                # what broke the table before it began does not concern it: its scans came later
                before_it = {v.id for v in known if v.broken and v.from_index <= relation.begin_index}
                versions[relation.id] = [v for v in known if v.id > seen and v.id not in before_it]
        for connection_id, watched in by_connection.items():
            upstream = upstream_of(self._home.meta, connection_id)
            now = upstream.fingerprint([r.upstream_id for r in watched])
            for relation in watched:
                if self._judge(relation, versions[relation.id]):
                    continue
                old, new = before[relation.id], now[relation.upstream_id]
                if old and old != new:
                    self._settle(upstream, relation, old, new)

    def _judge(self, relation: RelationInfo, versions: list[SchemaVersion]) -> bool:
        """Stops the table if the log began to write its rows in a way that cannot be followed; True if it did."""
        for version in versions:
            try:
                Layout.of(version, relation.columns, relation.key)
            except DataError as e:
                hint = e.hint.replace("RESYNC TABLE reads", f"RESYNC TABLE {relation.name} reads")
                self._record(relation, "", DataError(e.code, e.message, hint, e.retry))
                return True
            self._schemas[relation.id] = version.id
        return False

    def _settle(self, upstream: Upstream, relation: RelationInfo, old: str, new: str) -> None:
        """Asks once everything that was committed before this look is in the changelog, a TRUNCATE too."""
        looked = self._looks.setdefault(relation.id, (new, upstream.position()))
        if looked[0] != new:
            self._looks[relation.id] = (new, upstream.position())
            return
        with self._home.meta.read() as c:
            connection = connections.get(c, relation.connection_id)
            truncates = segments.count_truncates(c, connection.id, relation.upstream_id)
        if not passed(connection.type, connection.position, looked[1]):
            return
        before = self._truncates.get(relation.id, 0)
        self._record(relation, new, upstream.rewritten(old, new, relation.name, truncates > before))
        self._truncates[relation.id] = truncates
        del self._looks[relation.id]

    def _record(self, relation: RelationInfo, fingerprint: str, error: DataError | None) -> None:
        with self._home.meta.write() as c:
            lease.check(c, self._held)
            if error is None:
                relations.set_fingerprint(c, relation.id, fingerprint)
                return
            log.error("table failed name=%s code=%s", relation.name, error.code)
            relations.set_state(c, relation.id, TableState.FAILED, error)
