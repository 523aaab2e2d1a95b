"""Spans in meta: the plan of a backfill and the progress of each part of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater import stored
from headwater.meta.tables import span
from headwater.model import Bound, DataFile, ScanResult, Span, SpanInfo, SpanState

BEYOND = 1e9  # the ordinal of the span beyond the largest key; its parts are above, all other spans below
SPARSE = 1e6  # between renumbered ordinals
READABLE = (SpanState.COVERED, SpanState.SETTLED)
_UNREAD: dict[str, object] = {
    "state": SpanState.PENDING,
    "saw": None,
    "high": None,
    "log_index": None,
    "cover_index": None,
    "server_life": None,
    "files": None,
    "rows": 0,
    "joined": 1,
}


def add(c: Connection, relation_id: int, spans: Sequence[Span], first_ordinal: float) -> None:
    """Plans more spans, in key order, starting at `first_ordinal`."""
    if not spans:
        return
    common = {"relation_id": relation_id, "state": SpanState.PENDING, "again": 0, "rows": 0}
    bounds = (json.dumps(asdict(s)) for s in spans)
    c.execute(sa.insert(span), [{**common, "ordinal": first_ordinal + i, "bounds": b} for i, b in enumerate(bounds)])


def all(c: Connection, relation_id: int) -> list[SpanInfo]:
    """The spans of a relation in key order."""
    rows = c.execute(sa.select(span).where(span.c.relation_id == relation_id).order_by(span.c.ordinal))
    return [_info(r) for r in rows]


def readable(c: Connection, relation_id: int) -> list[SpanInfo]:
    """The covered and settled spans of a relation in key order."""
    q = sa.select(span).where(span.c.relation_id == relation_id, span.c.state.in_(READABLE)).order_by(span.c.ordinal)
    return [_info(r) for r in c.execute(q)]


def unread(c: Connection, relation_id: int) -> bool:
    """Whether any planned span of a relation is not readable yet."""
    q = sa.select(span.c.id).where(span.c.relation_id == relation_id, span.c.state.not_in(READABLE)).limit(1)
    return c.execute(q).first() is not None


def pending(c: Connection, relation_id: int, limit: int) -> list[SpanInfo]:
    q = (
        sa.select(span)
        .where(span.c.relation_id == relation_id, span.c.state == SpanState.PENDING)
        .order_by(span.c.ordinal)
        .limit(limit)
    )
    return [_info(r) for r in c.execute(q)]


def scanning(c: Connection, relation_id: int) -> list[int]:
    """The ids of the spans that are being read."""
    q = sa.select(span.c.id).where(span.c.relation_id == relation_id, span.c.state == SpanState.SCANNING)
    return list(c.execute(q).scalars())


def counts(c: Connection, relation_id: int) -> dict[SpanState, int]:
    """The number of planned spans in each state; merged ones count as the spans they were."""
    q = (
        sa.select(span.c.state, sa.func.sum(span.c.joined))
        .where(span.c.relation_id == relation_id)
        .group_by(span.c.state)
    )
    return {SpanState(state): int(n) for state, n in c.execute(q)}


def rows(c: Connection, relation_id: int) -> int:
    q = sa.select(sa.func.coalesce(sa.func.sum(span.c.rows), 0)).where(span.c.relation_id == relation_id)
    return int(c.execute(q).scalar_one())


@dataclass(frozen=True, slots=True)
class PlannedTo:
    """How far planning is: up to `after`, of a table whose largest key was `last` when it began (None: no row)."""

    after: Bound | None
    last: Bound | None
    spans: int


def planned(c: Connection, relation_id: int) -> PlannedTo | None:
    """The state of planning; None before its end was fixed. The part beyond the end may itself have been split."""
    own = sa.select(span.c.bounds).where(span.c.relation_id == relation_id)
    before = own.where(span.c.ordinal < BEYOND).order_by(span.c.ordinal.desc()).limit(1)
    beyond = own.where(span.c.ordinal >= BEYOND).order_by(span.c.ordinal).limit(1)
    last, first = c.execute(before).scalar(), c.execute(beyond).scalar()
    if last is None and first is None:
        return None
    after = None if last is None else parsed(last).hi
    count = sa.select(sa.func.coalesce(sa.func.sum(span.c.joined), 0)).where(
        span.c.relation_id == relation_id, span.c.ordinal < BEYOND
    )
    return PlannedTo(after, after if first is None else parsed(first).lo, int(c.execute(count).scalar_one()))


def plan(c: Connection, relation_id: int, more: Sequence[Span]) -> None:
    """Plans more spans, just before the one beyond the largest key (which is planned first)."""
    last = sa.select(sa.func.max(span.c.ordinal)).where(span.c.relation_id == relation_id, span.c.ordinal < BEYOND)
    before = c.execute(last).scalar()
    first = 0.0 if before is None else before + 1
    assert first + len(more) <= BEYOND, "the span beyond the largest key stays the last one"
    add(c, relation_id, more, first)


def set_state(c: Connection, id: int, state: SpanState) -> None:
    c.execute(sa.update(span).where(span.c.id == id).values(state=state))


def scanned(c: Connection, id: int, result: ScanResult, log_index: int, server_life: str) -> None:
    """Records the one value of a scan; its files enter the base when the span is covered.

    A scan that stopped early leaves its rest as a new pending span.
    """
    row = c.execute(sa.select(span).where(span.c.id == id)).one()
    whole = parsed(row.bounds)
    done = whole
    if result.stopped_at is not None:
        done = Span(whole.lo, result.stopped_at)
        ordinal = _ordinal_after(c, row.relation_id, id)
        add(c, row.relation_id, [Span(result.stopped_at, whole.hi)], ordinal)
    c.execute(
        sa.update(span)
        .where(span.c.id == id)
        .values(
            bounds=json.dumps(asdict(done)),
            state=SpanState.SCANNED,
            saw=result.saw,
            high=result.high,
            log_index=log_index,
            server_life=server_life,
            files=json.dumps([asdict(f) for f in result.files]),
            rows=result.rows,
        )
    )


@dataclass(frozen=True, slots=True)
class Scanned:
    """A scanned span that waits for the log to pass `high`, then for its files to enter the base."""

    id: int
    span: Span
    high: str
    server_life: str
    files: tuple[DataFile, ...]
    again: bool


def uncovered(c: Connection, relation_id: int) -> list[Scanned]:
    """Scanned spans that no epoch has covered yet, in key order."""
    rows = c.execute(
        sa.select(span)
        .where(span.c.relation_id == relation_id, span.c.state == SpanState.SCANNED)
        .order_by(span.c.ordinal)
    )
    return [
        Scanned(
            id=r.id,
            span=parsed(r.bounds),
            high=r.high,
            server_life=r.server_life or "",
            files=tuple(DataFile(**f) for f in json.loads(r.files or "[]")),
            again=bool(r.again),
        )
        for r in rows
    ]


def relations_waiting(c: Connection) -> list[int]:
    """Relations that have a scanned but uncovered span."""
    q = sa.select(span.c.relation_id).where(span.c.state == SpanState.SCANNED).distinct()
    return list(c.execute(q).scalars())


def cover(c: Connection, id: int, cover_index: int) -> None:
    c.execute(
        sa.update(span).where(span.c.id == id).values(state=SpanState.COVERED, cover_index=cover_index, files=None)
    )


def count_no_rows(c: Connection, ids: Sequence[int]) -> None:
    """Records that what these spans have read is counted in another one."""
    c.execute(sa.update(span).where(span.c.id.in_(list(ids))).values(rows=0))


def back_to_pending(c: Connection, id: int) -> None:
    """Sends a span back to be read again: its scan cannot be trusted, or did not end."""
    c.execute(sa.update(span).where(span.c.id == id).values(**_UNREAD))


def give_up(c: Connection, id: int) -> bool:
    """Lets a span whose scan failed be read again; False if it was recorded although its response was an error."""
    where = sa.and_(span.c.id == id, span.c.state == SpanState.SCANNING)
    return bool(c.execute(sa.update(span).where(where).values(**_UNREAD)).rowcount)


def punch(c: Connection, id: int, hole: Span) -> None:
    """Removes a part from a covered span to scan it again; the rest stays as it is.

    The part is a new span even if it is the whole: files are named after their span's id, and older versions of the
    base still show those of the earlier scan.
    """
    row = c.execute(sa.select(span).where(span.c.id == id)).one()
    whole = parsed(row.bounds)
    if hole.hi != whole.hi:
        _copy(c, row, Span(hole.hi, whole.hi), _ordinal_after(c, row.relation_id, id))
    if hole.lo != whole.lo:
        again = _copy(c, row, hole, _ordinal_after(c, row.relation_id, id))
        _set_bounds(c, id, Span(whole.lo, hole.lo))
    else:
        ordinal, _ = _own_and_following(c, row.relation_id, id)
        c.execute(sa.delete(span).where(span.c.id == id))
        again = _copy(c, row, hole, ordinal)
    c.execute(sa.update(span).where(span.c.id == again).values(**_UNREAD, again=1))


def remove_all(c: Connection, relation_id: int) -> None:
    """Forgets the plan of a relation, of which nothing has been covered."""
    c.execute(sa.delete(span).where(span.c.relation_id == relation_id))


def read_all_again(c: Connection, relation_id: int) -> None:
    """Schedules the whole table to be scanned again, as one span; the base's rows are removed when that is covered."""
    c.execute(sa.delete(span).where(span.c.relation_id == relation_id))
    add(c, relation_id, [Span(None, None)], BEYOND)
    c.execute(sa.update(span).where(span.c.relation_id == relation_id).values(again=1))


