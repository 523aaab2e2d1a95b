"""Which lake this meta describes."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta.tables import home


def known(c: Connection) -> str | None:
    """The id of the lake; None until a server has run."""
    found: str | None = c.execute(sa.select(home.c.lake)).scalar()
    return found


def describe(c: Connection, id: str | None) -> str | None:
    """Records the lake's id, unless another server was first; returns the recorded one."""
    c.execute(sa.update(home).where(home.c.lake.is_(None)).values(lake=id))
    return known(c)
