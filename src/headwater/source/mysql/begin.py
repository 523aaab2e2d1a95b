"""Begin: where a changelog starts, and the wait that gets every change to a new table into the log or its first scan.

Rows of tables that nobody follows are dropped during framing. So once a table is followed, a place in the binlog is
recorded: what lies after it will be kept, and what lies before it must be visible to the first scan.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace

from headwater.errors import Retry, SourceError
from headwater.source.mysql.binlog.gtid import MysqlGtids
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.client.ask import binlog_events, query
from headwater.source.mysql.client.session import Endpoint, Session, is_mariadb
from headwater.source.mysql.scan.low import (
    Low,
    between,
    binlog_end,
    committing,
    prepared,
    snapshot_place,
    take_low,
    wait_until_through,
    words,
)

PREPARED_S = 1.0
START_S = 60.0  # how long a commit may be between the binlog and visibility before a start gives up
TRIES = 10  # the binlog may continue in another file meanwhile
GTID = r"GTID_NEXT\s*=\s*'([^']+)'"
VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def start(endpoint: Endpoint, session: Session, shift: int, on_wait: Callable[[str], None]) -> Position:
    """A place for a new changelog, with exactly the transactions up to it, if the server numbers them.

    No transaction may be prepared before it and commit after it: its rows would lie before the place. `on_wait` is told
    each second whose these are.
    """
    while True:
        place = place_now(endpoint, session, shift)
        waiting = prepared(session)
        if not waiting:
            return place
        on_wait("; ".join(f"prepared transaction {name} (XA COMMIT or XA ROLLBACK ends it)" for name in waiting))
        time.sleep(PREPARED_S)


def place_now(endpoint: Endpoint, session: Session, shift: int) -> Position:
    """Where the binlog is now, with exactly the transactions up to there, if the server numbers them."""
    if is_mariadb(session):
        query(session, VIEW)
        place = snapshot_place(session, shift)
        query(session, "COMMIT")
        ((gtids,),) = query(session, "SELECT BINLOG_GTID_POS(%s, %s)", (place.name, place.offset))
        return Position.of(place.name, place.offset, shift, gtids or "")
    if query(session, "SELECT @@global.gtid_mode")[0][0] != "ON":
        return binlog_end(session, shift)
    return _numbered(endpoint, session, shift)


def _numbered(endpoint: Endpoint, session: Session, shift: int) -> Position:
    """A place with its transactions.

    MySQL shows the visible transactions, which are not the ones in the binlog: those in between are waited for, and
    those after the place are removed again.
    """
    for _ in range(TRIES):
        low = take_low(endpoint, session, shift)
        left = wait_until_through(session, low, START_S)
        if left:
            break
        ((executed,),) = query(session, "SELECT @@global.gtid_executed")
        end = binlog_end(session, shift)
        if end.file == low.position.file:
            later = _after(session, low.position)
            return replace(low.position, gtids=str(without(MysqlGtids.parse(executed), later)))
    raise SourceError(
        "source.lock_timeout",
        f"no starting position found in the binlog of {endpoint.address}: "
        f"{'; '.join(words(session, left)) or 'its binlog kept rotating'}",
        "Wait; Headwater retries.",
        Retry.AUTO,
    )


def _after(session: Session, place: Position) -> MysqlGtids:
    """The transactions that the binlog's file has after a place."""
    found = binlog_events(session, place.name, place.offset)
    named = (re.search(GTID, r["info"]) for r in found if r["event_type"].startswith("Gtid"))
    return MysqlGtids.parse(",".join(m[1] for m in named if m))


def without(all: MysqlGtids, some: MysqlGtids) -> MysqlGtids:
    """A set without some of its transactions."""
    left: dict[bytes, tuple[tuple[int, int], ...]] = {}
    for source, intervals in all.intervals.items():
        for first, last in some.intervals.get(source, ()):
            parts = [((lo, min(hi, first - 1)), (max(lo, last + 1), hi)) for lo, hi in intervals]
            intervals = tuple((lo, hi) for pair in parts for lo, hi in pair if lo <= hi)
        if intervals:
            left[source] = intervals
    return MysqlGtids(left)


def ticket(endpoint: Endpoint, session: Session, shift: int) -> str:
    """What `blockers` needs to know about this moment: where the binlog ends, and who is between it and visibility."""
    if is_mariadb(session):
        return Low(binlog_end(session, shift)).ticket()
    return take_low(endpoint, session, shift).ticket()


def blockers(session: Session, ticket: str, shift: int) -> list[str]:
    """Who was between the binlog and visibility at the ticket's moment and still is, in words."""
    low = Low.of_ticket(ticket)
    if is_mariadb(session):
        query(session, VIEW)
        place = snapshot_place(session, shift)
        query(session, "COMMIT")
        return [] if place.number >= low.position.number else committing(session)
    return words(session, between(session, low))
