"""Planning without a database: sizes, resuming, and bounds on what a bad estimate can do."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backfill.plan import Plan, spans
from headwater.backfill.span import WHOLE
from headwater.config import MAX_SPANS
from headwater.model import Bound, Span
from headwater.source.postgres.scan.extent import Extent


def extent(first: int | None, last: int | None, rows: int, size: int = 0) -> Extent:
    ends = [None if v is None else (str(v),) for v in (first, last)]
    return Extent(ends[0], ends[1], size, rows, "1:1:", "0/1", "life")


def keys_of(values: list[int]):  # type: ignore[no-untyped-def]
    def next_bound(after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        rest = [v for v in values if (after is None or v > int(after.key[0])) and v < int(upto.key[0])]
        return Bound((str(rest[rows - 1]),)) if len(rest) >= rows else None

    return next_bound


@settings(max_examples=60)
@given(st.sets(st.integers(-100, 100), max_size=40), st.integers(1, 20), st.integers(-1, 400), st.booleans())
def test_spans_are_neighbours_from_end_to_end(values: set[int], step: int, estimate: int, integer: bool) -> None:
    ordered = sorted(values)
    plan = Plan.of(
        extent(ordered[0] if ordered else None, ordered[-1] if ordered else None, estimate, size=1 << 40),
        ("BIGINT" if integer else "STRING",),
        span_rows=step,
    )
    planned = [*spans(plan, keys_of(ordered)), plan.beyond]
    assert planned[0].lo is None and planned[-1].hi is None
    assert all(a.hi == b.lo and a.hi is not None for a, b in pairwise(planned))
    if ordered:
        assert planned[-1].lo == Bound((str(ordered[-1]),))
        for span in planned[:-1]:
            assert span.hi is not None
            inside = [v for v in ordered if (span.lo is None or v > int(span.lo.key[0])) and v <= int(span.hi.key[0])]
            assert len(inside) <= plan.step + 1
    else:
        assert planned == [WHOLE]
    for i in range(0, len(planned) - 1, 7):
        again = [*planned[: i + 1], *spans(plan, keys_of(ordered), after=planned[i].hi, done=i + 1), plan.beyond]
        assert again == planned


@settings(max_examples=100)
@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 30), st.booleans(), st.integers(0, 2**32))
def test_keys_that_come_and_go_between_the_questions_leave_no_gap(
    values: set[int], step: int, dense: bool, seed: int
) -> None:
    """Whatever is in the table when a bound is asked for, spans are neighbours up to the end that was fixed first."""
    r = Random(seed)
    first, last = min(values), max(values)
    plan = Plan.of(
        extent(first, last, 10**6 if dense else -1), ("BIGINT",), span_rows=step, span_bytes=0, max_spans=10**7
    )
    now = set(values)

    def next_bound(after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        gone = {v for v in now if r.random() < 0.2}
        now.difference_update(gone)
        now.update(r.randrange(-50, 400) for _ in range(r.randrange(20)))
        return keys_of(sorted(now))(after, upto, rows)

    planned = [*islice(spans(plan, next_bound), 1000), plan.beyond]
    assert planned[0].lo is None and planned[-1] == Span(Bound((str(last),)), None)
    assert all(a.hi == b.lo and a.hi is not None for a, b in pairwise(planned))
    ends = [int(s.hi.key[0]) for s in planned[:-1] if s.hi is not None]
    assert ends == sorted(set(ends)) and ends[-1] == last


def test_short_rows_make_longer_spans_and_a_huge_table_no_more_than_the_limit() -> None:
    rows = 3_000_000
    assert Plan.of(extent(1, rows, rows, size=rows * 64), ("STRING",)).step == (64 << 20) // 64
    assert Plan.of(extent(1, rows, rows, size=rows * 10_000), ("STRING",)).step == 200_000
    assert Plan.of(extent(1, 10**11, 10**11, size=10**15), ("STRING",)).step >= 10**11 // MAX_SPANS
    assert Plan.of(extent(1, rows, -1, size=10**9), ("STRING",)).step == 200_000


def test_only_dense_integers_are_cut_by_arithmetic() -> None:
    assert Plan.of(extent(5, 1_000_004, 900_000), ("INT",)).dense_from == 5
    assert Plan.of(extent(5, 1_000_004, 100_000), ("INT",)).dense_from is None
    assert Plan.of(extent(5, 1_000_004, -1), ("INT",)).dense_from is None
    assert Plan.of(extent(5, 1_000_004, 900_000), ("STRING",)).dense_from is None


def test_an_estimate_that_is_far_too_low_does_not_give_endless_spans() -> None:
    """A table of 10^15 rows that nobody ever counted."""

    def next_bound(after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        end = (0 if after is None else int(after.key[0])) + rows
        return Bound((str(end),)) if end < int(upto.key[0]) else None

    plan = Plan.of(extent(1, 10**15, -1), ("BIGINT",))
    planned = list(islice(spans(plan, next_bound), 10 * MAX_SPANS))
    assert planned[-1].hi == plan.last
    assert len(planned) < 4 * MAX_SPANS


def test_the_open_end_is_what_the_first_transaction_saw() -> None:
    plan = Plan.of(extent(1, 9, 9), ("INT",))
    assert plan.beyond == Span(Bound(("9",)), None)
    assert (plan.beyond_result.saw, plan.beyond_result.high, plan.beyond_result.files) == ("1:1:", "0/1", ())
