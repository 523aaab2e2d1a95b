"""A proven low: a place in the binlog up to which every transaction is visible to a read view that opens later.

A commit is in the binlog before it is visible; with semi-sync replication it can stay in between for long. So the
place is taken first, and then everyone who could be in between is waited for.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import pymysql

from headwater.backoff import Backoff
from headwater.errors import PrivilegeError, Retry, SourceError
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.binlog.xa import ends_prepared
from headwater.source.mysql.client.ask import address_of, query
from headwater.source.mysql.client.refusals import translate
from headwater.source.mysql.client.session import Endpoint, Session, is_mariadb
from headwater.source.mysql.server import log_status

POLL = Backoff(0.002, 0.1)
# InnoDB shows its transactions from a cache that is refreshed only if nobody has read it for a tenth of a second: many
# waiters must not keep each other from seeing it refreshed.
LIST_POLL_S = (0.12, 0.4)
FRESH_S = 10.0  # within which that list is certainly refreshed

# The server's own list of transactions that wrote something. A sleeping session is not in a COMMIT; a transaction
# without a session is prepared (XA), and is in between only while somebody commits it.
RUNNING = """
SELECT t.trx_id, t.trx_mysql_thread_id, coalesce(p.command, ''), t.trx_rows_modified > 0
FROM information_schema.innodb_trx t LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
"""
STATEMENTS = """
SELECT left(info, 4096) FROM information_schema.processlist WHERE info IS NOT NULL AND id <> CONNECTION_ID()
"""
TRANSACTIONS = "SELECT count(*) FROM information_schema.innodb_trx"  # refused to users who do not see all sessions
MAY_NOT_RECOVER = 1401  # XA RECOVER's error for a user without the privilege
PROCESSES = "SELECT id, user, host, coalesce(state, ''), time FROM information_schema.processlist WHERE "
WHO = PROCESSES + "id = %s"
COMMITTING = PROCESSES + "state LIKE '%semi-sync%' OR state LIKE '%commit%' OR info LIKE 'COMMIT%' ORDER BY time DESC"

NAME_LIMIT = 5  # at most this many of those waited for are named


@dataclass(frozen=True, slots=True)
class Low:
    """A place, and who was between the binlog and visibility after it was taken; proven once they are visible."""

    position: Position
    kind: str = ""  # gtid | trx | xa; empty: nobody was
    between: frozenset[str] = frozenset()

    def ticket(self) -> str:
        return json.dumps([str(self.position), self.kind, sorted(self.between)])

    @classmethod
    def of_ticket(cls, ticket: str) -> Low:
        position, kind, between = json.loads(ticket)
        return cls(Position.parse(position), kind, frozenset(between))


def binlog_end(session: Session, shift: int = 0, *, gtids: bool = False) -> Position:
    """Where the binlog ends now. The set of transactions is what was visible a moment earlier, not what is in it."""
    status = log_status(session)
    return Position.of(status.file, status.offset, shift, status.executed if gtids else "")


def snapshot_place(session: Session, shift: int = 0) -> Position:
    """MariaDB: the place that the session's consistent snapshot shows exactly, except for prepared transactions.

    Their commits are in the binlog, before the place, for a moment before they are visible.
    """
    found = {k.lower(): v for k, v in query(session, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
    return Position.of(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]), shift)


def take_low(endpoint: Endpoint, session: Session, shift: int = 0) -> Low:
    """A place, and who must become visible before it is proven. The session must be outside a transaction."""
    if is_mariadb(session):
        query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        place = snapshot_place(session, shift)
        query(session, "COMMIT")
        return Low(place, "xa", frozenset(prepared(session)))
    ((mode,),) = query(session, "SELECT @@global.gtid_mode")
    position = binlog_end(session, shift)  # before asking who is in between
    if mode == "ON":
        return Low(position, "gtid", frozenset(owned(session)))
    return Low(position, "trx", _writing(endpoint))


def between(session: Session, low: Low) -> dict[str, int]:
    """Those who are still between the binlog and visibility, with the session of each (0: unknown)."""
    if not low.between:
        return {}
    if low.kind == "xa":
        now = dict.fromkeys(prepared(session) if _may_end_prepared(session) else (), 0)
    else:
        now = owned(session) if low.kind == "gtid" else _running(session)
    return {name: thread for name, thread in now.items() if name in low.between}


def prove_low(endpoint: Endpoint, session: Session, shift: int, timeout_s: float) -> Position:
    """A place that is proven on return; if that takes too long, an error that names who is in the way."""
    low = take_low(endpoint, session, shift)
    left = wait_until_through(session, low, timeout_s)
    if left:
        raise SourceError(
            "source.lock_timeout",
            f"{endpoint.address}: a commit has been in the binlog for {timeout_s:.0f} s without becoming visible: "
            + "; ".join(words(session, left)),
            "Wait; Headwater retries. If it persists, check the replicas that a semi-synchronous commit waits for"
            + ("; or GRANT PROCESS ON *.* to the connection's user, if it is missing." if low.kind == "xa" else "."),
            Retry.AUTO,
        )
    return low.position


def wait_until_through(session: Session, low: Low, timeout_s: float) -> dict[str, int]:
    """Waits for those of a low; returns who is left at the timeout."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.0
    while left := between(session, low):
        if time.monotonic() >= deadline:
            return left
        pause_s = POLL.after(pause_s)
        time.sleep(random.uniform(*LIST_POLL_S) if low.kind == "trx" else pause_s)
    return {}


