"""A cut of the upstream that is also a cut of its log: the only way to compare both while everything runs.

MariaDB reports the place in the binlog that a consistent snapshot shows, except for prepared (XA) transactions. MySQL
does not: there read views are taken until the binlog stood still around one, with nobody between the binlog and
visibility.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.config import LOCK_TIMEOUT_S, SCAN_BATCH_BYTES
from headwater.errors import HeadwaterError, Retry, SourceError
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.binlog.xa import ends_prepared
from headwater.source.mysql.catalog.table import describe
from headwater.source.mysql.client.ask import binlog_events, query
from headwater.source.mysql.client.session import Endpoint, Session, is_mariadb
from headwater.source.mysql.scan.low import (
    binlog_end,
    owned,
    snapshot_place,
    take_low,
    wait_until_through,
    words,
)
from headwater.source.mysql.scan.read_spans import CutScan, TableReader, configure
from headwater.source.mysql.server import expect_server
from headwater.source.spans import OnWait, Scan, ScanTable, Seen

VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
CALM_S = 5.0  # a busy server stands still between two groups of commits many times in this period
EVENTS_MOST = 10_000  # between two queries; with more of them the next attempt is made
LOCK_S = 5  # how long writers may have to wait if it never does

CHANGED = 1412  # the server's error for a read view that is older than the table's definition: it cannot be read


class MysqlCut:
    """A read view and the position whose commits it sees exactly. Its scans run one after another in its session."""

    def __init__(self, endpoint: Endpoint, session: Session, position: Position, life: str) -> None:
        self._endpoint = endpoint
        self._session = session
        self._life = life
        self._place = position
        self.position = str(position)

    @contextmanager
    def scan(self, table: ScanTable) -> Iterator[Scan | None]:
        """Reads the table at the cut; None if it was emptied or rewritten since and can no longer be read there."""
        with self._endpoint.connect() as other:  # the current catalog, outside the cut's transaction
            at = describe(other, table)
        reader = TableReader(self._endpoint, self._session, table, at, SCAN_BATCH_BYTES)
        if not self._readable(at.source):
            yield None
            return
        with CutScan(reader, Seen(self.position, self.position, self._life)) as scan:
            yield scan

    def _readable(self, source: str) -> bool:
        try:
            found = query(self._session, f"SELECT 1 FROM {source} LIMIT 1")
        except HeadwaterError as e:
            cause = e.__cause__.args[0] if e.__cause__ is not None and e.__cause__.args else 0
            if cause == CHANGED:
                return False
            raise
        return bool(found) or not self._truncated_since()

    def _truncated_since(self) -> bool:
        """Whether a table may have been truncated after the cut's place, and the read view sees that all the same.

        TRUNCATE empties a table before it is in the binlog; the table that was just read is locked until it is there.
        """
        with self._endpoint.connect() as other:
            if binlog_end(other, self._place.shift).file != self._place.file:
                return True
            events = binlog_events(other, self._place.name, self._place.offset, EVENTS_MOST)
        return len(events) == EVENTS_MOST or any("truncate" in e["info"].lower() for e in events)


@contextmanager
def upstream_cut(endpoint: Endpoint, on_wait: OnWait, shift: int = 0, *, may_lock: bool = False) -> Iterator[MysqlCut]:
    """A cut that stays open while the block runs; `on_wait` gets who is in the way."""
    session = endpoint.connect()
    try:
        life = expect_server(session, {})
        configure(session, LOCK_TIMEOUT_S)
        yield MysqlCut(endpoint, session, _view(endpoint, session, on_wait, shift, may_lock), life)
    finally:
        session.close()


def _view(endpoint: Endpoint, session: Session, on_wait: OnWait, shift: int, may_lock: bool) -> Position:
    if is_mariadb(session):
        place = _exact_view(endpoint, session, on_wait, shift)
    else:
        place = _calm_view(endpoint, session, on_wait, shift)
        if place is None and may_lock:
            place = _locked_view(endpoint, session, shift)
    if place is None:
        raise SourceError(
            "source.failed",
            f"{endpoint.address} was never idle long enough for a consistent read view within {CALM_S:.0f} s",
            "Verify again when the server is less busy.",
            Retry.AUTO,
        )
    return place


def _exact_view(endpoint: Endpoint, session: Session, on_wait: OnWait, shift: int) -> Position | None:
    """MariaDB: a read view and its place.

    What was in the binlog a moment earlier is visible by then; since then no prepared transaction has committed, and
    all others are as the place says.
    """
    deadline = time.monotonic() + CALM_S
    while time.monotonic() < deadline:
        low = take_low(endpoint, session, shift)
        left = wait_until_through(session, low, deadline - time.monotonic())
        if left:
            on_wait("; ".join(words(session, left)))
            continue
        query(session, VIEW)
        place = snapshot_place(session, shift)
        if not _prepared_ended(session, low.position, place):
            return place
        query(session, "ROLLBACK")
    return None


def _prepared_ended(session: Session, since: Position, upto: Position) -> bool:
    """Whether a prepared transaction may have ended between two places in the binlog."""
    if since.number == upto.number:
        return False
    if since.file != upto.file:
        return True
    events = binlog_events(session, since.name, since.offset, EVENTS_MOST)
    found = [e for e in events if int(e["pos"]) < upto.offset]
    return len(found) == EVENTS_MOST or any(ends_prepared(e["info"]) for e in found)


def _calm_view(endpoint: Endpoint, session: Session, on_wait: OnWait, shift: int) -> Position | None:
    """A read view around which the binlog stood still, with nobody between the binlog and visibility."""
    gtid = query(session, "SELECT @@global.gtid_mode")[0][0] == "ON"
    deadline = time.monotonic() + CALM_S
    reported_at = time.monotonic()
    while time.monotonic() < deadline:
        if gtid:
            before, between = binlog_end(session, shift), owned(session)
        else:
            low = take_low(endpoint, session, shift)
            before, between = low.position, dict.fromkeys(low.between, 0)
        if not between:
            query(session, VIEW)
            if binlog_end(session, shift).number == before.number:
                return before
            query(session, "ROLLBACK")
        elif time.monotonic() - reported_at > 1:
            reported_at = time.monotonic()
            on_wait("; ".join(words(session, between)))
    return None


def _locked_view(endpoint: Endpoint, session: Session, shift: int) -> Position:
    """A read view after a lock that briefly holds back every commit."""
    with endpoint.connect() as locking:
        query(locking, f"SET SESSION lock_wait_timeout = {LOCK_S}")
        query(locking, "FLUSH TABLES WITH READ LOCK")
        query(session, VIEW)
        return binlog_end(session, shift)
