"""The loop over all views: barriers, fills, refreshes. A slow, failing or paused view delays only what reads it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from headwater.engine.commit.committer import Committer
from headwater.engine.failures import Who, described
from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.spark.jobs import share
from headwater.engine.view import anew, barriers, fill
from headwater.engine.view.barriers import Meeting, is_stale
from headwater.engine.view.definition import Reshaped, Trees
from headwater.engine.view.fill import Filler
from headwater.engine.view.merge import merge_runs
from headwater.engine.view.refresh import Refresher, Step, inputs_whole, plan_step, stand_still
from headwater.engine.view.refusal import refused
from headwater.errors import FencedError
from headwater.meta import relations, spans, views
from headwater.meta.views import Refresh
from headwater.model import Control, RelationInfo, SpanInfo, SpanState, TableState
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.view.barrier import Barrier

log = logging.getLogger(__name__)

BARRIER_S = 1.0  # the least time between two barriers
EXPIRE_S = 10.0  # between looks for views that stood still for hours
THREADS = 64  # half of them for fills
FILL, REFRESH = "fill", "refresh"  # names of jobs, for errors
WHOLE = 0  # in the place of a slice: work on the whole view


@dataclass(slots=True)
class Views:
    """Call `tick` repeatedly from one thread."""

    home: Home
    leases: Leases
    reader: Reader
    committer: Committer
    session: Callable[[], SparkSession]
    wake: Callable[[], None]
    _pool: ThreadPoolExecutor = field(init=False)
    trees: Trees = field(init=False)
    _filler: Filler = field(init=False)
    _refresher: Refresher = field(init=False)
    _busy: dict[int, dict[int, Future[None]]] = field(default_factory=dict)  # view → slice (or WHOLE) → its work
    _begun: dict[int, int] = field(default_factory=dict)  # view → barrier of its latest refresh, or passed over
    _waits: dict[int, str] = field(default_factory=dict)
    _reshaped: dict[int, str] = field(default_factory=dict)  # filled views that cannot go on → what they wait for
    _barrier_at: float = 0.0
    _expired_at: float = 0.0
    _fenced: FencedError | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="view")
        self.trees = Trees(self.home, self.session)
        self._filler = Filler(self.home, self.leases, self.reader, self.trees)
        self._refresher = Refresher(self.home, self.leases, self.reader, self.trees)

    def recover(self) -> None:
        """Makes slices that a crash interrupted pending again."""
        with self.home.meta.owned(self.leases.server) as c:
            for relation in (r for r in relations.all(c) if r.view is not None):
                for s in spans.all(c, relation.id):
                    if s.state is SpanState.SCANNING:
                        spans.back_to_pending(c, s.id)

    def stop(self) -> None:
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def waiting_for(self, relation_id: int) -> str:
        """What a view is waiting for, as text."""
        return self._waits.get(relation_id, "")

    def tick(self, spark: bool = True) -> None:
        """Makes a barrier if it is time, and gives every idle view its next work, if Spark runs."""
        if self._fenced is not None:
            raise self._fenced
        with self.home.meta.read() as c:
            known = [r for r in relations.all(c) if r.view is not None]
            left = not known and bool(views.barriers(c) or relations.replaced(c))
            filled = set(views.versions(c)) if known else set()
        self._forget(known)
        if not known:
            if left:
                with self.home.meta.owned(self.leases.server) as c:
                    views.keep_barriers(c, [])
                    for past in relations.replaced(c):
                        relations.remove(c, past.id)
            return
        self._advance(known)
        if not spark:
            return
        for relation in known:
            if relation.control is Control.PAUSED or self._stopping.is_set() or is_stale(relation):
                continue
            if relation.id not in filled:
                self._fill(relation)
        self._refresh()

    def _advance(self, known: list[RelationInfo]) -> None:
        now = time.monotonic()
        if now - self._barrier_at < BARRIER_S:
            return
        failed = [r.id for r in known if r.state is TableState.FAILED and not self._busy.get(r.id)]
        again = [id for id in failed if not self.home.live.failures.backing_off(Who(REFRESH, table=id))]
        expiring = now - self._expired_at >= EXPIRE_S
        if not expiring:
            with self.home.meta.read() as c:  # most ticks need nothing, and must not wait for meta's write lock
                if not barriers.due(c, self._begun, again):
                    return
        with self.home.meta.owned(self.leases.server) as c:
            if expiring:
                self._expired_at = now
                keep_s = self.home.settings.retention_hours * 3600
                for relation in barriers.expire(
                    c, keep_s, time.time(), [id for id, work in self._busy.items() if work]
                ):
                    log.error("view lost its claim name=%s", relation.name)
            if barriers.advance(c, self._begun, again):
                self._barrier_at = now

    def _forget(self, known: list[RelationInfo]) -> None:
        ids = {r.id for r in known}
        for of in (self._busy, self._begun, self._waits, self._reshaped):
            for gone in of.keys() - ids:
                del of[gone]
        self.trees.forget(ids)
        for id, work in self._busy.items():
            self._busy[id] = {key: f for key, f in work.items() if not f.done()}

    def _fill(self, relation: RelationInfo) -> None:
        work = self._busy.setdefault(relation.id, {})
        if self.home.live.failures.backing_off(Who(FILL, table=relation.id)):
            return
        with self.home.meta.read() as c:
            now = relations.get_or_none(c, relation.id)
            if now is None:
                return  # dropped meanwhile
            relation = now  # an input may have been replaced a moment ago
            begun = views.fill(c, relation.id) is not None
            waits = "" if begun else fill.waits_for(c, relation)
            pending = fill.startable(c, relation, THREADS) if begun else []
            lost = [id for id in spans.scanning(c, relation.id) if id not in work]
        if lost:  # their end could not be recorded in meta
            with self.home.meta.owned(self.leases.of(Name.relation(relation.id))) as c:
                for id in lost:
                    spans.give_up(c, id)
            return
        self._waits[relation.id] = waits
        if waits:
            self._set_state(relation, TableState.WAITING)
        elif not begun and not work:
            self._start(work, WHOLE, relation, partial(self._begin_fill, relation), FILL)
        elif pending:
            self._set_state(relation, TableState.FILLING)
        allowed = min(self._slots(), int(relation.options.get("backfill.parallelism", self._slots())))
        for s in pending:
            if len(work) < allowed and self._filling() < THREADS // 2 and s.id not in work:
                self._start(work, s.id, relation, partial(self._slice, relation, s), FILL)

    def _begin_fill(self, relation: RelationInfo) -> None:
        self._waits[relation.id] = self._filler.begin(relation)
        self.wake()

    def _slice(self, relation: RelationInfo, s: SpanInfo) -> None:
        self._filler.write(relation, s)
        self.committer.cover(relation.id)
        self.wake()

    def _refresh(self) -> None:
        """Starts refreshes of views that have somewhere to go; those without changes just get a version there."""
        quiet, passed_over = list[Step](), False
        with self.home.meta.read() as c:
            meeting = Meeting(c, self._begun)
            known = [r for r in relations.all(c) if r.view is not None]
            failed = {r.id for r in known if r.state is TableState.FAILED}
            for relation in meeting.in_turn(known):
                busy = self._busy.setdefault(relation.id, {})
                paused = relation.control is Control.PAUSED or self._stopping.is_set()
                if busy or paused:
                    continue
                if relation.id in self._reshaped and relations.replacement(c, relation.id) is not None:
                    self._waits[relation.id] = self._reshaped[relation.id]
                    continue
                if self.home.live.failures.backing_off(Who(REFRESH, table=relation.id)):
                    continue
                to = meeting.target(relation)
                step = None if to is None else plan_step(c, relation, views.last_version(c, relation.id), to.epoch)
                self._waits[relation.id] = fill.waits_for(c, relation) if _held_up(relation, to, step, failed) else ""
                if to is not None and step is None and not inputs_whole(c, relation, to.epoch):
                    self._begun[relation.id] = to.number  # they will never be whole there: it goes to a later barrier
                    passed_over = True
                if step is None or to is None:
                    continue
                if step.quiet:
                    quiet.append(step)
                elif self._refreshing() < self._slots():
                    self._begun[relation.id] = to.number
                    self._start(busy, WHOLE, relation, partial(self._step, step), REFRESH)
        if quiet:
            stand_still(self.home, self.leases, quiet, self._begun)
        if quiet or passed_over:
            self.wake()

    def _step(self, step: Step) -> None:
        done = self._refresher.refresh(step, self._begun)
        self._note(step.relation, done)
        merge_runs(self.home, self.leases.of(Name.relation(step.relation.id)), step.relation)
        self.wake()

    def _note(self, relation: RelationInfo, done: Refresh) -> None:
        self.home.live.counters.took("headwater_view_refresh_seconds", done.ms / 1000, relation.id)
        log.debug("refreshed view=%s strategy=%s ms=%.0f", relation.id, done.strategy, done.ms)

    def _start(
        self, work: dict[int, Future[None]], key: int, relation: RelationInfo, job: Callable[[], None], name: str
    ) -> None:
        def guarded() -> None:
            try:
                job()
            except FencedError as e:
                self._fenced = e
            except Reshaped as e:
                self._define_again(relation, e)
            except Exception as e:
                self._failed(relation, name, e)
            else:
                self.home.live.failures.succeeded(Who(name, table=relation.id))

        work[key] = self._pool.submit(guarded)

    def _failed(self, relation: RelationInfo, job: str, cause: Exception) -> None:
        """Shows the error as the view's, which is tried again with backoff; other views go on."""
        if self._stopping.is_set():
            return
        try:
            error = refused(relation, cause)
        except Exception as e:
            error = described(e)
        with self.home.meta.owned(self.leases.of(Name.relation(relation.id))) as c:
            now = relations.get_or_none(c, relation.id)
            if now is None or now.view != relation.view:
                return  # dropped; or an input was replaced meanwhile, and the next attempt reads the new one
            relations.set_state(c, relation.id, TableState.FAILED, error)
        self.home.live.failures.failed(Who(job, table=relation.id), error)

    def _define_again(self, relation: RelationInfo, found: Reshaped) -> None:
        """Fills a view from scratch: if it has rows, in a copy, so that they stay readable meanwhile."""
        with self.home.meta.owned(self.leases.of(Name.relation(relation.id))) as c:
            now = relations.get_or_none(c, relation.id)
            if now is None:
                return  # dropped meanwhile
            if views.last_version(c, now.id):
                anew.fill_beside(c, now, found.found)
            else:
                anew.begin_again(c, now, found.found)
        self._reshaped[relation.id] = f"its refresh: {found}"
        self.wake()

    def _set_state(self, relation: RelationInfo, state: TableState) -> None:
        if relation.state is not state:
            with self.home.meta.owned(self.leases.of(Name.relation(relation.id))) as c:
                if relations.get_or_none(c, relation.id) is not None:
                    relations.set_state(c, relation.id, state)

    def _refreshing(self) -> int:
        """How many refreshes run, or fills are being planned. Slices do not count: one fill would hold up all views."""
        return sum(WHOLE in work for work in self._busy.values())

    def _filling(self) -> int:
        return sum(len(work.keys() - {WHOLE}) for work in self._busy.values())

    def _slots(self) -> int:
        """How many refreshes, or slices, run at once: half of the slots, so that queries and folds rarely wait."""
        return max(1, min(THREADS, share(self.session())) // 2)


def _held_up(relation: RelationInfo, to: Barrier | None, step: Step | None, failed: set[int]) -> bool:
    """Whether it is worth asking what a view waits for: most are simply where they should be."""
    assert relation.view is not None
    return (to is not None and step is None) or (to is None and not failed.isdisjoint(relation.view.inputs))
