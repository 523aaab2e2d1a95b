"""Plans a table's spans into meta, a few at a time, so that scanning starts while planning continues."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from headwater import crash
from headwater.backfill.plan import Plan
from headwater.backfill.plan import spans as spans_of
from headwater.backfill.read_span import scan_table
from headwater.engine.commit import epoch
from headwater.engine.fill.scanner import record, wanted_rows
from headwater.engine.home import Home
from headwater.meta import connections, relations, spans
from headwater.meta.spans import PlannedTo
from headwater.model import RelationInfo, Span, SpanState
from headwater.ownership.lease import Lease
from headwater.settings.table import Settings
from headwater.source.connected import upstream_of
from headwater.source.spans import Extent, KeyWalk

FLUSH_S = 0.3  # spans are written in small batches, so that the first scans start immediately


def plan_relation(
    home: Home, lease: Lease, relation: RelationInfo, on_scanned: Callable[[], None], stopping: Callable[[], bool]
) -> bool:
    """Plans all spans of a relation into meta, resuming an earlier plan; returns whether the table is small."""
    with home.meta.read() as c:
        begun = spans.planned(c, relation.id)
        identity = connections.get(c, relation.table_origin.connection_id).identity
        life = connections.server_life(c, relation.table_origin.connection_id)
    upstream = upstream_of(home.meta, relation.table_origin.connection_id)
    table = scan_table(relation, identity)
    extent = upstream.reach.read_extent(table)
    plan = _plan(relation, extent, home.settings)
    with home.meta.owned(lease) as c:
        relations.set_rows_estimate(c, relation.id, extent.rows_estimate)
    if begun is not None:  # the end was fixed when planning began
        plan = dataclasses.replace(plan, last=begun.last, dense_from=None)
    else:
        begun = _fix_end(home, lease, relation, plan, life)
        crash.here("plan.half")
        on_scanned()
    with upstream.reach.walk(table) as walk:
        _write_spans(home, lease, relation, plan, walk, begun, stopping)
    return extent.bytes <= home.settings.small_bytes and not wanted_rows(relation, home.settings)[1]


def leave_rest(home: Home, lease: Lease, relation: RelationInfo, on_scanned: Callable[[], None]) -> None:
    """Marks everything unscanned as scanned and empty, so that only new changes fill the table.

    Except keys that must be scanned again: their rows are known to be in the table.
    """
    with home.meta.read() as c:
        identity = connections.get(c, relation.table_origin.connection_id).identity
        life = connections.server_life(c, relation.table_origin.connection_id)
    upstream = upstream_of(home.meta, relation.table_origin.connection_id)
    extent = upstream.reach.read_extent(scan_table(relation, identity))
    nothing = Plan.of(extent, ()).beyond_result
    with home.meta.owned(lease) as c:
        begun = spans.planned(c, relation.id)
        if begun is None:
            spans.add(c, relation.id, [Span(None, None)], spans.BEYOND)
        elif not relations.planned(c, relation.id) and begun.last is not None and begun.after != begun.last:
            spans.plan(c, relation.id, [Span(begun.after, begun.last)])
        for s in spans.all(c, relation.id):
            if s.state is SpanState.PENDING and not s.again:
                record(c, relation, s, nothing, life)
        relations.set_planned(c, relation.id, True)
    on_scanned()


def _plan(relation: RelationInfo, extent: Extent, settings: Settings) -> Plan:
    rows, chosen = wanted_rows(relation, settings)
    types = tuple(c.lake_type for c in relation.key_columns)
    # a number of rows that the user chose is respected, however short the rows are
    return Plan.of(extent, types, span_rows=rows, span_bytes=0 if chosen else settings.span_bytes)


def _fix_end(home: Home, lease: Lease, relation: RelationInfo, plan: Plan, life: str) -> PlannedTo:
    """Plans the span beyond the largest key first; it counts as scanned and empty."""
    with home.meta.owned(lease) as c:
        spans.add(c, relation.id, [plan.beyond], spans.BEYOND)
        (beyond,) = spans.all(c, relation.id)
        record(c, relation, beyond, plan.beyond_result, life)
    return PlannedTo(None, plan.last, 0)


def _write_spans(
    home: Home,
    lease: Lease,
    relation: RelationInfo,
    plan: Plan,
    walk: KeyWalk,
    begun: PlannedTo,
    stopping: Callable[[], bool],
) -> None:
    batch: list[Span] = []
    flushed_at = time.monotonic()
    for span in spans_of(plan, walk.next_bound, begun.after, begun.spans):
        batch.append(span)
        if time.monotonic() - flushed_at > FLUSH_S:
            with home.meta.owned(lease) as c:
                spans.plan(c, relation.id, batch)
            crash.here("plan.half")
            batch, flushed_at = [], time.monotonic()
            if stopping():
                return
    with home.meta.owned(lease) as c:
        spans.plan(c, relation.id, batch)
        relations.set_planned(c, relation.id, True)
        epoch.publish(c, [relation.id])  # every span may be covered already: an empty table has only one
