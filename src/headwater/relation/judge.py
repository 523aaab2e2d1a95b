"""The backfill rule applied to decoded changes: which halves count, and which spans a TRUNCATE has emptied."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater.backfill import rule
from headwater.backfill.rule import Sees
from headwater.backfill.span import locate
from headwater.model import Delivery, Layout, Op, RelationInfo
from headwater.relation.net import Judgement
from headwater.source.names import INDEX, OLD, OP, TXN

Ints = NDArray[np.int64]


def judge(relation: RelationInfo, layout: Layout, changes: pa.Table, sees: Sees) -> Judgement | None:
    """Which halves of the changes count under the layout; None when all do."""
    if settled(relation, layout) or not changes.num_rows:
        return None
    n = changes.num_rows
    rows = np.flatnonzero(_numpy(changes[OP]) != Op.TRUNCATE)
    keys = changes.select(list(relation.key)).take(pa.array(rows))
    counts, covered = np.zeros(n, np.bool_), np.ones(n, np.bool_)
    counts[rows] = _counts(relation, layout, changes, rows, keys, sees)
    if not layout.complete:
        covered[rows] = locate([s.span for s in layout.spans], relation.key_columns, keys) >= 0
    moved = np.flatnonzero(_numpy(pc.is_valid(changes[OLD])))
    counts_old = np.zeros(n, np.bool_)
    if len(moved):
        old = pa.table(
            [pc.struct_field(changes[OLD], [i]).take(pa.array(moved)) for i in range(len(relation.key))],
            names=list(relation.key),
        )
        counts_old[moved] = _counts(relation, layout, changes, moved, old, sees)
    return Judgement(counts, counts_old, counts_old & ~_maybe_seen(relation, layout, changes, sees), covered)


def settled(relation: RelationInfo, layout: Layout) -> bool:
    """Whether every change counts and none is in the base, so that netted changes can outlive the layout's reader.

    With at-least-once delivery it is unknown what scans saw: the base may hold changes up to the covering index.
    """
    exact = relation.delivery is Delivery.EXACTLY_ONCE
    return layout.settled and (exact or all(s.log_index >= s.cover_index for s in layout.spans))


def after_truncate(relation: RelationInfo, layout: Layout, overlay: pa.Table, emptied: Ints) -> pa.Table:
    """The overlay without rows that a later TRUNCATE of their span removed."""
    if not overlay.num_rows or not emptied.any():
        return overlay
    if layout.complete and (emptied == emptied[0]).all():
        limit: Ints = np.full(overlay.num_rows, emptied[0])
    else:
        place = locate([s.span for s in layout.spans], relation.key_columns, overlay.select(list(relation.key)))
        limit = np.where(place >= 0, emptied[place], 0)
    return overlay.filter(pa.array(_numpy(overlay[INDEX]) > limit))


def _counts(
    relation: RelationInfo, layout: Layout, changes: pa.Table, rows: Ints, keys: pa.Table, sees: Sees
) -> NDArray[np.bool_]:
    index, txn = (_numpy(changes[name])[rows] for name in (INDEX, TXN))
    return rule.counts(layout, relation.key_columns, keys, index, txn, sees)


def _maybe_seen(relation: RelationInfo, layout: Layout, changes: pa.Table, sees: Sees) -> NDArray[np.bool_]:
    """Changes that count although a scan may have seen them: the base row of the old key may already be a new one.

    This happens where keys cannot be located (any of several scans may have read the key), and with at-least-once
    delivery.
    """
    seen = np.zeros(changes.num_rows, np.bool_)
    if relation.delivery is Delivery.AT_LEAST_ONCE:
        seen |= _numpy(changes[INDEX]) <= max((s.cover_index for s in layout.spans), default=0)
    several = {saw for span in layout.spans if len(span.saw) > 1 for saw in span.saw}
    for saw in several:
        seen |= sees(saw, _numpy(changes[TXN]))
    return seen


def _numpy(values: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(values.to_numpy())
