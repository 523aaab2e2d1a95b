"""Planning: where the spans of a table end. Pure; the database answers through one function, `NextBound`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.config import MAX_SPANS
from headwater.model import Bound, ScanResult, Span
from headwater.settings.table import DEFAULTS
from headwater.source.spans import Extent

INTEGERS = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT"})
DENSE = 0.5  # an integer key that uses at least this share of its range is divided by arithmetic

# (after, upto, rows) → the key `rows` rows after `after` if it is before `upto`, otherwise None.
NextBound = Callable[[Bound | None, Bound, int], Bound | None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a table is divided: spans of `step` rows up to `last`, and a span beyond it, empty when planning began.

    Planning may take long and continues while spans are scanned, so the end is fixed first: whatever is added beyond
    `last` is in the log, and no span can grow while it waits.
    """

    last: Bound | None
    step: int
    dense_from: int | None  # the first key, if bounds come from arithmetic
    beyond: Span
    beyond_result: ScanResult

    @classmethod
    def of(
        cls,
        extent: Extent,
        key_types: tuple[str, ...],
        *,
        span_rows: int = DEFAULTS.rows_per_span,
        span_bytes: int = DEFAULTS.span_bytes,
        max_spans: int = MAX_SPANS,
    ) -> Plan:
        """The plan for a table of this extent whose key columns have these lake types."""
        last = None if extent.last is None else Bound(extent.last, after=True)
        step = rows_per_span(extent, span_rows, span_bytes, max_spans)
        nothing = ScanResult(saw=extent.saw, high=extent.high, files=(), rows=0, server_life=extent.server_life)
        return cls(last, step, _dense_from(extent, key_types), Span(last, None), nothing)


def rows_per_span(extent: Extent, span_rows: int, span_bytes: int, max_spans: int) -> int:
    """At least `span_rows`, about `span_bytes` if rows are short, and never more than `max_spans` of them."""
    if extent.rows_estimate <= 0:
        return span_rows
    by_size = span_bytes * extent.rows_estimate // max(extent.bytes, 1)
    by_count = -(-extent.rows_estimate // max(max_spans - 1, 1))
    return max(span_rows, by_size, by_count)


def spans(plan: Plan, next_bound: NextBound, after: Bound | None = None, done: int = 0) -> Iterator[Span]:
    """The spans up to the plan's last key, in key order, each as soon as its end is known.

    To resume, pass the end of the last planned span as `after` and the number of spans planned so far as `done`.
    """
    if plan.last is None or after == plan.last:
        return
    find = arithmetic(plan) if plan.dense_from is not None else next_bound
    while True:
        # The estimate may be far too low; longer steps bound the number of spans whatever the truth is.
        longer = max(0, (done - MAX_SPANS) * 8 // MAX_SPANS + 1)
        end = find(after, plan.last, plan.step << longer)
        if end is None:
            yield Span(after, plan.last)
            return
        yield Span(after, end)
        after, done = end, done + 1


def arithmetic(plan: Plan) -> NextBound:
    """Bounds in even steps. An integer key is unique, so a step of n holds at most n rows."""
    assert plan.dense_from is not None
    first = plan.dense_from

    def find(after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        end = (first - 1 if after is None else int(after.key[0])) + rows
        return Bound((str(end),), after=True) if end < int(upto.key[0]) else None

    return find


def _dense_from(extent: Extent, key_types: tuple[str, ...]) -> int | None:
    if len(key_types) != 1 or key_types[0] not in INTEGERS or extent.first is None or extent.last is None:
        return None
    first, width = int(extent.first[0]), int(extent.last[0]) - int(extent.first[0]) + 1
    return first if extent.rows_estimate >= width * DENSE else None
