"""Leases: who owns something, and a fence number that tells each owner from the previous one.

A lease lasts `LEASE_S` seconds, and every write under it renews it. The database's clock decides when it has expired,
so machines need not agree on the time. The owner counts on a monotonic clock of its own, from before it asked: it stops
before anyone else can start.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.config import LEASE_S
from headwater.errors import FencedError, MachineError, Retry
from headwater.meta.tables import lease
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit
from headwater.ownership.under_way import UnderWay

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # on Linux the latter stops during suspend


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that can own something: its run directory, by name, and its host and pid."""

    run_directory: str
    process: str

    def __str__(self) -> str:
        return f"{self.run_directory} {self.process}"

    @classmethod
    def parse(cls, text: str) -> Owner:
        run_directory, _, process = text.rpartition(" ")
        return cls(run_directory, process)


@dataclass(slots=True)
class _Validity:
    """Until when, on this process's own clock, no one else can have the lease."""

    until: float
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Lease:
    """Proof of ownership, as acquired: pass it with every write."""

    name: Name
    owner: Owner
    fence: int
    _validity: _Validity = field(compare=False, repr=False)
    under_way: UnderWay = field(default_factory=UnderWay, compare=False, repr=False)

    @property
    def permit(self) -> Permit:
        """What a task needs to write files for this owner."""
        return Permit(self.name, self.fence)

    def renewed(self, asked_at: float) -> None:
        """Notes that meta renewed the lease, on a request made at `asked_at` of `clock()`."""
        self._validity.until = max(self._validity.until, asked_at + self._validity.lasts_s)

    def ensure(self) -> None:
        """Raises if another owner may have taken over. Call it before an action that meta cannot refuse."""
        over_s = clock() - self._validity.until
        if over_s >= 0:
            raise MachineError(
                "meta.unreachable",
                f"the lease on {self.name} could not be renewed and expired {over_s:.0f} s ago",
                "Wait; work resumes when meta renews it.",
                Retry.AUTO,
            )


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of a server. One server owns everything, so its own lease covers whatever it asks for.

    Callers ask per relation, so that a server could hold the leases of some relations only.
    """

    server: Lease

    def of(self, what: Name) -> Lease:
        """The lease to pass with a write about something."""
        return self.server


def acquire(c: Connection, what: Name, owner: Owner, *, alone: bool = False, lasts_s: float = LEASE_S) -> Lease | None:
    """The lease, with a new fence, if it is free, expired or already this owner's; None while someone else holds it.

    `alone`: the caller can prove that no other process of its run directory is alive (see rundir/lock.py), so it need
    not wait for the lease of an earlier one to expire.
    """
    asked_at = clock()
    living = (lease.c.expires_at > _now(c)).label("living")
    row = c.execute(sa.select(lease, living).where(lease.c.name == str(what))).first()
    fence = 1 if row is None else row.fence + 1
    values = {"owner": str(owner), "fence": fence, "expires_at": _now(c) + lasts_s}
    if row is None:
        c.execute(sa.insert(lease).values(name=str(what), **values))
    else:
        holder = Owner.parse(row.owner)
        if row.living and holder != owner and not (alone and holder.run_directory == owner.run_directory):
            return None
        c.execute(sa.update(lease).where(lease.c.name == str(what)).values(**values))
    return Lease(what, owner, fence, _Validity(asked_at + lasts_s, lasts_s))


def renew(c: Connection, owned: Lease) -> None:
    """Renews the lease, or raises FencedError if it has another owner. Call it in the transaction that it protects."""
    ours = sa.and_(lease.c.name == str(owned.name), lease.c.fence == owned.fence)
    if not c.execute(sa.update(lease).where(ours).values(expires_at=_now(c) + owned._validity.lasts_s)).rowcount:
        raise FencedError("job.fenced", f"{owned.name} has another owner now")


def release(c: Connection, owned: Lease) -> None:
    """Lets the next owner in immediately. The fence is raised, so late writes are still refused."""
    ours = sa.and_(lease.c.name == str(owned.name), lease.c.fence == owned.fence)
    c.execute(sa.update(lease).where(ours).values(expires_at=0.0, fence=owned.fence + 1))


def forget(c: Connection, what: Name) -> None:
    """Deletes the lease on something that no longer exists; its holder is fenced."""
    c.execute(sa.delete(lease).where(lease.c.name == str(what)))


def ever_acquired(c: Connection) -> bool:
    """Whether anything has ever had an owner."""
    return c.execute(sa.select(lease.c.name).limit(1)).first() is not None


def holder(c: Connection, what: Name) -> Owner | None:
    """The last owner of something; None if it never had one."""
    text = c.execute(sa.select(lease.c.owner).where(lease.c.name == str(what))).scalar()
    return None if text is None else Owner.parse(text)


def clock() -> float:
    """This process's own clock. It never goes back, and keeps counting while the process or machine is suspended."""
    return time.clock_gettime(_CLOCK)


def _now(c: Connection) -> sa.ColumnElement[float]:
    """The database's clock. SQLite has none, but all its users are on one machine and share that machine's clock."""
    if c.dialect.name == "sqlite":
        return sa.literal(time.time(), sa.Float)
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)
