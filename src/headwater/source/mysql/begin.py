"""Begin: where a changelog starts, and the wait that puts every change to a new table into the log or its first scan.

Rows of tables that nobody follows are dropped as they are framed. So once a table is followed, a place in the binlog is
taken: what lies behind it will be kept, and what lies before it must be visible to the first scan.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headwater.errors import Retry, SourceError
from headwater.source.mysql.ask import query
from headwater.source.mysql.low import Low, between, binlog_end, owned, snapshot_place, take_low, words
from headwater.source.mysql.position import Position
from headwater.source.mysql.session import Endpoint, Session, is_mariadb

START_S = 60.0  # a server that commits without a pause is asked so long for a moment at which nobody is between
VIEW = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def start(session: Session, shift: int, on_wait: Callable[[str], None]) -> Position:
    """A place for a new changelog, with exactly the transactions up to it, if the server numbers them."""
    if is_mariadb(session):
        query(session, VIEW)
        place = snapshot_place(session, shift)
        query(session, "COMMIT")
        ((gtids,),) = query(session, "SELECT BINLOG_GTID_POS(%s, %s)", (place.name, place.offset))
        return Position.of(place.name, place.offset, shift, gtids or "")
    if query(session, "SELECT @@global.gtid_mode")[0][0] != "ON":
        return binlog_end(session, shift)
    return _numbered(session, shift, on_wait)


def _numbered(session: Session, shift: int, on_wait: Callable[[str], None]) -> Position:
    """MySQL shows the transactions that are visible, not those in its binlog: they agree while nobody is between."""
    deadline = time.monotonic() + START_S
    told = time.monotonic()
    while True:
        before = binlog_end(session, shift)
        waiting = owned(session)
        after = binlog_end(session, shift, gtids=True)
        if not waiting and before.number == after.number and before.number == binlog_end(session, shift).number:
            return after
        if time.monotonic() > deadline:
            raise SourceError(
                "source.failed",
                f"the server committed for {START_S:.0f} s without a pause: {'; '.join(words(session, waiting))}",
                "Wait; it is tried again.",
                Retry.AUTO,
            )
        if waiting and time.monotonic() - told > 1:
            told = time.monotonic()
            on_wait("; ".join(words(session, waiting)))


def ticket(endpoint: Endpoint, session: Session, shift: int) -> str:
    """What `older` wants to know of this moment: where the binlog ends, and who is between it and visibility."""
    if is_mariadb(session):
        return Low(binlog_end(session, shift)).ticket()
    return take_low(endpoint, session, shift).ticket()


def older(session: Session, ticket: str, shift: int) -> list[str]:
    """Who was between the binlog and visibility at the ticket's moment, and still is, in words."""
    low = Low.of_ticket(ticket)
    if is_mariadb(session):
        query(session, VIEW)
        place = snapshot_place(session, shift)
        query(session, "COMMIT")
        return [] if place.number >= low.position.number else [f"commits up to {low.position} that are not visible yet"]
    return words(session, between(session, low))
