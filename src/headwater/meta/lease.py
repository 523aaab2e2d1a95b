"""Owners of jobs: a lease says who, a fence number says since when; a write with an old fence is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.config import LEASE_S
from headwater.errors import FencedError
from headwater.meta.tables import lease


@dataclass(frozen=True, slots=True)
class Lease:
    """A job's ownership as taken: show it with every write of that job."""

    name: str
    owner: str
    fence: int


def take(c: Connection, name: str, owner: str, *, force: bool = False, now: float | None = None) -> Lease | None:
    """The lease, with a new fence, if it is free, expired or already this owner's; None while another holds it.

    `force` takes it from a living owner: for a server that knows (by the home's lock) that the other one is gone.
    """
    now = time.time() if now is None else now
    row = c.execute(sa.select(lease).where(lease.c.name == name)).first()
    if row is None:
        c.execute(sa.insert(lease).values(name=name, owner=owner, fence=1, expires_at=now + LEASE_S))
        return Lease(name, owner, 1)
    if row.owner != owner and row.expires_at > now and not force:
        return None
    fence = row.fence + 1
    c.execute(sa.update(lease).where(lease.c.name == name).values(owner=owner, fence=fence, expires_at=now + LEASE_S))
    return Lease(name, owner, fence)


def check(c: Connection, held: Lease, *, renew: bool = True, now: float | None = None) -> None:
    """Raises FencedError unless the lease is still ours; call inside the transaction whose write it protects."""
    row = c.execute(sa.select(lease.c.fence).where(lease.c.name == held.name)).first()
    if row is None or row.fence != held.fence:
        raise FencedError("job.fenced", f"{held.name} has another owner now")
    if renew:
        now = time.time() if now is None else now
        c.execute(sa.update(lease).where(lease.c.name == held.name).values(expires_at=now + LEASE_S))


def release(c: Connection, held: Lease) -> None:
    """Lets the next owner in at once; the fence stays, so that late writes are still refused."""
    c.execute(
        sa.update(lease)
        .where(lease.c.name == held.name, lease.c.fence == held.fence)
        .values(expires_at=0.0, fence=held.fence + 1)
    )
