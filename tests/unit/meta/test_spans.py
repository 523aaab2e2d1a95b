"""The spans in meta against a naive model: whatever is done to them, in any order, they stay one map of the keys."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Connection

from headwater.backfill.span import one_key
from headwater.meta import settle, spans
from headwater.meta.store import Meta
from headwater.model import Bound, DataFile, ScanResult, Span, SpanInfo, SpanState

KEYS = range(40)
LAST = 30  # the largest key when planning began
READABLE = (SpanState.COVERED, SpanState.SETTLED)
MOVES = ("plan", "scan", "scan", "cover", "cover", "back", "punch", "fold", "quiet", "merge")


@dataclass(frozen=True)
class Key:
    """What the map says of one key."""

    state: SpanState
    saw: str | None = None
    log_index: int | None = None
    cover_index: int | None = None


class Naive:
    """A dictionary with an entry per planned key, and the same moves on it and on the spans in meta."""

    def __init__(self, c: Connection, relation_id: int, r: random.Random) -> None:
        self.c, self.relation_id, self.r = c, relation_id, r
        self.planned = -1  # the largest planned key
        self.index = 0
        self.covered: set[int] = set()  # ids whose files are in the base
        beyond = Span(Bound((str(LAST),)), None)
        spans.add(c, relation_id, [beyond], spans.BEYOND)
        (only,) = spans.all(c, relation_id)
        spans.scanned(c, only.id, result_of("first"), 0, "life")
        self.keys = {k: Key(SpanState.SCANNED, "first", 0) for k in KEYS if k > LAST}

    def move(self, name: str) -> None:
        self.index += self.r.randrange(3)
        getattr(self, f"_{name}")()

    def _plan(self) -> None:
        ends = sorted(self.r.sample(range(self.planned + 1, LAST + 1), k=min(3, LAST - self.planned)))
        more = []
        for end in ends:
            lo = None if self.planned < 0 else Bound((str(self.planned),))
            more.append(Span(lo, Bound((str(end),))))
            self.keys |= {k: Key(SpanState.PENDING) for k in range(self.planned + 1, end + 1)}
            self.planned = end
        if more:
            spans.plan(self.c, self.relation_id, more)

    def _scan(self) -> None:
        """Reads a pending span, or a first part of it."""
        found = spans.pending(self.c, self.relation_id, 5)
        if not found:
            return
        chosen = self.r.choice(found)
        assert chosen.id not in self.covered, "its files could not be told from those that are in the base"
        spans.set_state(self.c, chosen.id, SpanState.SCANNING)
        inside = keys_in(chosen.span)
        stop = self.r.choice(inside) if inside and self.r.random() < 0.4 else None
        stopped_at = None if stop is None or Bound((str(stop),)) == chosen.span.hi else Bound((str(stop),))
        saw = f"saw{self.r.randrange(10**6)}"
        spans.scanned(self.c, chosen.id, result_of(saw, stopped_at), self.index, "life")
        read = inside if stopped_at is None else [k for k in inside if stop is not None and k <= stop]
        self.keys |= {k: Key(SpanState.SCANNED, saw, self.index) for k in read}

    def _cover(self) -> None:
        for scanned in spans.uncovered(self.c, self.relation_id):
            if self.r.random() < 0.6:
                spans.cover(self.c, scanned.id, self.index)
                self.covered.add(scanned.id)
                for k in keys_in(scanned.span):
                    self.keys[k] = replace(self.keys[k], state=SpanState.COVERED, cover_index=self.index)

    def _back(self) -> None:
        """Another life of the server: what was scanned and not covered is read again."""
        if self.r.random() < 0.3:
            for scanned in spans.uncovered(self.c, self.relation_id):
                spans.back_to_pending(self.c, scanned.id)
                self.keys |= {k: Key(SpanState.PENDING) for k in keys_in(scanned.span)}

    def _punch(self) -> None:
        found = [(s, k) for s in spans.readable(self.c, self.relation_id) for k in keys_in(s.span)]
        if found:
            chosen, key = self.r.choice(found)
            spans.punch(self.c, chosen.id, one_key((str(key),)))
            self.keys[key] = Key(SpanState.PENDING)

    def _fold(self) -> None:
        covered = spans.readable(self.c, self.relation_id)
        settle.move(self.c, self.relation_id, [s.id for s in covered], self.index)
        self._settle(lambda _: True)

    def _quiet(self) -> None:
        last_change = self.r.randrange(self.index + 1)
        settle.quiet(self.c, self.relation_id, last_change, self.index)
        self._settle(lambda key: key.log_index is not None and key.log_index >= last_change)

    def _settle(self, chosen) -> None:  # type: ignore[no-untyped-def]
        for k, key in self.keys.items():
            if key.state in READABLE and chosen(key):
                self.keys[k] = Key(SpanState.SETTLED, None, self.index, key.cover_index)

    def _merge(self) -> None:
        settle.join(self.c, self.relation_id)
        found = [s for s in spans.readable(self.c, self.relation_id) if s.state is SpanState.SETTLED]
        for a, b in pairwise(found):
            assert a.span.hi != b.span.lo or a.log_index != b.log_index, "neighbours that could be one"


def result_of(saw: str, stopped_at: Bound | None = None) -> ScanResult:
    return ScanResult(saw, "0/1", (DataFile(saw, 1, 1, "{}"),), 1, {}, stopped_at)


def keys_in(span: Span) -> list[int]:
    """The model's own reading of a span."""
    lo = -1.0 if span.lo is None else int(span.lo.key[0]) + (0.5 if span.lo.after else -0.5)
    hi = 1e9 if span.hi is None else int(span.hi.key[0]) + (0.5 if span.hi.after else -0.5)
    return [k for k in KEYS if lo < k < hi]


