"""Raw messages in, published segments out: durable first, then one row in meta, then the waiters are notified."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlalchemy.engine import Connection

from headwater import crash
from headwater.backoff import Backoff
from headwater.changelog import segment
from headwater.changelog.memory import HomeMemory
from headwater.config import LEASE_S
from headwater.errors import HeadwaterError, JobError, MachineError, machine_error
from headwater.meta import connections, segments
from headwater.meta.store import Meta
from headwater.model import ConnectionInfo, Part, Segment
from headwater.ownership.lease import Lease
from headwater.source.base import Bytes, Inbox, Longs
from headwater.source.frames import Described, FramedTo, Frames, Framing
from headwater.storage import Storage

RETRY = Backoff(0.25, 5.0)  # a full disk is checked again as often as the last one says


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A batch that was handed to meta: what holds once it is known to be published."""

    relations: tuple[Described, ...]
    after: FramedTo
    committed: int
    versions: dict[int, tuple[Described, int]]
    path: str = ""  # of its segment


class SegmentWriter:
    """Writes one flow of a connection's log. `write` may be repeated after any error: nothing is published twice."""

    def __init__(
        self,
        meta: Meta,
        storage: Storage,
        lease: Lease,
        connection: ConnectionInfo,
        framing: Framing,
    ) -> None:
        self._meta = meta
        self._storage = storage
        self._lease = lease
        self._id = connection.id
        self._known: dict[int, Described] = {}  # what the flow last said about each table
        self._versions: dict[int, tuple[Described, int]] = {}  # what meta has of it, and its id there
        self._committed = connection.committed_index
        self._framing = framing
        self._memory = HomeMemory(meta, storage, connection.id, framing.number(connection.resume_position))
        self._progress = framing.begin(connection.resume_position, connection.last_index + 1, connection.last_txn)
        self._unanswered: _Unanswered | None = None

    @property
    def position(self) -> str:
        """The position that may be acknowledged: everything that committed at or before it is published."""
        return self._progress.position

    @property
    def committed_index(self) -> int:
        """The last index of the last completed transaction."""
        return self._committed

    def write(self, data: Bytes, lengths: Longs) -> None:
        """Publishes a batch: messages that end outside any transaction, or rows of one open transaction."""
        if self._unanswered is None or not self._was_published(self._unanswered):
            self._drop_unpublished()
            self._memory.begin(self._framing.number(self._progress.position))
            frames, after = self._framing.frame(data, lengths, self._progress, self._memory)
            if len(frames):
                self._write_segment(frames, after)
            elif len(frames.transactions):
                raise JobError("job.failed", "a commit has no row in its batch")
            elif after.position != self._progress.position:
                self._write_position(frames, after)
            else:
                self._unanswered = _Unanswered(tuple(frames.relations), after, self._committed, self._versions)
        self._answered()

    def renew(self) -> None:
        """Renews the lease while there is nothing to write."""
        with self._meta.owned(self._lease):
            pass

    def ensure_owned(self) -> None:
        """Raises if the lease has expired, so that another capture may have taken over."""
        self._lease.ensure()

    def _was_published(self, last: _Unanswered) -> bool:
        """Whether an earlier attempt at this batch was committed although its response was an error.

        Then it must not be repeated, not even in part: files that it published may already have readers. Asked by a
        write, which waits until a COMMIT still in progress has ended.
        """
        with self._meta.owned(self._lease) as c:
            now = connections.get(c, self._id)
        return (now.last_index, now.position) == (last.after.next_index - 1, last.after.position)

    def _drop_unpublished(self) -> None:
        """Removes what an attempt wrote that meta does not have."""
        if self._unanswered is not None and self._unanswered.path:
            self._storage.remove([self._unanswered.path])
        self._unanswered = None

    def _answered(self) -> None:
        """Called when the batch is published: everything that follows builds on it."""
        done, self._unanswered = self._unanswered, None
        assert done is not None
        self._known.update({r.upstream_id: r for r in done.relations})
        self._versions = done.versions
        self._committed = done.committed
        self._progress = done.after
        self._memory.published()

    def _write_position(self, frames: Frames, after: FramedTo) -> None:
        self._unanswered = _Unanswered(tuple(frames.relations), after, self._committed, self._versions)
        with self._meta.owned(self._lease) as c:
            connections.advance(c, self._id, after.position)
        crash.here("position.published")

    def _write_segment(self, frames: Frames, after: FramedTo) -> None:
        groups = segment.group(frames, self._known)
        path = segment.new_path(self._id, frames.first_index, self._lease.permit)
        batches = [segment.changes_batch(frames, g.rows) for g in groups]
        batches.append(segment.transactions_batch(frames.transactions))
        size = segment.write(self._storage, path, batches)
        crash.here("segment.written")
        done = frames.transactions
        committed = int(done.last_index[-1]) if len(done) else self._committed
        new = Segment(
            connection_id=self._id,
            first_index=frames.first_index,
            last_index=after.next_index - 1,
            committed_index=committed,
            path=path,
            bytes=size,
            txn_min=int(frames.txn.min()),
            txn_max=int(frames.txn.max()),
            parts=(),
        )
        self._publish(new, groups, frames, after)
        crash.here("transaction.half" if after.open else "segment.published")

    def _publish(self, new: Segment, groups: list[segment.Group], frames: Frames, after: FramedTo) -> None:
        """One meta transaction: schema versions, parts, segment and progress."""
        versions = dict(self._versions)
        self._unanswered = _Unanswered(tuple(frames.relations), after, new.committed_index, versions, new.path)
        with self._meta.owned(self._lease) as c:
            parts = []
            for number, g in enumerate(groups):
                table = g.relation.upstream_id
                if table not in versions or not segment.same(versions[table][0], g.relation):
                    versions[table] = (g.relation, self._add_schema(c, g))
                id = versions[table][1]
                parts.append(Part(table, id, number, len(g.rows), g.first_index, g.last_index, g.truncates))
            segments.publish(
                c,
                replace(new, parts=tuple(parts)),
                resume_position=after.position,
                position=after.position,
                last_txn=after.last_txn,
            )

    def _add_schema(self, c: Connection, g: segment.Group) -> int:
        return segments.add_schema(
            c,
            self._id,
            upstream_id=g.relation.upstream_id,
            from_index=g.first_index,
            schema=g.relation.schema,
            table=g.relation.table,
            identity=g.relation.identity,
            columns=g.relation.columns,
            broken=g.relation.broken,
        ).id


