"""The capture: the one process that reads an upstream's log and writes segments.

    python -m headwater.capture.process --home DIR --connection ID [--alone] [--until POSITION|TIME]
        [--config FILE] [--set NAME=VALUE …]

It prints `published INDEX POSITION` on stdout after each publication (and `reached` at the requested end),
`alive` every few seconds, and `refused ERROR` if it cannot start at all. It ends when stdin closes or on SIGTERM, and
keeps the connection's state in meta. `pause` on stdin makes it wait, at the end of a transaction, until `resume`.
Whatever it received but did not publish comes again after the next start.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

from headwater import config, crash
from headwater.backoff import Backoff
from headwater.capture.liveness import OPEN_S, Liveness
from headwater.capture.receive import Heartbeat, Receiver
from headwater.capture.until import Until
from headwater.changelog import segment
from headwater.changelog.writer import SegmentWriter, WriterThread
from headwater.errors import FencedError, HeadwaterError, JobError, MachineError, Scope, machine_error
from headwater.meta import connections, merged, segments
from headwater.meta.store import Meta
from headwater.model import ConnectionInfo, ConnectionState
from headwater.ownership import lease
from headwater.ownership.lease import Lease, Owner
from headwater.ownership.names import Name
from headwater.ownership.strays import strays
from headwater.rundir.lock import owner
from headwater.settings.load import Given, load
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.base import Log
from headwater.source.connected import source_of
from headwater.storage import LocalStorage, Storage

BACKOFF = Backoff(0.5, 30.0)
RENEW_S = config.LEASE_S / 3
PAUSE, RESUME = "pause", "resume"  # commands of the server on stdin
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3  # malloc.h

log = logging.getLogger("headwater.capture")


class Capture:
    """One connection's capture, from lease to lease."""

    def __init__(
        self,
        meta: Meta,
        storage: Storage,
        connection_id: int,
        owner: Owner,
        until: Until | None = None,
        settings: Settings = DEFAULTS,
    ) -> None:
        self._meta = meta
        self._storage = storage
        self._until = until
        self._settings = settings
        self._reached = False
        self._id = connection_id
        self._owner = owner
        self._acquired: Lease | None = None
        self._stopping = threading.Event()
        self._paused = threading.Event()
        self._flow: Log | None = None
        self._liveness = Liveness(_say, silence_s=settings.capture_silence_s)

    def stop(self) -> None:
        """Ends the capture soon; may be called from any thread."""
        self._stopping.set()
        if self._flow is not None:
            self._flow.wake()

    def pause(self, wait: bool) -> None:
        """Publishes no more transactions while `wait` is true; may be called from any thread."""
        (self._paused.set if wait else self._paused.clear)()

    def run(self, *, alone: bool = False) -> int:
        """Captures until stopped; returns the exit status. `alone`: no other capture of this home is alive."""
        self._liveness.start()
        try:
            self._acquire(alone)
            self._repeat()
            with self._meta.write() as c:
                lease.release(c, self._lease)
            return 0
        except FencedError as e:
            log.error("%s: %s", e.code, e.message)  # no longer our connection, so not ours to mark
            return e.exit_status
        except HeadwaterError as e:
            self._store_state(ConnectionState.FAILED, e)
            return e.exit_status
        except Exception as e:
            log.exception("unexpected")
            what = f"the capture failed unexpectedly: {type(e).__name__}"
            hint = f"See logs/capture-{self._id}.log in the home; it is restarted automatically."
            self._store_state(ConnectionState.FAILED, JobError("job.failed", what, hint))
            return JobError.exit_status
        finally:
            self._liveness.stop()

    @property
    def _lease(self) -> Lease:
        assert self._acquired is not None
        return self._acquired

    def _acquire(self, alone: bool) -> None:
        with self._meta.write() as c:
            self._acquired = lease.acquire(c, Name.connection(self._id), self._owner, alone=alone)
        if self._acquired is None:
            raise FencedError("job.fenced", f"connection {self._id} is being captured by another process")

    def _repeat(self) -> None:
        """Runs one flow after another; waits out a broken connection or a busy slot."""
        wait_s = 0.0
        while not self._stopping.is_set():
            self._liveness.extend_deadline(OPEN_S)
            if self._reached:
                _say("reached")
                self._stopping.wait(0.5)
                continue
            began = time.monotonic()
            try:
                self._flow_once()
            except (HeadwaterError, OSError) as e:
                error = e if isinstance(e, HeadwaterError) else machine_error(e)
                if error.stops(Scope.CONNECTION):
                    raise
                self._store_state(ConnectionState.RETRYING, error)
                wait_s = BACKOFF.after(wait_s, time.monotonic() - began)
                self._pause(wait_s)

    def _pause(self, left_s: float) -> None:
        """Waits until the time is over or the capture is stopped, and keeps the lease meanwhile."""
        while not self._stopping.wait(min(left_s, RENEW_S)) and (left_s := left_s - RENEW_S) > 0:
            with contextlib.suppress(MachineError), self._meta.owned(self._lease):
                pass

    def _flow_once(self) -> None:
        """One connection to the upstream, from open to end."""
        connection = self._cut_back()
        source = source_of(self._meta, self._id)
        flow = source.open_log(connection.resume_position, connection.identity)
        self._flow = flow
        try:
            with self._meta.owned(self._lease) as c:
                connections.set_identity(c, self._id, flow.standing.identity)
                connections.set_server_life(c, self._id, _next_life(connections.server_life(c, self._id), flow))
                connections.set_state(c, self._id, ConnectionState.RUNNING)
            flow.begin(connection.resume_position)
            log.info("reading %s after %s", connection.name, connection.resume_position)
            crash.here("capture.connected")
            self._receive(connection, flow)
        finally:
            self._flow = None
            flow.close()

    def _cut_back(self) -> ConnectionInfo:
        """Removes a half-captured transaction and files without a meta row."""
        found = [path for path in self._storage.list(segment.folder(self._id)) if not segment.is_merged(path)]
        with self._meta.owned(self._lease) as c:
            dead = segments.cut_back(c, self._id)
            connection = connections.get(c, self._id)
            recorded = merged.paths(c, self._id)
        crash.here("capture.cut_back")
        self._storage.remove({*dead, *strays(found, self._lease.fence, recorded=recorded)})
        return connection

    def _receive(self, connection: ConnectionInfo, flow: Log) -> None:
        writer = SegmentWriter(
            self._meta,
            self._storage,
            self._lease,
            connection,
            flow.framing,
        )
        beat_s = float(connection.options.get("heartbeat.interval", self._settings.heartbeat_interval_s))
        heartbeat = Heartbeat(flow, beat_s)

        known = flow.standing

        def published() -> None:
            nonlocal known
            flow.wake()
            if flow.standing is not known:
                known = flow.standing
                with self._meta.owned(self._lease) as c:
                    connections.set_identity(c, self._id, known.identity)
            if not _say(f"published {writer.committed_index} {writer.position}"):
                self.stop()

        thread = WriterThread(writer, published, self._trouble)
        try:
            extend_deadline, settings = self._liveness.extend_deadline, self._settings
            receiver = Receiver(
                flow, thread, heartbeat, self._stopping, self._until, extend_deadline, settings, self._paused
            )
            receiver.run()
        finally:
            heartbeat.stop()
            thread.stop()
        thread.check()
        self._reached = receiver.reached
        flow.acknowledge(thread.position)

    def _trouble(self, error: HeadwaterError | None) -> None:
        if error is None:
            self._store_state(ConnectionState.RUNNING)
        else:
            self._store_state(ConnectionState.RETRYING, error)

    def _store_state(self, state: ConnectionState, error: HeadwaterError | None = None) -> None:
        """Writes the connection's state to meta, if the connection is still ours and meta is writable."""
        log.log(
            logging.INFO if error is None else logging.WARNING,
            "%s%s",
            state,
            "" if error is None else f": {error.code}: {error.message}",
        )
        try:
            with self._meta.write() if self._acquired is None else self._meta.owned(self._acquired) as c:
                connections.set_state(c, self._id, state, error)
        except HeadwaterError as e:
            log.warning("the state could not be stored: %s", e)
        _say(f"state {state}")


