"""The progress of backfills, for all relations at once: summed by the database, so that many spans cost little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta.tables import notice, part, relation, run, span
from headwater.model import SpanState

UNKNOWN = -1
BATCH = 500  # ranges per query: SQLite accepts a few thousand values
READ = (SpanState.SCANNED, SpanState.COVERED, SpanState.SETTLED)
COVERED = (SpanState.COVERED, SpanState.SETTLED)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of one relation: its spans by state, the rows read by scans, and where its overlay begins."""

    counts: dict[SpanState, int] = field(default_factory=dict)
    rows: int = 0
    log_index: int | None = None  # None: no span is covered
    planned: bool = False
    rows_estimate: int = UNKNOWN  # of the upstream, when planning began

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def scanned(self) -> int:
        """Spans that have been read, covered or not."""
        return sum(self.counts.get(s, 0) for s in READ)

    @property
    def covered(self) -> int:
        return sum(self.counts.get(s, 0) for s in COVERED)

    @property
    def share(self) -> float:
        """The covered share of the relation, from 0 to 1; 1 only when it is complete.

        The span beyond the largest key is covered first and was seen empty, so it does not count.
        """
        if self.complete:
            return 1.0
        return max(0, self.covered - 1) / max(1, self.total - 1)

    @property
    def complete(self) -> bool:
        """Whether every span of the whole plan is covered."""
        return self.planned and self.covered == self.total


def of_all(c: Connection) -> dict[int, Progress]:
    """The progress of every relation, by its id; without the spans themselves."""
    counts: dict[int, dict[SpanState, int]] = {}
    rows: dict[int, int] = {}
    begins: dict[int, int] = {}
    summed = sa.select(
        span.c.relation_id,
        span.c.state,
        sa.func.sum(span.c.joined),
        sa.func.sum(span.c.rows),
        sa.func.min(span.c.log_index),
    ).group_by(span.c.relation_id, span.c.state)
    for id, state, n, read, log_index in c.execute(summed):
        counts.setdefault(id, {})[SpanState(state)] = int(n)
        rows[id] = rows.get(id, 0) + int(read)
        if SpanState(state) in COVERED and log_index is not None:
            begins[id] = min(begins.get(id, log_index), log_index)
    known = c.execute(sa.select(relation.c.id, relation.c.planned, relation.c.rows_estimate))
    return {
        id: Progress(counts.get(id, {}), rows.get(id, 0), begins.get(id), bool(planned), int(estimate))
        for id, planned, estimate in known
    }


@dataclass(frozen=True, slots=True)
class Range:
    """The changes of one upstream table in (after, upto]."""

    connection_id: int
    upstream_id: int
    after: int
    upto: int


def changes(c: Connection, ranges: Mapping[int, Range]) -> dict[int, int]:
    """About how many changes are in each range, like `segments.count_changes`; few queries for many ranges."""
    wanted = [(id, r.connection_id, r.upstream_id, r.after, r.upto) for id, r in ranges.items() if r.upto > r.after]
    found = dict.fromkeys(ranges, 0)
    for begin in range(0, len(wanted), BATCH):
        found |= {id: int(n) for id, n in c.execute(_counted(wanted[begin : begin + BATCH]))}
    return found


def _counted(wanted: list[tuple[int, int, int, int, int]]) -> sa.Select[int, int]:
    names = ("id", "connection_id", "upstream_id", "after", "upto")
    r = sa.values(*(sa.column(name, sa.BigInteger) for name in names), name="wanted").data(wanted).cte("wanted")
    first = sa.case((part.c.first_index > r.c.after, part.c.first_index), else_=r.c.after + 1)
    last = sa.case((part.c.last_index < r.c.upto, part.c.last_index), else_=r.c.upto)
    inside, whole = last - first + 1, part.c.last_index - part.c.first_index + 1
    share = (part.c.changes * inside + whole - 1) // whole
    inside_range = sa.and_(
        part.c.connection_id == r.c.connection_id,
        part.c.upstream_id == r.c.upstream_id,
        part.c.last_index > r.c.after,
        part.c.first_index <= r.c.upto,
    )
    return sa.select(r.c.id, sa.func.sum(share)).join(part, inside_range).group_by(r.c.id)


def notices(c: Connection, code: str | None = None) -> dict[int, int]:
    """The number of notices of each relation; of one kind, if its code is given."""
    q = sa.select(notice.c.relation_id, sa.func.sum(notice.c.count)).group_by(notice.c.relation_id)
    if code is not None:
        q = q.where(notice.c.code == code)
    return {id: int(n) for id, n in c.execute(q)}


def runs(c: Connection) -> dict[int, tuple[int, int]]:
    """The number of runs in each relation's overlay, and their bytes."""
    q = sa.select(run.c.relation_id, sa.func.count(), sa.func.sum(run.c.bytes)).where(run.c.retired_at.is_(None))
    return {id: (int(n), int(size)) for id, n, size in c.execute(q.group_by(run.c.relation_id))}
