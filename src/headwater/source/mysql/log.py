"""The log client: reads a binlog as fast as the server sends it, copying without inspecting."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

from headwater.errors import HeadwaterError, Retry, SourceError
from headwater.source.base import Inbox
from headwater.source.frames import Framing
from headwater.source.mysql import resume
from headwater.source.mysql.binlog.carry import Sender
from headwater.source.mysql.binlog.events import EPOCH_US
from headwater.source.mysql.binlog.history import History, Now, NowColumn
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.client.ask import query
from headwater.source.mysql.client.dump import FILE_HEAD, begin_dump, file_mark
from headwater.source.mysql.client.flow import Flow, Refused
from headwater.source.mysql.client.session import Endpoint, Session
from headwater.source.mysql.frame import MysqlFraming
from headwater.source.mysql.options import default_server_id
from headwater.source.mysql.resume import Resumption
from headwater.source.mysql.server import log_status
from headwater.source.refusals import log_broken
from headwater.source.wakeup import Wakeup

log = logging.getLogger(__name__)

SILENCE_S = 60.0  # a server that does not even send heartbeats for this long is gone
RECEIVE_BYTES = 4 << 20  # the socket's own buffer: the server keeps sending while a segment is written

_DUMP_FAILED = 1236
_ANOTHER_READER = 4052  # MariaDB ends a dump when another one begins under the same number
_NO_GTID = range(1945, 1961)  # MariaDB's errors for a GTID position
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, ''), COLUMN_KEY = 'PRI'
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""


class MysqlSource:
    """A MySQL or MariaDB database as the capture sees it (`source.base.Source`)."""

    def __init__(self, endpoint: Endpoint, server_id: int, cascades_waived: bool = False) -> None:
        self.endpoint = endpoint
        self.server_id = server_id
        self.cascades_waived = cascades_waived

    @classmethod
    def of(cls, options: Mapping[str, str], password: str) -> MysqlSource:
        """The source that a connection's stored options describe."""
        endpoint = Endpoint.of(options, password)
        server_id = int(options.get("server.id") or default_server_id(endpoint.address.hashed))
        return cls(endpoint, server_id, options.get("cascade.waived") == "true")

    def open_log(self, position: str, identity: dict[str, str]) -> MysqlLog:
        """Connects and checks that nothing after `position` is lost; see `Source.open_log`."""
        session = self.endpoint.connect()
        try:
            found = resume.check(self.endpoint, session, Position.parse(position), identity)
            return MysqlLog(self, session, self.endpoint.connect(), found)
        except BaseException:
            session.close()
            raise


