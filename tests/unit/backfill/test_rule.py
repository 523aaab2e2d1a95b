"""The backfill rule against a model of a database: a covered span plus what counts is the database at that cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.backfill.rule import counts, truncated
from headwater.backfill.span import WHOLE
from headwater.model import Bound, Column, CoveredSpan, Layout, Span, UpstreamType
from headwater.source.mysql.upstream import MysqlUpstream
from headwater.source.postgres.scan.snapshot import sees
from support.history import STEPS, Change, Key, Model, Scan, key_table, read, run
from support.history_mysql import PlacedModel

INT = (Column("id", "INT", UpstreamType("int4", 23, ordered=True), False),)
PAIR = (
    Column("a", "BIGINT", UpstreamType("int8", 20, ordered=True), False),
    Column("b", "STRING", UpstreamType("text", 25, ordered=True), False),
)
KEYS: dict[int, list[Key]] = {
    1: [(i,) for i in range(8)],
    2: [(a, b) for a in (-1, 0, 10) for b in ("", "a", "é")],
}
COLUMNS = {1: INT, 2: PAIR}


@dataclass(frozen=True)
class Numbering:
    """How a kind of database numbers transactions, and how its scans say what they saw."""

    name: str
    model: type[Model]
    sees: Callable[[str, Any], Any]
    firsts: tuple[int, ...]  # numbers to begin with


NUMBERINGS = [
    Numbering("snapshots", Model, sees, (5, 2**32 - 3, 2**45)),
    Numbering("places", PlacedModel, MysqlUpstream.sees, (1,)),
]
BY_NUMBERING = pytest.mark.parametrize("numbering", NUMBERINGS, ids=lambda n: n.name)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def exact_log_start(model: Model, scan: Scan, epoch: int, sees: Callable[[str, Any], Any]) -> int:
    """The index before the first commit, up to an epoch, that the scan did not see."""
    for first, last in zip(model.first_index[:epoch], model.commits[:epoch], strict=True):
        txn = next(c.txn for c in model.log if c.index == last)
        if not sees(scan.saw, np.array([txn]))[0]:
            return first - 1
    return model.index_at(epoch)


def layout_at(
    model: Model, spans: list[Span], epoch: int, fold: int | None, lazy: bool, sees: Callable[[str, Any], Any] = sees
) -> Layout:
    """The covered spans at an epoch, those folded at an earlier epoch settled there."""
    covered = []
    for i, span in enumerate(spans):
        scan = model.scans[i]
        if scan.high > epoch:
            continue
        cover = model.index_at(scan.high)
        if fold is not None and scan.high <= fold:
            covered.append(CoveredSpan(span, model.index_at(fold), cover))
        else:
            start = 0 if lazy else exact_log_start(model, scan, scan.high, sees)
            covered.append(CoveredSpan(span, start, cover, (scan.saw,)))
    return Layout(1, 0, tuple(covered), len(covered) == len(spans))


def drawn(data: st.DataObject, numbering: Numbering) -> tuple[Model, list[Span], tuple[Column, ...]]:
    """A history with scans of every span in it, the spans, and the columns of its key."""
    arity = data.draw(st.sampled_from([1, 2]))
    keys, columns = KEYS[arity], COLUMNS[arity]
    cuts = sorted(data.draw(st.sets(st.tuples(st.sampled_from(range(len(keys))), st.booleans()), max_size=4)))
    bounds = [Bound(tuple(str(part) for part in keys[i]), after) for i, after in cuts]
    ends = [None, *bounds, None]
    spans = [Span(lo, hi) for lo, hi in pairwise(ends)]
    place = {k: sum(i < j or (i == j and not after) for i, after in cuts) for j, k in enumerate(keys)}
    rows = data.draw(st.dictionaries(st.sampled_from(keys), st.integers(100, 109), max_size=len(keys)))
    model = numbering.model(keys, place, data.draw(st.sampled_from(numbering.firsts)), rows)
    if isinstance(model, PlacedModel):
        model.late = Random(data.draw(st.integers(0, 2**32)))
    run(model, data.draw(STEPS), spans)
    return model, spans, columns


@BY_NUMBERING
@settings(max_examples=300, suppress_health_check=SLOW)
@given(data=st.data(), fold=st.integers(0, 20), lazy=st.booleans())
def test_covered_spans_and_what_counts_are_the_database_at_every_cut(
    numbering: Numbering, data: st.DataObject, fold: int, lazy: bool
) -> None:
    model, spans, columns = drawn(data, numbering)
    sees = numbering.sees
    base = {k: v for scan in model.scans.values() for k, v in scan.rows.items()}
    for epoch in range(len(model.commits) + 1):
        log = [c for c in model.log if c.index <= model.index_at(epoch)]
        layout = layout_at(model, spans, epoch, None, lazy, sees)
        if fold < epoch:  # what the fold wrote replaces the base rows of the spans that it covered
            before = layout_at(model, spans, fold, None, lazy, sees)
            folded = read(before, columns, base, [c for c in log if c.index <= model.index_at(fold)], sees=sees)
            done = {i for i, scan in model.scans.items() if scan.high <= fold}
            base_now = {k: v for k, v in base.items() if model.place[k] not in done} | folded
            layout = layout_at(model, spans, epoch, fold, lazy, sees)
        else:
            base_now = base
        visible = {i for i, scan in model.scans.items() if scan.high <= epoch}
        expected = {k: v for k, v in model.state_at(epoch).items() if model.place[k] in visible}
        assert read(layout, columns, base_now, log, sees=sees) == expected


@BY_NUMBERING
@settings(max_examples=150, suppress_health_check=SLOW)
@given(data=st.data(), again=st.booleans())
def test_keys_without_an_order_are_exact_from_the_last_cover_on(
    numbering: Numbering, data: st.DataObject, again: bool
) -> None:
    """One span over everything: a change counts iff one scan did not see it, or (at least once) counts anyway."""
    model, _, columns = drawn(data, numbering)
    sees = numbering.sees
    base = {k: v for scan in model.scans.values() for k, v in scan.rows.items()}
    high = max(scan.high for scan in model.scans.values())
    start = min(exact_log_start(model, scan, scan.high, sees) for scan in model.scans.values())
    saw = () if again else tuple(scan.saw for scan in model.scans.values())
    layout = Layout(1, 0, (CoveredSpan(WHOLE, start, model.index_at(high), saw),), True)
    for epoch in range(high, len(model.commits) + 1):
        log = [c for c in model.log if c.index <= model.index_at(epoch)]
        assert read(layout, columns, base, log, sees=sees) == model.state_at(epoch)


@BY_NUMBERING
@settings(max_examples=150, suppress_health_check=SLOW)
@given(data=st.data(), at=st.integers(0, 20))
def test_a_span_whose_log_holds_nothing_settles_without_a_fold(
    numbering: Numbering, data: st.DataObject, at: int
) -> None:
    """What `meta.settle.quiet` does: from then on every change of the span counts, and what its scan saw is nothing."""
    model, spans, columns = drawn(data, numbering)
    sees = numbering.sees
    base = {k: v for scan in model.scans.values() for k, v in scan.rows.items()}
    index = model.index_at(min(at, len(model.commits)))
    last_change = max((c.index for c in model.log if c.index <= index), default=0)
    quiet = {s.span for s in layout_at(model, spans, at, None, False, sees).spans if s.log_index >= last_change}
    for epoch in range(at, len(model.commits) + 1):
        layout = layout_at(model, spans, epoch, None, False, sees)
        settled = [CoveredSpan(s.span, index, s.cover_index) if s.span in quiet else s for s in layout.spans]
        log = [c for c in model.log if c.index <= model.index_at(epoch)]
        found = read(replace(layout, spans=tuple(settled)), columns, base, log, sees=sees)
        assert found == read(layout, columns, base, log, sees=sees)


def hazard_1() -> Model:
    """A commit that is in the log before the scan, and visible only after it."""
    model = Model(KEYS[1], dict.fromkeys(KEYS[1], 0), 100, {(3,): 7})
    model.begin()
    model.write(0, (3,), (3,), 8)
    model.commit_record(0)
    model.scan(0)
    model.end(0)
    return model


def test_a_commit_that_was_in_the_log_but_invisible_counts() -> None:
    model = hazard_1()
    layout = layout_at(model, [WHOLE], 1, None, lazy=False)
    assert model.scans[0].rows == {(3,): 7}
    assert read(layout, INT, model.scans[0].rows, model.log) == {(3,): 8} == model.state_at(1)


def test_a_watermark_of_log_positions_would_lose_it() -> None:
    """The test above bites: with the log position of the scan instead of its snapshot the row stays old."""
    model = hazard_1()
    layout = layout_at(model, [WHOLE], 1, None, lazy=False)
    watermark = model.index_at(model.scans[0].high)

    def by_position(_: Layout, __: tuple[Column, ...], changes: list[Change]) -> list[bool]:
        return [c.index > watermark for c in changes]

    assert read(layout, INT, model.scans[0].rows, model.log, by_position) == {(3,): 7} != model.state_at(1)


def test_a_truncate_empties_only_the_spans_that_were_read_before_it() -> None:
    before, after = Span(None, Bound(("3",))), Span(Bound(("3",)), None)
    layout = Layout(1, 0, (CoveredSpan(before, 0, 9, ("10:10:",)), CoveredSpan(after, 0, 9, ("21:21:",))), True)
    assert truncated(layout, [(5, 20)], sees).tolist() == [5, 0]
    assert truncated(layout, [(5, 20), (7, 21)], sees).tolist() == [7, 7]
    assert truncated(layout, [], sees).tolist() == [0, 0]
    assert counts(layout, INT, None, np.array([5, 6]), np.array([20, 9]), sees).tolist() == [True, False]


def test_a_change_to_a_hidden_key_does_not_count() -> None:
    layout = Layout(1, 0, (CoveredSpan(Span(Bound(("3",)), Bound(("5",))), 2, 9),), False)
    keys = key_table(INT, [(3,), (4,), (5,), (6,), (4,)])
    index, txn = np.array([3, 3, 3, 3, 2]), np.array([1, 1, 1, 1, 1])
    assert counts(layout, INT, keys, index, txn, sees).tolist() == [False, True, True, False, False]
