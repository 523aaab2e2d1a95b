"""Looks for what the log does not tell: upstream tables that were rewritten, re-partitioned, dropped or replaced."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import pyarrow.compute as pc

from headwater.changelog.reader import read_table
from headwater.decode.layout import RowLayout
from headwater.engine.failures import Who, described
from headwater.engine.home import Home
from headwater.errors import DataError, FencedError, HeadwaterError
from headwater.meta import changes as changes_of
from headwater.meta import connections, relations, segments
from headwater.meta.lease import Lease
from headwater.model import ConnectionInfo, ConnectionState, Op, RelationInfo, SchemaVersion, TableState
from headwater.source.connected import passed, upstream_of
from headwater.source.upstream import Look, Upstream, Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A table that is followed, with what meta knows of it."""

    relation: RelationInfo
    before: Look | None  # the last accepted look
    versions: list[SchemaVersion]  # how the log writes its rows, as far as that was not judged yet
    unwatched: str  # why it could not be looked at the last time, as its notice says it


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A look that differs from the accepted one, and waits for the log to come as far."""

    before: Look
    look: Look
    position: str  # where the upstream stood after it


class Watcher:
    """Judges how the log describes each table and compares the catalog with the last look that was accepted.

    A table that changed behind the log's back is stopped. A look that fails concerns its table alone, and is shown.
    """

    def __init__(self, home: Home, held: Lease) -> None:
        self._home = home
        self._held = held
        self._looks: dict[int, _Waiting] = {}  # relation → the first look that differs from the accepted one
        self._judged: dict[int, int] = {}  # relation → the last schema version that was found to be fine

    def tick(self) -> None:
        """One look at every connection that runs: one question each. What goes wrong with one concerns no other."""
        for connection_id, tables in self._watched().items():
            who = Who("watcher", connection=connection_id)
            self._home.live.failures.attempt(who, partial(self._look, connection_id, tables), None)

    def _look(self, connection_id: int, tables: list[_Watched]) -> None:
        try:
            upstream = upstream_of(self._home.meta, connection_id)
            looks = upstream.look([t.relation.origin.upstream_id for t in tables])
        except Exception as e:
            for table in tables:
                self._tell(table, described(e))
            if isinstance(e, HeadwaterError):
                return
            raise  # a defect: it is logged as one, and shown with the connection
        for table in tables:
            self._watch(upstream, table, looks[table.relation.origin.upstream_id])

    def _watched(self) -> dict[int, list[_Watched]]:
        """The tables that are followed, by connection."""
        found: defaultdict[int, list[_Watched]] = defaultdict(list)
        with self._home.meta.read() as c:
            running = {x.id for x in connections.all(c) if x.state is ConnectionState.RUNNING}
            unwatched = relations.noted(c, relations.UNWATCHED)
            for r in relations.all(c):
                if r.origin.connection_id not in running or r.state not in (TableState.FILLING, TableState.LIVE):
                    continue
                stored = relations.fingerprint(c, r.id)
                # what was written before the table began does not concern it: its scans came later
                versions = changes_of.schemas_in_use(c, r, self._judged.get(r.id, 0))
                before = Look.parse(stored) if stored else None
                found[r.origin.connection_id].append(_Watched(r, before, versions, unwatched.get(r.id, "")))
        return found

    def _watch(self, upstream: Upstream, table: _Watched, now: Look) -> None:
        try:
            self._judge(upstream, table, now)
        except FencedError:
            raise
        except HeadwaterError as e:
            self._tell(table, e)
        else:
            self._tell(table, None)

    def _judge(self, upstream: Upstream, table: _Watched, now: Look) -> None:
        """Stops the table if its log, or its catalog, describes it in a way that cannot be followed."""
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
        """Judges a look once everything that was committed before it is in the changelog, a TRUNCATE too.

        It is the first one that differs: a table that is different at every look would never be judged by the last.
        """
        waiting = self._looks.get(relation.id)
        if waiting is None or waiting.before != before:  # none, or the table was accepted anew since
            self._wait(upstream, relation, before, now)
            return
        with self._home.meta.read() as c:
            connection = connections.get(c, relation.origin.connection_id)
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
        """The transactions of the TRUNCATEs that the changelog holds and an accepted look may not have seen."""
        after, upto = relation.origin.begin_index, connection.committed_index
        with self._home.meta.read() as c:
            if before.saw:
                unseen = segments.first_unseen(c, connection.id, upstream.txn_min(before.saw), upto)
                after = max(after, unseen)
            pieces = changes_of.pieces(c, relation, after, upto)
        emptying = [(path, part) for path, part in pieces if part.truncates]
        rows = read_table(self._home.storage, emptying, after, upto)
        found: list[int] = rows.filter(pc.equal(rows["op"], int(Op.TRUNCATE)))["txn"].to_pylist()
        return found

    def _record(self, relation: RelationInfo, look: Look, verdict: Verdict) -> None:
        with self._home.meta.owned(self._held) as c:
            current = relations.get_or_none(c, relation.id)
            if current is None or current.state is TableState.FAILED:
                return  # dropped or stopped while it was looked at: its first error counts
            if verdict.error is not None:
                log.error("table failed name=%s code=%s", relation.name, verdict.error.code)
                relations.set_state(c, relation.id, TableState.FAILED, verdict.error)
                return
            relations.set_fingerprint(c, relation.id, look.stored())
            for text in verdict.notices:
                relations.note(c, relation.id, "table.notice", text)

    def _tell(self, table: _Watched, error: HeadwaterError | None) -> None:
        """Notes on a table that it could not be looked at, and takes the note back once it could."""
        text = f"what its log does not tell cannot be checked: {error.message}. {error.hint}" if error else ""
        if text == table.unwatched:
            return
        if error is not None:
            self._home.live.counters.add("headwater_errors_total", of=error.code)
            log.warning("table unwatched name=%s code=%s %s", table.relation.name, error.code, error.message)
        with self._home.meta.owned(self._held) as c:
            relations.set_note(c, table.relation.id, relations.UNWATCHED, text)