class MysqlLog:
    """An open log (`source.base.Log`): a dump for the flow, and an ordinary session for queries."""

    framing: Framing

    def __init__(self, source: MysqlSource, session: Session, dump: Session, found: Resumption) -> None:
        self.standing = found.standing
        self._source = source
        self._session = session
        self._dump = dump
        self._found = found
        self._flow: Flow | None = None
        self._wakeup = Wakeup()
        self._poll = select.poll()
        self._heard_at = 0.0
        self._closed = False
        self._marked = found.standing.identity.get("file", "")
        self._asking = threading.Lock()
        server = Sender(
            position=found.position,
            mariadb=found.facts.is_mariadb,
            database=source.endpoint.database,
            fold_names=found.facts.lower_case_names != 0,
            hides_cascades=not (found.facts.cascades_logged or source.cascades_waived),
        )
        self.framing = MysqlFraming(server, History(self._table_now))

    def begin(self, position: str) -> None:
        """Starts the flow after `position`, which `open_log` has checked."""
        checksum = begin_dump(self._dump, self._source.server_id, self._found.start)
        sock: socket.socket = self._dump._sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        sock.setblocking(False)
        after = Position.parse(position).number if self._found.start.from_head else 0
        self._flow = Flow(sock, self._found.position, checksum, after)
        self._poll.register(sock, select.POLLIN)
        self._wakeup.register(self._poll)
        self._heard_at = time.monotonic()

    def receive(self, into: Inbox, until: float, limit: int) -> None:
        """Appends whatever arrives; see `Log.receive`. No Python runs per event."""
        assert self._flow is not None
        came = False
        try:
            while True:
                held = not self._flow.drained  # if so, nothing was read, but more may have arrived
                got = self._flow.fill()
                added = self._flow.drain(into)
                now = time.monotonic()
                if got:
                    self._heard_at = now
                if into.size >= limit or now >= until:
                    return
                if added:
                    came = True
                elif got or held:
                    continue  # part of an event
                elif came or self._wakeup.received(self._poll.poll((until - now) * 1000)):
                    return
                elif now - self._heard_at > SILENCE_S:
                    raise log_broken(f"the upstream has been silent for {SILENCE_S:.0f} s")
        except Refused as e:
            raise self._refusal(e) from e
        except OSError as e:
            raise log_broken(str(e.strerror or e)) from e

    def acknowledge(self, position: str, *, ask: bool = False) -> None:
        """Tells the server nothing: it keeps a binlog for as long as it is configured to, whoever reads it.

        When we have moved to another file since the last mark, that file is marked: the previous one may be gone when
        we reconnect, and a log that was reset has files of the same names.
        """
        place = Position.parse(position)
        if place.offset <= FILE_HEAD or place.name == self._marked:
            return
        self._marked = place.name
        try:
            mark = file_mark(self._source.endpoint, place.name, min(place.offset, resume.MARK_BYTES))
        except SourceError as e:  # the next connect checks whether the file exists, and marks it
            log.warning("binlog file not marked name=%s code=%s", place.name, e.code)
            return
        marked = {**self.standing.identity, "file": place.name, "file_mark": mark}
        self.standing = replace(self.standing, identity=marked)

    def beat(self) -> None:
        """Checks that the server answers; its own heartbeats advance an idle log."""
        with self._asking:
            try:
                if not self._closed:
                    query(self._ready_session(), "SELECT 1")
            finally:
                if self._closed:
                    self._session.close()

    def now(self) -> tuple[str, int]:
        """Where the log ends and the time there; see `Log.now`."""
        with self._asking:
            session = self._ready_session()
            ((clock,),) = query(session, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")
            status = log_status(session)
        return str(Position.of(status.file, status.offset, self._found.position.shift)), int(clock) - EPOCH_US

    def wake(self) -> None:
        """Makes `receive` return."""
        self._wakeup.wake()

    def close(self) -> None:
        """Closes both connections; the log restarts at the next requested position."""
        self._closed = True
        self._dump._force_close()  # a dump accepts no more commands, not even COM_QUIT
        if self._asking.acquire(blocking=False):  # otherwise the running beat closes its session itself
            self._session.close()
            self._asking.release()
        self._wakeup.close()

    def _ready_session(self) -> Session:
        if not self._session.open:
            self._session = self._source.endpoint.connect()
        return self._session

    def _table_now(self, schema: str, table: str) -> Now | None:
        """A table as the upstream has it now; called by the framing thread, so on its own session."""
        session = self._source.endpoint.connect()
        try:
            rows = query(session, _COLUMNS, (schema, table))
            status = log_status(session)
        finally:
            session.close()
        position = Position.of(status.file, status.offset, self._found.position.shift).number
        columns = tuple(NowColumn(n, d, c, charset, bool(key)) for n, d, c, charset, key in rows)
        return Now(columns, position) if columns else None

    def _refusal(self, refused: Refused) -> HeadwaterError:
        """Why the server ended the flow."""
        text = refused.text
        if not refused.number:
            return log_broken(text)
        if refused.number == _ANOTHER_READER or (refused.number == _DUMP_FAILED and "same server" in text):
            return SourceError(
                "source.slot_busy",
                f"another replica reads the upstream's log as server {self._source.server_id}",
                "Give the connection its own server.id.",
                Retry.AUTO,
            )
        if refused.number == _DUMP_FAILED or refused.number in _NO_GTID:
            gone = "purged" in text or "Could not find first log" in text or "not in the master's binlog" in text
            return resume.purged(text) if gone else resume.unreadable(text)
        error = self._source.endpoint.translate(_driver_error(refused))
        return error if error.retry is not Retry.AUTO else log_broken(error.message)


def _driver_error(refused: Refused) -> Exception:
    return OSError(refused.number, refused.text)
