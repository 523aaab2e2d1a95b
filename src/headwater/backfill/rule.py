"""The backfill rule: which changes count on top of what the scans read. Pure; values in, values out.

A change to key k counts iff k is in a covered span, the change comes after the span's `log_index`, and the scan of the
span did not see its transaction. A log position would only be a guess (a commit can be in the log before it is visible,
or the other way round); what a scan *saw* is exact.

If keys cannot be ordered outside the database, the layout is one span over everything with the `saw` of every scan:
a change counts iff at least one scan did not see it. A row's changes are seen in order, so what is applied a
second time is always the end of the row's history, and the result is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.backfill.span import NOWHERE, locate
from headwater.model import Column, CoveredSpan, Layout

# Sees(saw, txn[]) → for each transaction, whether the scan that recorded `saw` saw it.
Sees = Callable[[str, NDArray[np.int64]], NDArray[np.bool_]]


def counts(
    layout: Layout,
    key_columns: Sequence[Column],
    keys: pa.Table | None,
    index: NDArray[np.int64],
    txn: NDArray[np.int64],
    sees: Sees,
) -> NDArray[np.bool_]:
    """For each change, whether it counts. A key change is two changes, each judged under its own key.

    `keys` holds the changes' key columns. `None` means that they are TRUNCATEs: such a change affects every key, and
    counts here if it counts for at least one covered span (`truncated` says for which).
    """
    result = np.zeros(len(index), np.bool_)
    if keys is None:
        for covered in layout.spans:
            result |= _unseen(covered, index, txn, sees)
        return result
    if not layout.spans or not len(index):
        return result
    if layout.complete and len({(s.log_index, s.saw) for s in layout.spans}) == 1:
        return _unseen(layout.spans[0], index, txn, sees)  # the same result in every span, so none needs to be found
    place = locate([s.span for s in layout.spans], key_columns, keys)
    return _judge(layout.spans, place, index, txn, sees)


def truncated(layout: Layout, truncates: Sequence[tuple[int, int]], sees: Sees) -> NDArray[np.int64]:
    """For each covered span the highest index of a TRUNCATE (index, txn) that counts for it, or 0.

    Whatever a span held before that index is gone: its base rows, and its changes at or below it.
    """
    result = np.zeros(len(layout.spans), np.int64)
    if not truncates:
        return result
    index, txn = (np.array(column, np.int64) for column in zip(*truncates, strict=True))
    for i, covered in enumerate(layout.spans):
        counted = index[_unseen(covered, index, txn, sees)]
        result[i] = counted.max(initial=0)
    return result


def _judge(
    spans: Sequence[CoveredSpan],
    place: NDArray[np.int64],
    index: NDArray[np.int64],
    txn: NDArray[np.int64],
    sees: Sees,
) -> NDArray[np.bool_]:
    """The rule per span, each evaluated once for all of its changes."""
    result = np.zeros(len(index), np.bool_)
    order = np.argsort(place, kind="stable")
    ordinals, starts = np.unique(place[order], return_index=True)
    for ordinal, mine in zip(ordinals, np.split(order, starts[1:]), strict=True):
        if ordinal != NOWHERE:
            result[mine] = _unseen(spans[ordinal], index[mine], txn[mine], sees)
    return result


def _unseen(covered: CoveredSpan, index: NDArray[np.int64], txn: NDArray[np.int64], sees: Sees) -> NDArray[np.bool_]:
    later: NDArray[np.bool_] = index > covered.log_index
    if not covered.saw:
        return later
    # Several scans: each transaction is tested once, and only until one scan did not see it.
    transactions, which = np.unique(txn, return_inverse=True)
    unseen = np.zeros(len(transactions), np.bool_)
    for saw in set(covered.saw):
        seen_so_far = np.flatnonzero(~unseen)
        unseen[seen_so_far] = ~sees(saw, transactions[seen_so_far])
    return later & unseen[which]