def forget_again(c: Connection, relation_id: int) -> None:
    """Records that the base no longer holds anything from earlier scans."""
    c.execute(sa.update(span).where(span.c.relation_id == relation_id).values(again=0))


def _copy(c: Connection, row: Row[tuple[object, ...]], bounds: Span, ordinal: float) -> int:
    values = {k: v for k, v in row._mapping.items() if k != "id"}
    new = {**values, "bounds": json.dumps(asdict(bounds)), "ordinal": ordinal, "rows": 0, "joined": 1}
    result = c.execute(sa.insert(span).values(new))
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def _set_bounds(c: Connection, id: int, bounds: Span) -> None:
    c.execute(sa.update(span).where(span.c.id == id).values(bounds=json.dumps(asdict(bounds))))


def _ordinal_after(c: Connection, relation_id: int, id: int) -> float:
    """A free ordinal between a span and the next one."""
    own, following = _own_and_following(c, relation_id, id)
    if own + 1 < following:
        return own + 1
    if own < (own + following) / 2 < following:
        return (own + following) / 2
    _renumber(c, relation_id, beyond=own >= BEYOND)
    own, _ = _own_and_following(c, relation_id, id)
    return own + 1


def _renumber(c: Connection, relation_id: int, *, beyond: bool) -> None:
    """Renumbers spans, far apart, after too many halvings. None of the new ordinals is in use until now."""
    side = span.c.ordinal >= BEYOND if beyond else span.c.ordinal < BEYOND
    q = sa.select(span.c.id, span.c.ordinal).where(span.c.relation_id == relation_id, side).order_by(span.c.ordinal)
    found = c.execute(q).all()
    first = found[-1].ordinal + SPARSE if beyond else found[0].ordinal - (len(found) + 1) * SPARSE
    numbered = [{"counted": r.id, "place": first + i * SPARSE} for i, r in enumerate(found)]
    renumber = sa.update(span).where(span.c.id == sa.bindparam("counted")).values(ordinal=sa.bindparam("place"))
    c.execute(renumber, numbered)


def _own_and_following(c: Connection, relation_id: int, id: int) -> tuple[float, float]:
    own = c.execute(sa.select(span.c.ordinal).where(span.c.id == id)).scalar_one()
    following = c.execute(
        sa.select(sa.func.min(span.c.ordinal)).where(span.c.relation_id == relation_id, span.c.ordinal > own)
    ).scalar()
    return own, own + 2 if following is None else following


@lru_cache(maxsize=1 << 15)
def parsed(bounds: str) -> Span:
    """The span that a row names."""
    return stored.span(json.loads(bounds))


def _info(r: Row[tuple[object, ...]]) -> SpanInfo:
    return SpanInfo(
        r.id,
        r.relation_id,
        parsed(r.bounds),
        SpanState(r.state),
        r.saw,
        r.high,
        r.log_index,
        r.cover_index,
        r.rows,
        bool(r.again),
    )
