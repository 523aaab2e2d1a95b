"""Takes tables from `defined` to `live`: Begin, plan, scans. Each step is in meta before the next one begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater import crash
from headwater.backfill.pace import Pace
from headwater.changelog.reader import index_at, read_transactions
from headwater.config import SMALL_ROWS
from headwater.engine.commit.claims import history_missing
from headwater.engine.failures import Who, described
from headwater.engine.fill.planner import leave_rest, plan_relation
from headwater.engine.fill.scanner import remove_files, scan
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.engine.spark import jobs
from headwater.engine.spark.conf import share_of
from headwater.errors import DataError, FencedError, Scope, restored
from headwater.meta import changes as changes_of
from headwater.meta import connections, relations, segments, spans
from headwater.model import ConnectionState, Control, RelationInfo, SpanInfo, SpanState, TableState
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.relation import base
from headwater.source.connected import passed, upstream_of
from headwater.source.kinds import kind

BACKFILL = "backfill"  # the name under which failures are shown
MOST_SCANS = 64  # at once, even on a large cluster: each has a connection to its upstream
PLANNERS = 4  # they mostly wait for the upstream and for Spark


@dataclass(slots=True)
class _Work:
    """This process's state of one relation; everything that must survive is in meta."""

    ticket: str | None = None
    waiting_for: str = ""
    planning: Future[bool] | Future[None] | None = None
    planned: bool = False  # as of the last tick
    small: bool = False  # its next scan needs no Spark task
    scans: dict[int, Future[int]] = field(default_factory=dict)  # span → rows that it was allowed but did not read
    lost: set[int] = field(default_factory=set)  # spans whose scan failed; in meta they may still be SCANNING
    pace: Pace = field(default_factory=Pace)