def assert_one_map(naive: Naive) -> None:
    """Ordered, disjoint, without a gap up to the last planned key, and each key as the model says."""
    found = spans.all(naive.c, naive.relation_id)
    bounds = [(s.span.lo, s.span.hi) for s in found]
    gaps = [(a[1], b[0]) for a, b in pairwise(bounds) if a[1] is None or a[1] != b[0]]
    planned = None if naive.planned < 0 else Bound((str(naive.planned),))
    if planned is None:
        assert bounds[0][0] == Bound((str(LAST),)) and not gaps
    else:
        assert bounds[0][0] is None and gaps == ([] if naive.planned == LAST else [(planned, Bound((str(LAST),)))])
    assert bounds[-1][1] is None
    if naive.planned < LAST:
        told = spans.planned(naive.c, naive.relation_id)
        assert told is not None and (told.after, told.last) == (planned, Bound((str(LAST),)))
    said = {k: info for info in found for k in keys_in(info.span)}
    assert sum(len(keys_in(s.span)) for s in found) == len(said), "a key is in two spans"
    assert {k: as_key(s) for k, s in said.items()} == naive.keys
    assert spans.unread(naive.c, naive.relation_id) == any(s.state not in READABLE for s in found)
    assert spans.readable(naive.c, naive.relation_id) == [s for s in found if s.state in READABLE]


def as_key(info: SpanInfo) -> Key:
    saw = info.saw if info.state is not SpanState.SETTLED else None
    cover = info.cover_index if info.state is SpanState.COVERED else None
    return Key(info.state, saw, info.log_index, cover)


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meta]:
    store = Meta(f"sqlite:///{Path(tmp_path_factory.mktemp('spans')) / 'meta.db'}")
    yield store
    store.close()


_relations = iter(range(1, 10**9))


@settings(max_examples=120)
@given(st.lists(st.sampled_from(MOVES), max_size=60), st.integers(0, 2**32))
def test_spans_stay_one_map_of_the_keys(meta: Meta, moves: list[str], seed: int) -> None:
    with meta.write() as c:
        naive = Naive(c, next(_relations), random.Random(seed))
        for name in moves:
            naive.move(name)
            naive.keys = {k: forget_cover(key) for k, key in naive.keys.items()}
            assert_one_map(naive)


def forget_cover(key: Key) -> Key:
    """Where a settled span was covered is nobody's concern."""
    return replace(key, cover_index=None) if key.state is SpanState.SETTLED else key


def test_a_map_that_is_planned_read_and_settled_becomes_one_span(meta: Meta) -> None:
    with meta.write() as c:
        naive = Naive(c, next(_relations), random.Random(7))
        while naive.planned < LAST:
            naive.move("plan")
        planned = sum(spans.counts(c, naive.relation_id).values())
        while spans.pending(c, naive.relation_id, 1):
            naive.move("scan")
        cuts = sum(spans.counts(c, naive.relation_id).values()) - planned
        while spans.uncovered(c, naive.relation_id):
            naive.move("cover")
        naive.move("fold")
        naive.move("merge")
        (whole,) = spans.all(c, naive.relation_id)
        assert (whole.span, whole.state) == (Span(None, None), SpanState.SETTLED)
        assert spans.counts(c, naive.relation_id) == {SpanState.SETTLED: planned + cuts}, "progress knows what it was"


@pytest.mark.parametrize("from_the_end", [True, False])
def test_a_span_can_be_cut_as_often_as_it_has_keys(meta: Meta, from_the_end: bool) -> None:
    """Each cut finds an ordinal between two others; when they run out all are counted anew, more than once."""
    keys = [f"{i:04d}" for i in range(400)]
    with meta.write() as c:
        id = next(_relations)
        spans.add(c, id, [Span(None, Bound(("9999",))), Span(Bound(("9999",)), None)], 0.0)
        for s in spans.all(c, id):
            spans.scanned(c, s.id, result_of("saw"), 0, "life")
            spans.cover(c, s.id, 0)
        for key in reversed(keys) if from_the_end else keys:
            holder = next(s for s in spans.readable(c, id) if holds(s.span, key))
            spans.punch(c, holder.id, one_key((key,)))
        found = spans.all(c, id)
        assert all(a.span.hi == b.span.lo for a, b in pairwise(found))
        assert [s.span for s in found if s.state is SpanState.PENDING] == [one_key((k,)) for k in keys]


def holds(span: Span, key: str) -> bool:
    above = span.lo is None or (key > span.lo.key[0] if span.lo.after else key >= span.lo.key[0])
    below = span.hi is None or (key <= span.hi.key[0] if span.hi.after else key < span.hi.key[0])
    return above and below


def test_planning_continues_after_the_spans_before_it_were_joined(meta: Meta) -> None:
    with meta.write() as c:
        naive = Naive(c, next(_relations), random.Random(3))
        for name in (
            "plan",
            "scan",
            "scan",
            "scan",
            "scan",
            "scan",
            "cover",
            "cover",
            "cover",
            "quiet",
            "fold",
            "merge",
        ):
            naive.move(name)
        while naive.planned < LAST:
            naive.move("plan")
            naive.keys = {k: forget_cover(key) for k, key in naive.keys.items()}
            assert_one_map(naive)
