"""Checks at every connect that the upstream still has everything after our position, or raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.errors import Retry, SourceError
from headwater.source.base import Standing
from headwater.source.postgres.client.ask import Session, query
from headwater.source.postgres.client.session import lsn_to_int, quote_literal

START_OVER = "Resync: DROP CONNECTION … CASCADE, then run its CREATE statements again."

STATE = """
SELECT pg_is_in_recovery(), current_setting('wal_level'),
       extract(epoch FROM pg_postmaster_start_time())::text, pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
SLOT = """
SELECT plugin::text, database::text, active_pid, wal_status::text, confirmed_flush_lsn::text
FROM pg_replication_slots WHERE slot_name = %s
"""
PUBLICATION = "SELECT oid::text FROM pg_publication WHERE pubname = %s"


@dataclass(frozen=True, slots=True)
class System:
    """What IDENTIFY_SYSTEM says."""

    identifier: str
    timeline: int
    flushed: str

    @classmethod
    def of(cls, replication: Session) -> System:
        ((identifier, timeline, flushed, _database),) = query(replication, "IDENTIFY_SYSTEM")
        return cls(str(identifier), int(timeline), str(flushed))


def check(
    session: Session, replication: Session, slot: str, publication: str, position: str, identity: dict[str, str]
) -> Standing:
    """The server that answers, after checking that START_REPLICATION after `position` leaves no gap."""
    system = System.of(replication)
    ((standby, wal_level, started, next_txn),) = query(session, STATE)
    if standby:
        raise SourceError(
            "source.standby",
            "the upstream is a standby now",
            "Point the connection at the primary server, or promote this one; Headwater retries.",
            Retry.AUTO,  # a server that is being promoted answers as a standby for a while
        )
    _check_server(system, replication, position, identity)
    if wal_level != "logical":
        raise SourceError(
            "source.wal_level",
            f"the upstream's wal_level is {wal_level}",
            "Set wal_level = logical in the upstream's postgresql.conf and restart it.",
        )
    _check_slot(query(session, SLOT, (slot,)), slot, position, session.info.dbname)
    oid = check_publication(query(session, PUBLICATION, (publication,)), publication, identity.get("publication"))
    return Standing(
        identity={
            **identity,
            "system_identifier": system.identifier,
            "timeline": str(system.timeline),
            "publication": oid,
        },
        life=f"{system.identifier}/{system.timeline}/{started}",
        next_txn=int(next_txn),
    )


def _check_server(system: System, replication: Session, position: str, identity: dict[str, str]) -> None:
    known = identity.get("system_identifier", system.identifier)
    if known != system.identifier:
        raise _replaced(f"its system identifier is {system.identifier}, ours is of {known}")
    if lsn_to_int(system.flushed) < lsn_to_int(position):
        raise _replaced(f"its log ends at {system.flushed}, before our position {position}")
    timeline = int(identity.get("timeline", system.timeline))
    if timeline == system.timeline:
        return
    history = ""
    if system.timeline > timeline:
        ((_name, content),) = query(replication, f"TIMELINE_HISTORY {system.timeline}")
        history = content.decode() if isinstance(content, bytes) else str(content)
    if not holds_timeline(history, timeline, position):
        raise _replaced(f"its timeline {system.timeline} left ours ({timeline}) before our position {position}")


def holds_timeline(history: str, timeline: int, position: str) -> bool:
    """Whether the server's history followed `timeline` at least up to `position`."""
    for line in history.splitlines():
        fields = line.split("\t")
        if len(fields) >= 2 and fields[0].strip() == str(timeline):
            return lsn_to_int(fields[1].strip()) >= lsn_to_int(position)
    return False


def _replaced(what: str) -> SourceError:
    return SourceError("source.replaced", f"another server answers at this address: {what}", START_OVER)


def _check_slot(rows: list[tuple[Any, ...]], slot: str, position: str, database: str) -> None:
    name = quote_literal(slot)
    if not rows:
        raise SourceError("source.slot_missing", f"the replication slot {name} is gone", START_OVER)
    plugin, of_database, active_pid, wal_status, confirmed = rows[0]
    if plugin != "pgoutput" or of_database != database:
        raise SourceError(
            "source.slot_missing",
            f"the replication slot {name} belongs to {plugin or 'a standby'} in "
            f"{of_database or 'no database'}, not to Headwater",
            START_OVER,
        )
    if wal_status == "lost":
        raise SourceError(
            "source.slot_lost",
            f"the upstream has discarded log that the replication slot {name} still needed",
            f"Raise max_slot_wal_keep_size. {START_OVER}",
        )
    if confirmed is not None and lsn_to_int(confirmed) > lsn_to_int(position):
        raise SourceError(
            "source.slot_moved",
            f"somebody advanced the replication slot {name} to {confirmed}; we have read up to {position}",
            START_OVER,
        )
    if active_pid is not None:
        raise slot_busy(slot, f"process {active_pid} of the upstream")


def check_publication(rows: list[tuple[Any, ...]], name: str, known: str | None) -> str:
    """The publication's oid.

    Since PostgreSQL 18 a missing publication is skipped with a warning that no client sees: changes written before it
    is re-created would be silently lost.
    """
    if not rows:
        raise SourceError("source.publication_missing", f"the publication {quote_literal(name)} is gone", START_OVER)
    oid = str(rows[0][0])
    if known is not None and oid != known:
        raise SourceError(
            "source.publication_missing",
            f"the publication {quote_literal(name)} was dropped and re-created; changes in between are not in the log",
            START_OVER,
        )
    return oid


def slot_busy(slot: str, who: str) -> SourceError:
    """The error for a slot that is being read; a walsender whose reader died goes away on its own."""
    return SourceError(
        "source.slot_busy",
        f"the replication slot {quote_literal(slot)} is being read by {who}",
        "Wait for it to end, or end it with pg_terminate_backend(pid); Headwater retries.",
        Retry.AUTO,
    )
