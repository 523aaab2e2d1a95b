"""The replication slot of a connection: created, watched and dropped; every step can be repeated."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psycopg
from psycopg import errors as pg_errors

from headwater.errors import HeadwaterError, Retry, SourceError
from headwater.source.postgres.begin import next_xid
from headwater.source.postgres.catalog.checks import no_free_slot
from headwater.source.postgres.client.ask import Session, endpoint_of, query
from headwater.source.postgres.client.session import Endpoint, lsn_to_int, quote_identifier, quote_literal
from headwater.source.postgres.replication.replicate import OnWait, run
from headwater.source.postgres.server import describe_server
from headwater.source.upstream import LogEnd

FREE_TIMEOUT_S = 20.0  # a walsender that lost its reader notices within this time
FREE_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class SlotPoint:
    """Where a slot begins: it sends the commits that end after `position`; `txn` is a 64-bit xid of that time."""

    position: str
    txn: int


def ensure_slot(endpoint: Endpoint, name: str, *, on_wait: OnWait = lambda waiting: None) -> SlotPoint:
    """The slot, created if it does not exist; the server waits until all older transactions have ended.

    `on_wait` is called each second with whom it waits for. An existing slot begins where it was last acknowledged.
    """
    with endpoint.connect() as session:
        existing = query(
            session,
            "SELECT plugin::text, database::text, temporary, confirmed_flush_lsn::text FROM pg_replication_slots "
            "WHERE slot_name = %s",
            (name,),
        )
        if existing:
            plugin, database, temporary, confirmed = existing[0]
            if plugin != "pgoutput" or database != endpoint.database or temporary or confirmed is None:
                raise SourceError(
                    "source.slot_busy",
                    f"the replication slot {name} belongs to something else",
                    "Choose another slot.name for the connection.",
                )
            return SlotPoint(confirmed, next_xid(session))
        command = f"CREATE_REPLICATION_SLOT {quote_identifier(name)} LOGICAL pgoutput NOEXPORT_SNAPSHOT"
        try:
            with endpoint.connect(replication=True) as replication:
                _, position, _, _ = run(endpoint, replication, command, on_wait)
        except psycopg.Error as e:
            raise _refusal(endpoint, session, e) from e
        return SlotPoint(position, next_xid(session))


def _refusal(endpoint: Endpoint, session: Session, error: psycopg.Error) -> HeadwaterError:
    if isinstance(error, pg_errors.ConfigurationLimitExceeded):
        unused = query(session, "SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY 1 LIMIT 1")
        return no_free_slot(describe_server(session), unused[0][0] if unused else None)
    return endpoint.translate(error)


# The log can send only what has been flushed. The limit is in megabytes there, -1 for none.
LOG_END = """
SELECT pg_current_wal_flush_lsn()::text,
       (SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots
        WHERE slot_name = %s),
       (SELECT nullif(setting::bigint, -1) * 1048576 FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
       (SELECT r.sync_state::text FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid
        WHERE s.slot_name = %s)
"""
SYNCHRONOUS = ("sync", "quorum", "potential")  # 'potential' becomes one of the others when a standby leaves
SYNCHRONOUS_NOTICE = (
    "the upstream takes our reader for a synchronous standby, so its commits wait for us: name its standbys in "
    "synchronous_standby_names instead of '*'"
)


def log_end(session: Session, name: str, since: str) -> LogEnd:
    """Where the log ends, how far that is from a position, and how much of it the slot retains and may retain."""
    position, kept, limit, sync_state = query(session, LOG_END, (name, name))[0]
    notice = SYNCHRONOUS_NOTICE if sync_state in SYNCHRONOUS else ""
    return LogEnd(position, max(0, lsn_to_int(position) - lsn_to_int(since)), kept, limit, notice)


def drop_slot(session: Session, name: str, *, timeout_s: float = FREE_TIMEOUT_S) -> None:
    """Drops the slot, ending our own walsender if it still reads it; fine if the slot is gone."""
    deadline = time.monotonic() + timeout_s
    while True:
        rows = query(session, "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (name,))
        if not rows:
            return
        if rows[0][0] is None and _try_drop(session, name):
            return
        query(
            session,
            "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a JOIN pg_replication_slots s "
            "ON s.active_pid = a.pid WHERE s.slot_name = %s AND a.application_name LIKE 'headwater%%' "
            "AND a.usename = current_user",
            (name,),
        )
        if time.monotonic() > deadline:
            raise SourceError(
                "source.slot_busy",
                f"another process reads the replication slot {name}",
                f"End it, then run: SELECT pg_drop_replication_slot({quote_literal(name)});",
                Retry.AUTO,
            )
        time.sleep(FREE_POLL_S)


def _try_drop(session: Session, name: str) -> bool:
    try:
        session.execute("SELECT pg_drop_replication_slot(%s)", (name,))
    except pg_errors.UndefinedObject:
        return True
    except pg_errors.ObjectInUse:
        return False
    except psycopg.Error as e:
        raise endpoint_of(session).translate(e) from e
    return True
