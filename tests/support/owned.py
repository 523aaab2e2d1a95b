"""Owners for tests."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from headwater.ownership.lease import Lease, Leases, Owner, acquire
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit

HERE = "here"  # a run directory
PERMIT = Permit(Name.server(), 1)
LASTS_S = 3600.0  # nobody renews it: a busy machine must not let it expire


def acquired(c: Connection, what: Name | None = None, by: str = "me") -> Lease:
    """A lease that nobody else holds, on the server unless something else is named."""
    lease = acquire(c, what or Name.server(), Owner(HERE, by), lasts_s=LASTS_S)
    assert lease is not None
    return lease


def taken_over(c: Connection, what: Name | None = None, by: str = "another") -> Lease:
    """The lease of somebody who still believes in it."""
    lease = acquire(c, what or Name.server(), Owner(HERE, by), alone=True, lasts_s=LASTS_S)
    assert lease is not None
    return lease


def serving(c: Connection) -> Leases:
    """What a server holds."""
    return Leases(acquired(c))