class Backfill:
    """The coordinator. Call `tick()` repeatedly from one thread; the work runs in a pool."""

    def __init__(
        self, home: Home, leases: Leases, session: Callable[[], SparkSession], on_scanned: Callable[[], None]
    ) -> None:
        self._home = home
        self._leases = leases
        self._session = session
        self._on_scanned = on_scanned
        self._guard = Guard(home, leases)
        self._work: dict[int, _Work] = {}
        # Scans never take more, so that reads always find a free slot. A cluster's size is known once it runs.
        self._slots = max(1, (share_of(home.settings) or 2) // 2)
        self._pool = ThreadPoolExecutor(MOST_SCANS, thread_name_prefix="scan")
        self._planners = ThreadPoolExecutor(PLANNERS, thread_name_prefix="plan")
        self._stopping = threading.Event()

    def recover(self) -> None:
        """Resets scans that a crash interrupted, and gives failed tables another chance."""
        with self._home.meta.owned(self._leases.server) as c:
            for relation in relations.tables(c):
                found = spans.all(c, relation.id)
                for s in found:
                    if s.state is SpanState.SCANNING:
                        spans.back_to_pending(c, s.id)
                if relation.state is TableState.FAILED and self._can_retry(c, relation):
                    complete = relations.planned(c, relation.id) and all(s.cover_index is not None for s in found)
                    again = TableState.LIVE if complete else TableState.FILLING if found else TableState.DEFINED
                    relations.set_state(c, relation.id, again)
                    relations.open_if_complete(c, relation.block)

    def _can_retry(self, c: Connection, relation: RelationInfo) -> bool:
        """Whether a retry can help a failed table; if its changes are gone by now, that becomes its error."""
        if relation.error is not None and restored(relation.error).needs_resync:
            return False
        at = relation.stopped_at
        if at is None or changes_of.first_kept(c, relation) <= at + 1:
            return True
        relations.set_state(c, relation.id, TableState.FAILED, history_missing(relation))
        relations.set_stopped(c, relation.id, at)
        return False

    def tick(self) -> None:
        """Advances every table that is not live yet."""
        with self._home.meta.read() as c:
            found = [
                r
                for r in relations.tables(c)
                if r.state in (TableState.DEFINED, TableState.WAITING, TableState.FILLING)
            ]
            running = {x.id for x in connections.all(c) if x.state is ConnectionState.RUNNING}
        for gone in self._work.keys() - {r.id for r in found}:  # live, failed or dropped: its results are not needed
            if all(f.done() for f in self._work[gone].scans.values()):
                del self._work[gone]
        for relation in found:
            work = self._work.setdefault(relation.id, _Work())
            who = Who(BACKFILL, table=relation.id)
            if relation.table_origin.connection_id not in running or self._home.live.failures.backing_off(who):
                continue
            try:
                self._step(relation, work)
            except FencedError:
                raise
            except Exception as e:
                self._failed(relation, work, e)

    def waiting_for(self, relation_id: int) -> str:
        """What a table is waiting for, as text."""
        work = self._work.get(relation_id)
        return work.waiting_for if work else ""

    def stop(self) -> None:
        """Stops once the scans in flight have finished; their results are kept."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._planners.shutdown(wait=True, cancel_futures=True)

    def _step(self, relation: RelationInfo, work: _Work) -> None:
        if relation.state is TableState.FILLING:
            self._fill(relation, work)
        elif work.ticket is None:
            self._begin(relation, work)
        else:
            self._wait(relation, work)

    def _begin(self, relation: RelationInfo, work: _Work) -> None:
        """Checks the table again (it may have changed since it was defined), publishes it, takes a ticket."""
        upstream = upstream_of(self._home.meta, relation.table_origin.connection_id)
        schema, table = relation.table_origin.schema, relation.table_origin.table
        found = upstream.find_table(schema, table, [c.name for c in relation.columns], relation.key)
        if found.id != relation.table_origin.upstream_id:
            raise DataError(
                "data.rewritten",
                f"{schema}.{table} has been dropped and re-created since {relation.name} was defined",
                f"RESYNC TABLE {relation.name};",
            )
        with self._home.meta.owned(self._lease(relation)) as c:
            # Before the ticket: changes captured so far belong to transactions that will have ended when scans begin.
            relations.set_begin(c, relation.id, connections.get(c, relation.table_origin.connection_id).committed_index)
        work.ticket = upstream.publish(schema, table)
        crash.here("publication.altered")
        with self._home.meta.owned(self._lease(relation)) as c:
            now = relations.get_or_none(c, relation.id)
            if now is not None and now.state is TableState.DEFINED:  # otherwise it was stopped meanwhile, and stays so
                relations.set_state(c, relation.id, TableState.WAITING)

    def _wait(self, relation: RelationInfo, work: _Work) -> None:
        assert work.ticket is not None
        if work.planning is not None:
            self._collect(relation, work)
            return
        upstream = upstream_of(self._home.meta, relation.table_origin.connection_id)
        blockers = upstream.blockers(work.ticket)
        work.waiting_for = blockers[0] if blockers else ""
        if not blockers and not self._reached(relation, upstream.begun(work.ticket)):
            work.waiting_for = "the changelog to reach the table's beginning"
        elif not blockers:  # in the pool: a hundred new tables must not delay the scans of others
            work.planning = self._planners.submit(self._make_base, relation)

    def _reached(self, relation: RelationInfo, begun: str) -> bool:
        """Whether the changelog has passed the table's beginning; no scan needs anything before it."""
        if not begun:
            return True
        with self._home.meta.read() as c:
            connection = connections.get(c, relation.table_origin.connection_id)
            if not passed(connection.type, connection.position, begun):
                return False
            now = relations.get_or_none(c, relation.id)
            since = now.table_origin.begin_index if now is not None else connection.committed_index
            around = segments.in_range(c, connection.id, since, connection.committed_index)
        found = read_transactions(self._home.storage, [s.path for s in around])
        index = index_at(found, kind(connection.type).number(begun), since)
        with self._home.meta.owned(self._lease(relation)) as c:
            relations.set_begin(c, relation.id, index)
        return True

    def _make_base(self, relation: RelationInfo) -> None:
        """Creates the empty base and sets the table's state to FILLING."""
        upstream = upstream_of(self._home.meta, relation.table_origin.connection_id)
        look = upstream.look([relation.table_origin.upstream_id])[relation.table_origin.upstream_id]
        version = base.create(self._home.storage, relation)
        with self._home.meta.owned(self._lease(relation)) as c:
            now = relations.get_or_none(c, relation.id)
            if now is None or now.state is not TableState.WAITING:
                return  # dropped or stopped meanwhile
            relations.set_base_version(c, relation.id, version)
            relations.set_fingerprint(c, relation.id, look.stored())
            relations.set_state(c, relation.id, TableState.FILLING)
        self._on_scanned()

    def _fill(self, relation: RelationInfo, work: _Work) -> None:
        """Collects finished work, plans, and starts as many scans as the user's current settings allow."""
        self._collect(relation, work)
        self._reset_lost(relation, work)
        work.waiting_for = ""
        if relation.control is Control.PAUSED:
            work.waiting_for = f"RESUME BACKFILL {relation.name}"
            return
        if self._busy() >= self._slots and (work.planned or work.planning is not None):
            return  # nothing could start: with hundreds of tables, checking each would take longer than a scan
        with self._home.meta.read() as c:
            planned = work.planned = relations.planned(c, relation.id)
            pending = spans.pending(c, relation.id, self._slots + len(work.scans))
        if not relation.whole and not (planned and all(s.again for s in pending)):
            self._leave_rest(relation, work)
            return
        if not planned and work.planning is None:
            stop = partial(self._must_stop_planning, relation)
            work.planning = self._planners.submit(
                plan_relation, self._home, self._lease(relation), relation, self._on_scanned, stop
            )
        for s in pending:
            if s.id not in work.scans and not self._begin_scan(relation, work, s):
                return

    def _collect(self, relation: RelationInfo, work: _Work) -> None:
        if work.planning is not None and work.planning.done():
            done, work.planning = work.planning, None
            work.small = bool(done.result())  # only plan_relation returns it
            self._home.live.failures.succeeded(Who(BACKFILL, table=relation.id))
        for id in [id for id, f in work.scans.items() if f.done()]:
            work.lost.add(id)
            work.pace.give_back(rate_limit(relation), work.scans.pop(id).result())
            work.lost.discard(id)
            self._home.live.failures.succeeded(Who(BACKFILL, table=relation.id))

    def _reset_lost(self, relation: RelationInfo, work: _Work) -> None:
        """Makes spans pending again whose scan failed while meta was unavailable: meta still has them as SCANNING."""
        if not work.lost:
            return
        with self._home.meta.owned(self._lease(relation)) as c:
            found = [s.id for s in spans.all(c, relation.id) if s.id in work.lost and s.state is SpanState.SCANNING]
            for id in found:
                spans.back_to_pending(c, id)
        if found:
            remove_files(self._home, self._lease(relation), relation, found)
        work.lost.clear()

    def _begin_scan(self, relation: RelationInfo, work: _Work, s: SpanInfo) -> bool:
        """Starts a scan if the table's parallelism and rate limit allow it and a slot is free."""
        allowed = int(relation.options.get("backfill.parallelism", self._slots))
        if len(work.scans) >= allowed or self._busy() >= self._slots:
            return False
        limit = rate_limit(relation)
        rows = work.pace.take(limit, time.monotonic())
        if rows is None:
            work.waiting_for = f"backfill.rate_limit = {limit}" if not work.scans else ""
            return False
        here, work.small = work.small and not s.again, False  # only once: if rows are left, the table was not small
        work.scans[s.id] = self._pool.submit(self._scan, relation, s, rows, here)
        return True

    def _lease(self, relation: RelationInfo) -> Lease:
        return self._leases.of(Name.relation(relation.id))

    def _busy(self) -> int:
        return sum(not f.done() for w in self._work.values() for f in w.scans.values())

    def _scan(self, relation: RelationInfo, s: SpanInfo, rows: int, here: bool) -> int:
        """Scans, `here` or in a Spark task; returns how many of the allowed rows (0: no limit) it did not read."""
        if self._stopping.is_set():
            return rows
        session = None if here else self._session()
        if session is not None:
            self._slots = min(MOST_SCANS, max(1, jobs.share(session) // 2))
        most = min(rows or SMALL_ROWS, SMALL_ROWS) if here else rows
        read = scan(self._home, self._lease(relation), session, relation, s, most)
        self._on_scanned()
        return max(0, rows - read)

    def _leave_rest(self, relation: RelationInfo, work: _Work) -> None:
        """Skips the history: once no scan or plan is in progress, the remaining spans count as read and empty."""
        if work.planning is not None or work.scans:
            return
        work.planning = self._planners.submit(leave_rest, self._home, self._lease(relation), relation, self._on_scanned)

    def _must_stop_planning(self, relation: RelationInfo) -> bool:
        """Whether planning must stop early: the server is stopping, or the user changed options. It resumes later."""
        if self._stopping.is_set():
            return True
        with self._home.meta.read() as c:
            now = relations.get_or_none(c, relation.id)
        return now is None or (now.control, now.options) != (relation.control, relation.options)

    def _failed(self, relation: RelationInfo, work: _Work, cause: Exception) -> None:
        """Retries automatically if that can help; otherwise stops this table only."""
        error = described(cause)
        if error.stops(Scope.TABLE):
            self._guard.stop(relation.id, error)
            return
        work.waiting_for = f"a retry: {error.message}"
        self._home.live.failures.failed(Who(BACKFILL, table=relation.id), cause)


def rate_limit(relation: RelationInfo) -> int | None:
    """Rows per second that all scans of the table together may read; None: no limit."""
    limit = relation.options.get("backfill.rate_limit")
    return None if limit is None else int(limit)
