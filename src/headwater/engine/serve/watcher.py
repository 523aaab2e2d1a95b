"""Finds changes that the log does not show: upstream tables rewritten, re-partitioned, dropped or replaced."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

from headwater.decode.layout import RowLayout
from headwater.engine.failures import Who, described
from headwater.engine.home import Home
from headwater.errors import DataError, FencedError, HeadwaterError
from headwater.meta import changes as changes_of
from headwater.meta import connections, relations, segments
from headwater.model import ConnectionInfo, ConnectionState, RelationInfo, SchemaVersion, TableState
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.relation.changes import Changes
from headwater.source.connected import passed, upstream_of
from headwater.source.upstream import Look, Upstream, Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A followed table, with its state from meta."""

    relation: RelationInfo
    before: Look | None  # the last accepted look
    versions: list[SchemaVersion]  # of its rows in the log, those not judged yet
    unwatched: str  # why the last look failed, as its note says


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A look that differs from the accepted one, and waits for the log to catch up with it."""

    before: Look
    look: Look
    position: str  # the upstream's position after it


class Watcher:
    """Judges how the log describes each table, and compares the catalog with the last accepted look.

    A table that changed without log events is stopped. A failed look affects only its own table, and is shown.
    """

    def __init__(self, home: Home, leases: Leases, changes: Changes) -> None:
        self._home = home
        self._leases = leases
        self._changes = changes
        self._looks: dict[int, _Waiting] = {}  # relation → the first look that differs from the accepted one
        self._judged: dict[int, int] = {}  # relation → the last accepted schema version

    def tick(self) -> None:
        """Looks at every running connection, with one query each. An error in one does not affect the others."""
        for connection_id, tables in self._watched().items():
            who = Who("watcher", connection=connection_id)
            self._home.live.failures.attempt(who, partial(self._look, connection_id, tables), None)

    def _look(self, connection_id: int, tables: list[_Watched]) -> None:
        try:
            upstream = upstream_of(self._home.meta, connection_id)
            looks = upstream.look([t.relation.table_origin.upstream_id for t in tables])
        except Exception as e:
            for table in tables:
                self._note(table, described(e))
            if isinstance(e, HeadwaterError):
                return
            raise  # unexpected: logged as such, and shown with the connection
        for table in tables:
            self._watch(upstream, table, looks[table.relation.table_origin.upstream_id])

    def _watched(self) -> dict[int, list[_Watched]]:
        """The tables that are followed, by connection."""
        found: defaultdict[int, list[_Watched]] = defaultdict(list)
        with self._home.meta.read() as c:
            running = {x.id for x in connections.all(c) if x.state is ConnectionState.RUNNING}
            unwatched = relations.noted(c, relations.UNWATCHED)
            for r in relations.tables(c):
                if r.table_origin.connection_id not in running or r.state not in (TableState.FILLING, TableState.LIVE):
                    continue
                stored = relations.fingerprint(c, r.id)
                # rows logged before the table's beginning do not matter: its scans came later
                versions = changes_of.schemas_in_use(c, r, self._judged.get(r.id, 0))
                before = Look.parse(stored) if stored else None
                found[r.table_origin.connection_id].append(_Watched(r, before, versions, unwatched.get(r.id, "")))
        return found

    def _watch(self, upstream: Upstream, table: _Watched, now: Look) -> None:
        try:
            self._judge(upstream, table, now)
        except FencedError:
            raise
        except HeadwaterError as e:
            self._note(table, e)
        else:
            self._note(table, None)

    def _judge(self, upstream: Upstream, table: _Watched, now: Look) -> None:
        """Stops the table if the log or the catalog describes it in a way that cannot be followed."""
        relation = table.relation
        for version in [*table.versions, *([now.described] if now.described else [])]:
            try:
                RowLayout.of(version, relation.columns, relation.key)
            except DataError as e:
                hint = e.hint.replace("RESYNC TABLE reads", f"RESYNC TABLE {relation.name} reads")
                self._record(relation, now, Verdict(e.reworded(hint=hint)))
                return
            self._judged[relation.id] = max(version.id, self._judged.get(relation.id, 0))
        if table.before is not None:
            self._settle(upstream, relation, table.before, now)

    def _settle(self, upstream: Upstream, relation: RelationInfo, before: Look, now: Look) -> None:
        """Judges a look once everything committed before it is in the changelog, including TRUNCATEs.

        It judges the first look that differs: if it took the latest, a table that keeps changing would never be judged.
        """
        waiting = self._looks.get(relation.id)
        if waiting is None or waiting.before != before:  # none, or a new look was accepted since
            self._wait(upstream, relation, before, now)
            return
        with self._home.meta.read() as c:
            connection = connections.get(c, relation.table_origin.connection_id)
        if not passed(connection.type, connection.position, waiting.position):
            return
        truncates = self._truncates(upstream, connection, relation, before)
        verdict = upstream.compare(before, waiting.look, relation, truncates)
        self._record(relation, waiting.look, verdict)
        del self._looks[relation.id]
        if verdict.error is None:
            self._wait(upstream, relation, Look.parse(waiting.look.stored()), now)

    def _wait(self, upstream: Upstream, relation: RelationInfo, before: Look, now: Look) -> None:
        self._looks.pop(relation.id, None)
        if before.shape != now.shape:
            self._looks[relation.id] = _Waiting(before, now, upstream.position())

    def _truncates(
        self, upstream: Upstream, connection: ConnectionInfo, relation: RelationInfo, before: Look
    ) -> list[int]:
        """The transactions of TRUNCATEs in the changelog that the accepted look may not have seen."""
        after, upto = relation.table_origin.begin_index, connection.committed_index
        with self._home.meta.read() as c:
            if before.saw:
                unseen = segments.first_unseen(c, connection.id, upstream.txn_min(before.saw), upto)
                after = max(after, unseen)
        return [txn for _, txn in self._changes.truncates(relation, after, upto)]

    def _record(self, relation: RelationInfo, look: Look, verdict: Verdict) -> None:
        with self._home.meta.owned(self._leases.of(Name.relation(relation.id))) as c:
            current = relations.get_or_none(c, relation.id)
            if current is None or current.state is TableState.FAILED:
                return  # dropped or stopped meanwhile: its first error counts
            if verdict.error is not None:
                log.error("table failed name=%s code=%s", relation.name, verdict.error.code)
                relations.set_state(c, relation.id, TableState.FAILED, verdict.error)
                return
            relations.set_fingerprint(c, relation.id, look.stored())
            for text in verdict.notices:
                relations.note(c, relation.id, "table.notice", text)

    def _note(self, table: _Watched, error: HeadwaterError | None) -> None:
        """Notes on a table that the last look failed, or removes the note once one succeeds."""
        text = f"cannot check for changes that the log does not show: {error.message}. {error.hint}" if error else ""
        if text == table.unwatched:
            return
        if error is not None:
            self._home.live.counters.add("headwater_errors_total", of=error.code)
            log.warning("table unwatched name=%s code=%s %s", table.relation.name, error.code, error.message)
        with self._home.meta.owned(self._leases.of(Name.relation(table.relation.id))) as c:
            relations.set_note(c, table.relation.id, relations.UNWATCHED, text)
