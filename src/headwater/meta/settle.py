"""Settling in meta: spans that hold everything up to an index, and merging them, so that meta stays small."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.meta.spans import READABLE, parsed
from headwater.meta.tables import span
from headwater.model import Span, SpanState


def move(c: Connection, relation_id: int, ids: Sequence[int], log_index: int) -> None:
    """After a fold: the named covered spans hold everything up to `log_index`; those past their cover are settled.

    A span that already holds more stays unchanged.
    """
    if not ids:
        return
    named = sa.and_(
        span.c.relation_id == relation_id, span.c.id == sa.bindparam("moved"), span.c.log_index <= log_index
    )
    moved = [{"moved": id} for id in ids]
    c.execute(sa.update(span).where(named).values(log_index=log_index), moved)
    past = sa.and_(named, span.c.cover_index <= log_index, span.c.state == SpanState.COVERED)
    c.execute(sa.update(span).where(past).values(state=SpanState.SETTLED, saw=None), moved)


def quiet(c: Connection, relation_id: int, last_change: int, index: int) -> None:
    """Settles, as of `index`, the covered spans without changes: none of the table came after their log begins.

    `last_change` is the table's last one up to `index`, which is at or past every cover. Such a span is what a fold
    would leave, without one. Only if keys can be ordered: otherwise spans are judged together, until all of them
    settle.
    """
    still = sa.and_(span.c.relation_id == relation_id, span.c.state.in_(READABLE), span.c.log_index >= last_change)
    c.execute(sa.update(span).where(still).values(state=SpanState.SETTLED, saw=None, log_index=index))


def join(c: Connection, relation_id: int) -> int:
    """Merges settled neighbours with the same log index, so that meta stays small; returns how many were removed."""
    q = sa.select(span).where(span.c.relation_id == relation_id, span.c.state == SpanState.SETTLED)
    found = c.execute(q.order_by(span.c.ordinal)).all()
    groups: list[list[Row[tuple[object, ...]]]] = []
    for row in found:
        before = groups[-1][-1] if groups else None
        if before is not None and before.log_index == row.log_index and parsed(before.bounds).meets(parsed(row.bounds)):
            groups[-1].append(row)
        else:
            groups.append([row])
    several = [g for g in groups if len(g) > 1]
    _remove(c, (r.id for g in several for r in g[1:]))
    for group in several:
        c.execute(sa.update(span).where(span.c.id == group[0].id).values(**_joined(group)))
    return len(found) - len(groups)


def _joined(group: Sequence[Row[tuple[object, ...]]]) -> dict[str, object]:
    """The values of one span that replaces a group."""
    return {
        "bounds": json.dumps(asdict(Span(parsed(group[0].bounds).lo, parsed(group[-1].bounds).hi))),
        "rows": sum(r.rows for r in group),
        "joined": sum(r.joined for r in group),
        "cover_index": max(r.cover_index for r in group),
        "again": max(r.again for r in group),
    }


def _remove(c: Connection, ids: Iterable[int]) -> None:
    gone = [{"gone": id} for id in ids]
    if gone:
        c.execute(sa.delete(span).where(span.c.id == sa.bindparam("gone")), gone)
