"""Merged segments in meta: which can be merged, the replacement, and the old files that stay for a while."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta.segments import insert, oldest
from headwater.meta.tables import connection, part, retired_segment, segment
from headwater.model import Segment


@dataclass(frozen=True, slots=True)
class Aged:
    """A segment as the plan of a merge sees it."""

    first_index: int
    last_index: int
    bytes: int
    created_at: float


def aged(c: Connection, connection_id: int, before: float) -> list[Aged]:
    """The segments published before a time that hold nothing of an open transaction, in index order."""
    committed = sa.select(connection.c.committed_index).where(connection.c.id == connection_id).scalar_subquery()
    q = (
        sa.select(segment.c.first_index, segment.c.last_index, segment.c.bytes, segment.c.created_at)
        .where(segment.c.connection_id == connection_id, segment.c.created_at < before)
        .where(segment.c.last_index <= committed)
        .order_by(segment.c.first_index)
    )
    return [Aged(*row) for row in c.execute(q)]


def replace(c: Connection, old: Sequence[Segment], new: Segment) -> bool:
    """Replaces segments with the one that contains them; their files are retired. False if they no longer exist.

    The caller has checked its fence. The new one is as old as the newest of them, so that nothing is removed too early.
    """
    inside = sa.and_(
        segment.c.connection_id == new.connection_id, segment.c.first_index.between(new.first_index, new.last_index)
    )
    found = c.execute(sa.select(segment.c.path, segment.c.created_at, oldest.label("oldest")).where(inside)).all()
    if {r.path for r in found} != {s.path for s in old}:
        return False
    c.execute(sa.delete(segment).where(inside))
    of = sa.and_(
        part.c.connection_id == new.connection_id, part.c.segment_index.between(new.first_index, new.last_index)
    )
    c.execute(sa.delete(part).where(of))
    insert(c, new)
    where = sa.and_(segment.c.connection_id == new.connection_id, segment.c.first_index == new.first_index)
    ages = {"created_at": max(r.created_at for r in found), "oldest_at": min(r.oldest for r in found)}
    c.execute(sa.update(segment).where(where).values(**ages))
    retired = {"connection_id": new.connection_id, "retired_at": time.time()}
    c.execute(sa.insert(retired_segment), [{**retired, "path": s.path} for s in old])
    return True


def paths(c: Connection, connection_id: int | None = None) -> set[str]:
    """The files of a connection's changelog (or of all), including those that a reader may be about to open."""
    found: set[str] = set()
    for table in (segment, retired_segment):
        q = sa.select(table.c.path)
        if connection_id is not None:
            q = q.where(table.c.connection_id == connection_id)
        found |= set(c.execute(q).scalars())
    return found


def remove_retired(c: Connection, before: float) -> list[str]:
    """Removes files that merged segments replaced before a time (no reader is older); returns them."""
    where = retired_segment.c.retired_at < before
    gone = list(c.execute(sa.select(retired_segment.c.path).where(where)).scalars())
    c.execute(sa.delete(retired_segment).where(where))
    return gone