def words(session: Session, left: dict[str, int]) -> list[str]:
    """Who is being waited for, as far as this user may see it."""
    named = []
    for name, thread in sorted(left.items())[:NAME_LIMIT]:
        found = query(session, WHO, (thread,))
        named.append(f"transaction {name}" + "".join(f" of {_who(*process)}" for process in found))
    return named + [f"and {len(left) - NAME_LIMIT} more"] * (len(left) > NAME_LIMIT)


def committing(session: Session) -> list[str]:
    """Who is in a commit, as far as this user may see it: MariaDB does not show which of them are in between."""
    found = query(session, COMMITTING)[:NAME_LIMIT]
    return [f"a commit of {_who(*process)}" for process in found] or ["a commit that this user may not see"]


def _who(thread: int, user: str, host: str, state: str, age: int) -> str:
    return f"{user}@{host} (connection {thread}), {state or 'no state'}, {age} s"


def prepared(session: Session) -> list[str]:
    """The prepared transactions, as far as this user may see them: MySQL requires XA_RECOVER_ADMIN."""
    try:
        with session.cursor() as cursor:
            cursor.execute("XA RECOVER")
            return [str(row[3]) for row in cursor.fetchall()]
    except (pymysql.Error, OSError) as e:
        if e.args[:1] == (MAY_NOT_RECOVER,):
            return []
        raise translate(address_of(session), e) from e


def _may_end_prepared(session: Session) -> bool:
    """Whether a session may be committing a prepared transaction: one is, or this user does not see them all."""
    try:
        query(session, TRANSACTIONS)
    except PrivilegeError:
        return True
    return any(ends_prepared(text) for (text,) in query(session, STATEMENTS))


def owned(session: Session) -> dict[str, int]:
    """MySQL: unfinished transactions that have their number, and so may be in the binlog, with their session."""
    ((text,),) = query(session, "SELECT @@global.gtid_owned")
    found: dict[str, int] = {}
    source = ""
    for word in "".join(str(text).split()).replace(",", ":,").split(":"):
        number, mark, thread = word.partition("#")
        if mark:
            found[f"{source}:{number}"] = int(thread)
        elif "-" in word:  # a server's uuid, possibly followed by a tag
            source = word.lstrip(",")
        elif word:
            source = f"{source.split(':')[0]}:{word}"
    return found


def _writing(endpoint: Endpoint) -> frozenset[str]:
    """InnoDB's transactions that have written, from a list that is certainly newer than this call."""
    with endpoint.connect() as session:
        query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")  # appears only in a fresh list
        me = session.thread_id()
        return _until(lambda: _names(session, me), endpoint)


def _until(ask: Callable[[], frozenset[str] | None], endpoint: Endpoint) -> frozenset[str]:
    deadline = time.monotonic() + FRESH_S
    while (found := ask()) is None:
        if time.monotonic() > deadline:
            raise SourceError(
                "source.failed",
                f"{endpoint.address}: information_schema.innodb_trx is not being refreshed",
                "Turn on GTIDs (gtid_mode = ON), or stop whatever keeps reading information_schema.innodb_trx.",
                Retry.AUTO,
            )
        time.sleep(random.uniform(*LIST_POLL_S))
    return found


def _names(session: Session, me: int) -> frozenset[str] | None:
    found = query(session, RUNNING)
    if all(thread != me for _, thread, _, _ in found):
        return None
    committing_xa = _may_end_prepared(session)
    return frozenset(
        str(trx)
        for trx, thread, command, wrote in found
        if wrote and (committing_xa if thread == 0 else command != "Sleep")
    )


def _running(session: Session) -> dict[str, int]:
    """InnoDB's list, without those whose session has moved on meanwhile: the list may be older than the sessions'."""
    found = query(session, RUNNING)
    detached = any(thread == 0 for _, thread, _, _ in found) and _may_end_prepared(session)
    return {
        str(trx): int(thread)
        for trx, thread, command, _ in found
        if (detached if thread == 0 else command not in ("", "Sleep"))
    }
