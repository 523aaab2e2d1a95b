"""The server: everything that runs on a home, under one lock and one lease, each concern in its own loop."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from pyspark.sql import SparkSession

from headwater import crash
from headwater.capture.until import Until
from headwater.config import LEASE_S
from headwater.engine.commit import epoch
from headwater.engine.commit.base_writer import BaseWriter
from headwater.engine.commit.clean import Cleaner
from headwater.engine.commit.committer import Committer
from headwater.engine.commit.folds import Folds
from headwater.engine.commit.upkeep import Upkeep
from headwater.engine.failures import Who, described
from headwater.engine.fill.backfill import Backfill
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.engine.live import Lag
from headwater.engine.query.read import Reader
from headwater.engine.serve import journal
from headwater.engine.serve.identity import check_lake
from headwater.engine.serve.pressure import Pressure
from headwater.engine.serve.supervisor import Supervisor
from headwater.engine.serve.watcher import Watcher
from headwater.engine.spark import session as spark
from headwater.engine.spark.launch import Launch
from headwater.engine.status import sampler
from headwater.engine.status.sampler import Sampler
from headwater.engine.view.views import Views
from headwater.errors import FencedError, HeadwaterError, MachineError
from headwater.meta import connections, spans
from headwater.model import ConnectionInfo, ConnectionState
from headwater.ownership import lease
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.rundir.lock import ServerLock, owner
from headwater.source.connected import upstream_of
from headwater.source.upstream import LogEnd

log = logging.getLogger(__name__)

TICK_S = 0.2  # how soon new definitions, dead captures and finished scans are noticed
IDLE_S = 1.0  # captures trigger epochs immediately; this only covers a lost notification
CLEAN, CLEAN_S = "clean", 30.0
PRESSURE_S = 2.0  # little arrives in that time, compared with how far a changelog may be ahead
UPKEEP = "upkeep"  # the loop that is interrupted when Spark stops
UPKEEP_S = 5.0


class Happened(StrEnum):
    """Events that wake loops."""

    PUBLISHED = "published"  # a capture has published a segment or a position
    SCANNED = "scanned"  # a span has been read
    DEFINED = "defined"  # definitions have changed, or a connection is ready
    MOVED = "moved"  # a view has a new version, or part of one is written


@dataclass(slots=True)
class _Loop:
    """A thread that does one thing after each event it waits for, and at least every `pause_s` seconds."""

    name: str
    work: Callable[[], None]
    pause_s: float
    wakes: tuple[Happened, ...] = (Happened.DEFINED,)
    wake: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class Server:
    """One home's running server. `start()`, then `stop()`; `failure` is set when it cannot continue.

    That is when another server has taken its lease, or Spark does not start at all. Any other error belongs to a table,
    a connection or a loop: see `engine/failures.py`.
    """

    def __init__(self, home: Home, session: SparkSession | None = None, until: Until | None = None) -> None:
        self.home = home
        self.until = until
        self.failure: HeadwaterError | None = None
        self._given_session = session
        self._session: SparkSession | None = None
        self._session_ready = threading.Event()
        self._launch = Launch()
        self._spark_lost: HeadwaterError | None = None  # why the last restart failed
        self._stopping = threading.Event()
        self._lock = ServerLock(home.path)
        self._leases: Leases | None = None
        self._preparing: dict[int, threading.Thread] = {}
        self._preparing_waits: dict[int, str] = {}
        self._dropped: set[int] = set()
        self._sampler = Sampler(home)
        self._loops: list[_Loop] = []
        self._journal = ExitStack()
        self._starter: threading.Thread | None = None

    def start(self) -> None:
        """Locks the home, finishes interrupted commits, and starts the loops (which start captures), then Spark."""
        spark.prepare_environment(self.home.settings)
        self.home.live.failures.ending = False
        self._lock.take()
        self._journal.enter_context(journal.kept(self.home.path))
        leases = self._leases = Leases(self._acquire())
        with self.home.meta.owned(leases.server) as c:
            connections.forget_errors(c)  # of an earlier start
        self.reader = Reader(self.home, self.session, leases)
        base_writer = BaseWriter(self.home, leases, self.reader, self.session)
        self.committer = Committer(self.home, leases, base_writer)
        self._guard = Guard(self.home, leases)
        self.committer.recover()
        self.backfill = Backfill(self.home, leases, self.session, partial(self._happened, Happened.SCANNED))
        self.backfill.recover()
        self.folds = Folds(self.home, leases, self.committer, base_writer, self.reader, self._guard)
        self.views = Views(
            self.home, leases, self.reader, self.committer, self.session, partial(self._happened, Happened.MOVED)
        )
        self.views.recover()
        self.watcher = Watcher(self.home, leases, self.reader.overlays.changes)
        self.supervisor = Supervisor(self.home, partial(self._happened, Happened.PUBLISHED), self.until)
        self.pressure = Pressure(self.home, self.supervisor)
        # more often if epochs and segments live for only seconds
        clean_s = max(TICK_S, min(CLEAN_S, self.home.settings.history_s / 4))
        upkeep_s = max(TICK_S, min(UPKEEP_S, self.home.settings.segment_age_s / 4))
        self._loops = [
            _Loop("lease", self._renew, LEASE_S / 3),
            _Loop("epochs", self._publish, IDLE_S, (Happened.PUBLISHED, Happened.DEFINED)),
            _Loop("covers", self._cover, TICK_S, tuple(Happened)),
            _Loop("control", self._control, TICK_S, (Happened.SCANNED, Happened.DEFINED)),
            _Loop("backfill", self.backfill.tick, TICK_S, (Happened.SCANNED, Happened.DEFINED)),
            _Loop("views", self._move_views, TICK_S, (Happened.PUBLISHED, Happened.DEFINED, Happened.MOVED)),
            _Loop("folds", self.folds.tick, 1.0),
            _Loop("watcher", self.watcher.tick, 2.0),
            _Loop("rates", self._sampler.look, sampler.LOOK_S),
            _Loop("lag", self._sampler.ask, sampler.ASK_S),
            _Loop("pressure", self.pressure.look, PRESSURE_S),
            _Loop(CLEAN, Cleaner(self.home, leases, self.reader.overlays).clean, clean_s),
            _Loop("spark", self._watch_spark, TICK_S),
            _Loop(UPKEEP, Upkeep(self.home, leases, self.committer, self.session, self._guard).tick, upkeep_s),
        ]
        for loop in self._loops:
            if loop.name == CLEAN:
                loop.wake.set()  # clean up after earlier servers right away
            loop.thread = threading.Thread(target=self._repeat, args=(loop,), name=loop.name, daemon=True)
            loop.thread.start()
        self._starter = threading.Thread(target=self._start_spark, name="spark", daemon=True)
        self._starter.start()
        self.home.live.server = self

    def stop(self) -> None:
        """Stops everything; work in flight is kept or redone by the next start."""
        self._stopping.set()
        self._launch.cancel()  # nobody needs a Spark that is just starting
        self.home.live.server = None
        for loop in self._loops:
            loop.wake.set()
        if hasattr(self, "supervisor"):
            self.supervisor.stop_all()
        if hasattr(self, "backfill"):
            self.backfill.stop()
        if hasattr(self, "views"):
            self.views.stop()
        for loop in self._loops:
            if loop.thread is not None and loop.name != UPKEEP:
                loop.thread.join(60)
        self._best_effort("the last epoch", self._publish_last)
        if self._starter is not None:
            self._starter.join(60)  # its JVM would be orphaned
        if self._session is not None and self._given_session is None and self._spark_lost is None:
            self.home.live.failures.ending = True
            spark.stop(self._session)  # aborts a rewrite in progress, which leaves the base as it was
        for loop in self._loops:
            if loop.thread is not None and loop.name == UPKEEP:
                loop.thread.join(60)
        self._best_effort("the lease", self._release)
        self._journal.close()
        self._lock.release()

    def _best_effort(self, what: str, work: Callable[[], None]) -> None:
        """Does work that only speeds up the next start, so a failure is only logged."""
        try:
            work()
        except Exception as e:
            log.warning("stopping: %s: %s", what, described(e).message)

    def _release(self) -> None:
        if self._leases is not None:
            with self.home.meta.write() as c:
                lease.release(c, self._leases.server)

    def _acquire(self) -> Lease:
        """Acquires the lease on everything.

        The lease of an earlier server of this directory is taken over: the lock proves that it is gone. The lease of a
        server elsewhere that uses the same meta must expire first.
        """
        check_lake(self.home)
        deadline = time.monotonic() + LEASE_S + TICK_S
        while True:
            with self.home.meta.write() as c:
                acquired = lease.acquire(c, Name.server(), owner(self.home.path), alone=True)
                other = lease.holder(c, Name.server())
            if acquired is not None:
                return acquired
            if time.monotonic() > deadline:
                raise MachineError(
                    "home.locked",
                    f"another server ({other.process if other else ''}) uses the same meta database",
                    "Stop it first, or choose another database for the setting meta.url.",
                )
            self._stopping.wait(TICK_S)

    def _renew(self) -> None:
        """Renews the lease, which otherwise only writes do."""
        assert self._leases is not None
        with self.home.meta.owned(self._leases.server):
            pass

    def session(self) -> SparkSession:
        """The Spark session; waits until Spark runs."""
        while not self._session_ready.wait(0.5):
            if (error := self.failure or self._spark_lost) is not None:
                raise error
            if self._stopping.is_set():
                raise MachineError("spark.failed", "the server is stopping", "Start it again.")
        assert self._session is not None
        return self._session

    def drop_capture(self, connection_id: int) -> None:
        """Stops a connection's capture permanently: the connection is about to be dropped."""
        self._dropped.add(connection_id)
        self.supervisor.stop(connection_id)

    def wake(self) -> None:
        """Wakes the loops that read definitions."""
        self._happened(Happened.DEFINED)

    def waiting_for(self, relation_id: int) -> str:
        found = self.backfill.waiting_for(relation_id) or self.views.waiting_for(relation_id)
        return found or ("" if self._session_ready.is_set() else "Spark to start")

    @property
    def pid(self) -> int:
        return os.getpid()

    def rate(self, relation_id: int) -> float:
        return self._sampler.rate(relation_id)

    def lag(self, connection_id: int, position: str) -> Lag | None:
        return self._sampler.lag(connection_id, position)

    def log_end(self, connection_id: int) -> LogEnd | None:
        return self._sampler.log_end(connection_id)

    def overlay_changes(self, relation_id: int) -> int | None:
        return self.folds.changes.get(relation_id)

    def ahead_bytes(self, connection_id: int) -> int | None:
        return self.pressure.ahead_bytes.get(connection_id)

    def paused(self, connection_id: int) -> bool:
        return connection_id in self.pressure.paused

    def processes(self) -> dict[str, list[int]]:
        return {"server": [self.pid], "capture": self.supervisor.pids(), "spark": spark.processes()}

    def preparing(self, connection_id: int) -> str:
        """What the creation of a connection's slot is waiting for, as text."""
        return self._preparing_waits.get(connection_id, "")

    def _start_spark(self) -> None:
        """Starts Spark. Captures already run, so upstream logs are drained while the JVM starts, or if it fails."""
        try:
            given = self._given_session
            self._session = (
                spark.start(self.home.path, self.home.settings, self.home.storage, launch=self._launch)
                if given is None
                else spark.check_session(given)
            )
        except HeadwaterError as e:
            if not self._stopping.is_set():
                self._fail(e)
            return
        self._lock.record(spark.processes())
        self._session_ready.set()

    def _watch_spark(self) -> None:
        """Restarts Spark if its process has died; work that needs Spark waits, and captures continue."""
        if self._given_session is not None or not (self._session_ready.is_set() or self._spark_lost):
            return
        if self._spark_lost is None and spark.alive():
            return
        if self._spark_lost is None:
            log.error("spark died")
        self._session_ready.clear()
        try:
            self._session = spark.restart(self.home.path, self.home.settings, self.home.storage, self._launch)
        except Exception as e:
            self._spark_lost = described(e)
            raise
        self._spark_lost = None
        self._lock.record(spark.processes())
        self._session_ready.set()
        log.info("spark restarted")

    def _repeat(self, loop: _Loop) -> None:
        who, failures = Who(loop.name), self.home.live.failures
        while not self._stopping.is_set():
            loop.wake.wait(loop.pause_s)
            loop.wake.clear()
            if self._stopping.is_set():
                return
            try:
                loop.work()
            except FencedError as e:
                self._fail(e)
                return
            except Exception as e:
                if self._stopping.is_set():
                    return
                self._stopping.wait(failures.failed(who, e).wait_s)
            else:
                failures.succeeded(who)

    def _fail(self, error: HeadwaterError) -> None:
        """Records why the server cannot continue; its user stops it."""
        if self.failure is None:
            self.failure = error

    def _happened(self, what: Happened) -> None:
        for loop in self._loops:
            if what in loop.wakes:
                loop.wake.set()

    def _publish(self) -> None:
        assert self._leases is not None
        began = time.monotonic()
        if epoch.publish_if_moved(self.home.meta, self._leases.server) is not None:
            self.home.live.counters.took("headwater_epoch_publish_seconds", time.monotonic() - began)
            crash.here("epoch.published")

    def _publish_last(self) -> None:
        """Makes readable what captures published during the shutdown."""
        if self._leases is not None and self.failure is None:
            self._publish()

    def _cover(self) -> None:
        with self.home.meta.read() as c:
            waiting = spans.relations_waiting(c)
        for relation_id in waiting:
            self._guard.attempt("cover", relation_id, partial(self.committer.cover, relation_id), None)

    def _move_views(self) -> None:
        self.views.tick(self._session_ready.is_set())

    def _control(self) -> None:
        """Prepares new connections and keeps the captures of the others running."""
        with self.home.meta.read() as c:
            known = [x for x in connections.all(c) if x.id not in self._dropped]
        self.supervisor.want({x.id for x in known if x.resume_position})
        for connection in known:
            thread = self._preparing.get(connection.id)
            if not connection.resume_position and (thread is None or not thread.is_alive()):
                thread = threading.Thread(target=self._prepare, args=(connection,), name="prepare", daemon=True)
                self._preparing[connection.id] = thread
                thread.start()

    def _prepare(self, connection: ConnectionInfo) -> None:
        """Creates slot and publication; the upstream may have to wait for older transactions."""
        who, failures = Who("prepare", connection=connection.id), self.home.live.failures
        try:
            self._make_ready(connection)
        except FencedError as e:
            self._fail(e)
        except Exception as e:
            self._stopping.wait(failures.failed(who, e).wait_s)
        else:
            failures.succeeded(who)
            self.wake()

    def _make_ready(self, connection: ConnectionInfo) -> None:
        assert self._leases is not None

        def waits(who: str) -> None:
            self._preparing_waits[connection.id] = who

        try:
            made = upstream_of(self.home.meta, connection.id).prepare(waits)
            crash.here("slot.created")
        except HeadwaterError as e:
            with self.home.meta.owned(self._leases.server) as c:
                connections.set_state(c, connection.id, ConnectionState.FAILED, e)
            raise
        finally:
            self._preparing_waits.pop(connection.id, None)
        with self.home.meta.owned(self._leases.server) as c:
            connections.prepared(
                c,
                connection.id,
                identity=made.identity,
                position=made.position,
                txn=made.txn,
                server_life=made.life,
            )
