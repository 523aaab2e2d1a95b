"""The log client: reads a logical replication slot as fast as its walsender sends, copying without inspecting."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping

import psycopg
from psycopg import errors as pg_errors
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from headwater.errors import HeadwaterError, Retry, SourceError
from headwater.source.base import EPOCH_S, Inbox, Standing
from headwater.source.frames import Framing
from headwater.source.postgres import resume
from headwater.source.postgres.client.ask import Session, query
from headwater.source.postgres.client.session import Endpoint, lsn_to_int, quote_identifier, quote_literal
from headwater.source.postgres.frame import PostgresFraming
from headwater.source.refusals import log_broken
from headwater.source.wakeup import Wakeup

SILENCE_S = 60  # an upstream that does not even accept our bytes for this long is gone
_STATUS = struct.Struct("!cqqqqB")
_BEAT = "SELECT pg_logical_emit_message(false, 'headwater', '')"


class PostgresSource:
    """A PostgreSQL database as the capture sees it (`source.base.Source`)."""

    def __init__(self, endpoint: Endpoint, slot: str, publication: str) -> None:
        self.endpoint = endpoint
        self.slot = slot
        self.publication = publication

    @classmethod
    def of(cls, options: Mapping[str, str], password: str) -> PostgresSource:
        """The source that a connection's stored options describe."""
        return cls(Endpoint.of(options, password), options["slot.name"], options["publication.name"])

    def open_log(self, position: str, identity: dict[str, str]) -> PostgresLog:
        """Connects and checks that nothing after `position` is lost; see `Source.open_log`."""
        session = self.endpoint.connect()
        try:
            replication = self.endpoint.connect(replication=True)
        except BaseException:
            session.close()
            raise
        try:
            standing = resume.check(session, replication, self.slot, self.publication, position, identity)
            return PostgresLog(self, session, replication, standing)
        except BaseException:
            session.close()
            replication.close()
            raise


class PostgresLog:
    """An open log (`source.base.Log`): a walsender for the flow, and an ordinary session for the heartbeat."""

    def __init__(self, source: PostgresSource, session: Session, replication: Session, standing: Standing) -> None:
        self.standing = standing
        self.framing: Framing = PostgresFraming(standing.next_txn)
        self._source = source
        self._session = session
        self._replication = replication
        self._pgconn: PGconn = replication.pgconn
        self._wakeup = Wakeup()
        self._poll = select.poll()
        self._closed = False
        self._beating = threading.Lock()

    def begin(self, position: str) -> None:
        """Starts the flow after `position`."""
        names = quote_literal(quote_identifier(self._source.publication))
        # never 0/0: the slot's own position may be behind ours after a crash of the server
        command = (
            f"START_REPLICATION SLOT {quote_identifier(self._source.slot)} LOGICAL {position} "
            f"(proto_version '1', publication_names {names})"
        )
        result = self._pgconn.exec_(command.encode())
        if result.status != ExecStatus.COPY_BOTH:
            raise self._refusal(result)
        self._pgconn.nonblocking = 1
        _set_user_timeout(self._pgconn.socket)
        _set_user_timeout(self._session.pgconn.socket)
        self._poll.register(self._pgconn.socket, select.POLLIN)
        self._wakeup.register(self._poll)

    def receive(self, into: Inbox, until: float, limit: int) -> None:
        """Appends whatever arrives; see `Log.receive`. Only the inner loop runs per row."""
        get, write, append = self._pgconn.get_copy_data, into.data.write, into.lengths.append
        came = False
        try:
            while True:
                before = into.count
                size, message = get(1)
                while size > 0:
                    write(message)
                    append(size)
                    size, message = get(1)
                if size < 0:
                    raise self._end_of_flow()
                now = time.monotonic()
                # checked once per drain, so an inbox exceeds `limit` by at most libpq's buffer
                if into.size >= limit or now >= until:
                    return
                if into.count > before:
                    came = True
                elif came or self._wakeup.received(self._poll.poll((until - now) * 1000)):
                    return
                self._pgconn.consume_input()
        except psycopg.Error as e:
            raise self._broken(e) from e

    def acknowledge(self, position: str, *, ask: bool = False) -> None:
        """Reports `position` as durable; see `Log.acknowledge`."""
        at = lsn_to_int(position)
        now_us = int((time.time() - EPOCH_S) * 1_000_000)
        try:
            self._pgconn.put_copy_data(_STATUS.pack(b"r", at, at, at, now_us, ask))
            self._pgconn.flush()
        except psycopg.Error as e:
            raise self._broken(e) from e

    def beat(self) -> None:
        """Writes an empty message into the upstream's log, and checks that the publication is still the same."""
        with self._beating:
            try:
                if not self._closed:
                    session, name = self._ready_session(), self._source.publication
                    query(session, _BEAT)
                    rows = query(session, resume.PUBLICATION, (name,))
                    resume.check_publication(rows, name, self.standing.identity["publication"])
            finally:
                if self._closed:
                    self._session.close()

    def now(self) -> tuple[str, int]:
        """Where the log ends and the time just before; see `Log.now`."""
        with self._beating:
            session = self._ready_session()
            clock = query(session, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0]
            position = query(session, "SELECT pg_current_wal_insert_lsn()::text")[0][0]
        return str(position), int(clock) - EPOCH_S * 1_000_000

    def wake(self) -> None:
        """Makes `receive` return."""
        self._wakeup.wake()

    def close(self) -> None:
        """Closes both connections; the server keeps what was not acknowledged."""
        self._closed = True
        self._replication.close()
        if self._beating.acquire(blocking=False):  # otherwise the running beat closes its session itself
            self._session.close()
            self._beating.release()
        self._wakeup.close()

    def _ready_session(self) -> Session:
        if self._session.closed:
            self._session = self._source.endpoint.connect()
        return self._session

    def _refusal(self, result: PGresult) -> HeadwaterError:
        """Why the flow did not start, or ended."""
        error = pg_errors.error_from_result(result)
        text = str(error)
        if isinstance(error, pg_errors.ObjectInUse):
            return resume.slot_busy(self._source.slot, "another reader")
        if "publication" in text and "does not exist" in text:
            return SourceError(
                "source.publication_missing",
                f"the publication {quote_literal(self._source.publication)} is gone, or newer than our position",
                resume.START_OVER,
            )
        return self._broken(error)

    def _end_of_flow(self) -> HeadwaterError:
        """The error behind the end of the copy: a clean shutdown, or what the next result says."""
        while (result := self._pgconn.get_result()) is not None:
            if result.status in (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE):
                return self._refusal(result)
            if result.status == ExecStatus.COPY_BOTH or result.status == ExecStatus.COPY_IN:
                break
        return log_broken("the upstream ended the flow")

    def _broken(self, error: psycopg.Error) -> HeadwaterError:
        translated = self._source.endpoint.translate(error)
        if translated.retry is Retry.AUTO or self._pgconn.status == ConnStatus.BAD:
            return log_broken(translated.message)
        return translated


def _set_user_timeout(fd: int) -> None:
    """Makes the kernel give up on a peer that accepts nothing; by default that takes a quarter of an hour."""
    with socket.socket(fileno=os.dup(fd)) as s:
        if s.family in (socket.AF_INET, socket.AF_INET6) and hasattr(socket, "TCP_USER_TIMEOUT"):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_S * 1000)