@dataclass(frozen=True, slots=True)
class _Job:
    inbox: Inbox
    messages: int
    bytes: int


class WriterThread:
    """Runs a SegmentWriter next to the receiver: while one batch is being written the next one is received.

    A full disk or an unreachable meta is retried until it works; `troubled` is called with the error, and with None
    when it is over. Any other error ends the thread and is raised by `check`. So does a lease that expires meanwhile:
    its next owner waits for the upstream's log.
    """

    def __init__(
        self, writer: SegmentWriter, published: Callable[[], None], troubled: Callable[[HeadwaterError | None], None]
    ) -> None:
        self._writer = writer
        self._published = published
        self._troubled = troubled
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._stopping = threading.Event()
        self._spare = Inbox()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="segment writer", daemon=True)
        self._thread.start()

    @property
    def position(self) -> str:
        """The position that may be acknowledged now."""
        return self._writer.position

    @property
    def idle(self) -> bool:
        """Whether everything handed over is published."""
        return self._idle.is_set()

    def wait_idle(self, timeout_s: float) -> bool:
        """Waits for `idle`."""
        return self._idle.wait(timeout_s)

    def check(self) -> None:
        """Raises the error that ended the thread."""
        if self._failure is not None:
            raise self._failure

    def hand_over(self, inbox: Inbox, messages: int, bytes: int) -> Inbox:
        """Takes the first `messages` messages (`bytes` bytes), only when idle; returns an inbox with the rest.

        There are two inboxes, so memory does not depend on how far the writer lags behind.
        """
        assert self.idle
        rest = self._spare
        inbox.carry(rest, messages, bytes)
        self._idle.clear()
        self._jobs.put(_Job(inbox, messages, bytes))
        return rest

    def stop(self) -> None:
        """Ends after the batch being written."""
        self._stopping.set()
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    job = self._jobs.get(timeout=LEASE_S / 3)
                except queue.Empty:
                    self._persist(self._writer.renew)
                    continue
                if job is not None:
                    self._do(job)
                    self._published()
        except BaseException as e:
            self._failure = e
            self._idle.set()
            self._published()

    def _do(self, job: _Job) -> None:
        def write() -> None:
            data, lengths = job.inbox.arrays()
            self._writer.write(data[: job.bytes], lengths[: job.messages])

        if self._persist(write):
            job.inbox.clear()
            self._spare = job.inbox
            self._idle.set()

    def _persist(self, step: Callable[[], None]) -> bool:
        """Repeats a step while the machine lacks something, until it works (True) or we are stopped."""
        wait_s, trouble = 0.0, False
        while True:
            try:
                step()
                if trouble:
                    self._troubled(None)
                return True
            except (OSError, MachineError) as e:
                trouble = True
                # a copy: who keeps the error must not keep its traceback, whose frames use the inbox
                self._troubled(e.reworded() if isinstance(e, MachineError) else machine_error(e))
                self._writer.ensure_owned()
            wait_s = RETRY.after(wait_s)
            if self._stopping.wait(wait_s):
                return False
