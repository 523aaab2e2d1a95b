"""How far backfills are, for all relations at once: summed by the database, so that many spans cost little."""

from __future__ import annotations

from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.meta.tables import notice, relation, run, span
from headwater.model import SpanState

UNKNOWN = -1
READ = (SpanState.SCANNED, SpanState.COVERED, SpanState.SETTLED)
COVERED = (SpanState.COVERED, SpanState.SETTLED)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one relation is: its spans by state, the rows that scans have read, and where its overlay begins."""

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
        """How much of the relation is covered, from 0 to 1; 1 only when it is complete.

        The span beyond the largest key is covered first and was seen empty, so it does not count.
        """
        if self.complete:
            return 1.0
        return max(0, self.covered - 1) / max(1, self.total - 1)

    @property
    def complete(self) -> bool:
        """Every span of the whole plan is covered."""
        return self.planned and self.covered == self.total


def of_all(c: Connection) -> dict[int, Progress]:
    """The progress of every relation, by its id; without the spans themselves."""
    counts: dict[int, dict[SpanState, int]] = {}
    rows: dict[int, int] = {}
    begins: dict[int, int] = {}
    summed = sa.select(
        span.c.relation_id, span.c.state, sa.func.count(), sa.func.sum(span.c.rows), sa.func.min(span.c.log_index)
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


def notices(c: Connection, code: str | None = None) -> dict[int, int]:
    """How often something was noted of each relation; of one kind, if its code is given."""
    q = sa.select(notice.c.relation_id, sa.func.sum(notice.c.count)).group_by(notice.c.relation_id)
    if code is not None:
        q = q.where(notice.c.code == code)
    return {id: int(n) for id, n in c.execute(q)}


def runs(c: Connection) -> dict[int, tuple[int, int]]:
    """How many runs each relation's overlay has, and their bytes."""
    q = sa.select(run.c.relation_id, sa.func.count(), sa.func.sum(run.c.bytes)).where(run.c.retired_at.is_(None))
    return {id: (int(n), int(size)) for id, n, size in c.execute(q.group_by(run.c.relation_id))}