def _next_life(last: str, flow: Log) -> str:
    """A name for this life of the upstream as we see it: a broken connection also starts a new one."""
    tail = last.rsplit("/", 1)[-1]
    return f"{flow.standing.life}/{int(tail) + 1 if tail.isdigit() else 1}"


def _say(line: str) -> bool:
    """Writes a line to the server, without ever blocking on its reader. False when there is no reader any more."""
    try:
        if select.select([], [sys.stdout], [], 0)[1]:
            os.write(sys.stdout.fileno(), f"{line}\n".encode())
        return True
    except (BrokenPipeError, ValueError):
        return False


def _watch_stdin(capture: Capture) -> None:
    rest = b""
    with contextlib.suppress(OSError):
        while data := os.read(0, 4096):  # not through sys.stdin, whose lock a thread must not hold when Python exits
            *lines, rest = (rest + data).split(b"\n")
            for word in (line.decode().strip() for line in lines):
                if word in (PAUSE, RESUME):
                    capture.pause(word == PAUSE)
    capture.stop()


def _limit_malloc() -> None:
    """Returns buffers to the system as soon as they are free; by default malloc keeps some 50 MB of them."""
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it, and only glibc needs it
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 2)
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 20)


def main() -> int:
    """The process: see the module's docstring."""
    parser = argparse.ArgumentParser(prog="headwater.capture.process")
    parser.add_argument("--home", required=True)
    parser.add_argument("--connection", required=True, type=int)
    parser.add_argument(
        "--alone",
        action="store_true",
        help="take over from an earlier capture immediately; the caller holds the home's lock",
    )
    parser.add_argument("--until", help="the position or the time after which nothing is captured")
    parser.add_argument("--config", help="the settings file, if it is not the home's")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="a setting")
    arguments = parser.parse_args()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s capture %(levelname)s %(message)s".lower()
    )
    try:
        until = Until.parse(arguments.until) if arguments.until else None
        home = Path(arguments.home).absolute()
        settings = load(home, Given.of(arguments.config, arguments.set))
        meta = Meta(config.meta_url(home, settings.meta_url))
        capture = Capture(meta, LocalStorage(home), arguments.connection, owner(home), until, settings)
    except HeadwaterError as e:
        log.error("%s: %s", e.code, e.message)
        _say(f"refused {json.dumps(e.as_dict())}")  # without settings there may be no meta to write it to
        return e.exit_status
    _limit_malloc()
    # in a thread: the handler may have interrupted the main thread while it holds the event's lock
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=capture.stop, daemon=True).start())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides when we end
    threading.Thread(target=_watch_stdin, args=(capture,), name="stdin", daemon=True).start()
    return capture.run(alone=arguments.alone)


if __name__ == "__main__":
    sys.exit(main())
