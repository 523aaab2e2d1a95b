"""Begin: the wait that gets every change to a newly published table into the log or into its first scan.

Publishing a table does not publish what a transaction did before and commits afterwards. So get a transaction id once
the table is published, wait until every transaction up to it has ended, including prepared ones, and only then plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.source.postgres.client.ask import Session, query

# In older releases a walsender could keep treating a table as unpublished (major version → first fixed release).
MENDED = {14: 140018, 15: 150013, 16: 160009, 17: 170005}


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transaction being waited for, without its contents. `name` is a process id, or a prepared one's name."""

    kind: str  # session | prepared | hidden (this user may not see whose it is)
    name: str
    user: str
    database: str
    application: str
    state: str
    age_s: float

    def __str__(self) -> str:
        if self.kind == "hidden":
            return "a transaction that this user may not see"
        if self.kind == "prepared":
            return f"prepared transaction {self.name} of {self.user} in {self.database}, {self.age_s:.0f} s old"
        program = f" ({self.application})" if self.application else ""
        since = f", {self.state}, {self.age_s:.0f} s old" if self.state else ""  # empty: not visible to this user
        return f"process {self.name} of {self.user}{program} in {self.database}{since}"


def begin_xid(session: Session) -> int:
    """A new transaction id, newer than everything done before; wait for it with `older_than`."""
    return int(query(session, "SELECT pg_current_xact_id()::text")[0][0])


def next_xid(session: Session) -> int:
    """The next 64-bit transaction id, without consuming one."""
    return int(query(session, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")[0][0])


def older_than(session: Session, xid: int) -> list[Waiting]:
    """The transactions up to `xid` that still run; empty means that the wait is over.

    Only the snapshot's xmin decides (a running transaction above its xmax is in no list); names are for display.
    """
    xmin = int(query(session, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text")[0][0])
    if xmin > xid:
        return []
    return _running(session, xid) or [Waiting("hidden", "", "", "", "", "", 0.0)]


def needs_second_alter(version_num: int) -> bool:
    """Whether the publication must be altered once more after the wait, because of a bug in old releases."""
    return version_num < MENDED.get(version_num // 10000, 0)


# 32-bit ids compare modulo 2^32: the difference as a signed number.
RUNNING = """
WITH limits AS (SELECT %s::bigint & 4294967295 AS xid)
SELECT 'session', a.pid::text, coalesce(a.usename::text, ''), coalesce(a.datname::text, ''), a.application_name,
       coalesce(a.state, ''), coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8
FROM pg_stat_activity a, limits l
WHERE a.backend_xid IS NOT NULL AND ((l.xid - a.backend_xid::text::bigint) & 4294967295) < 2147483648
UNION ALL
SELECT 'prepared', p.gid, p.owner::text, p.database::text, '', 'prepared',
       extract(epoch FROM clock_timestamp() - p.prepared)::float8
FROM pg_prepared_xacts p, limits l
WHERE ((l.xid - p.transaction::text::bigint) & 4294967295) < 2147483648
ORDER BY 7 DESC
"""


def _running(session: Session, xid: int) -> list[Waiting]:
    return [Waiting(*row) for row in query(session, RUNNING, (xid,))]
