"""The backfill rule over crashes that undo commits which scans have seen."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backfill.span import WHOLE
from headwater.model import Bound, Column, CoveredSpan, Layout, Span, UpstreamType
from support.history import Key, read
from support.lives import MortalModel, play

INT = (Column("id", "INT", UpstreamType("int4", 23, ordered=True), False),)
KEYS: list[Key] = [(i,) for i in range(8)]


def lake(model: MortalModel, spans: list[Span], epoch: int) -> dict[Key, int]:
    """What a reader gets after the first `epoch` commits."""
    covered = [(spans[i], scan) for i, scan in sorted(model.scans.items()) if scan.high <= epoch]
    parts = tuple(CoveredSpan(span, 0, 0, (scan.saw,)) for span, scan in covered)
    base = {k: v for _, scan in covered for k, v in scan.rows.items()}
    log = [c for c in model.log if c.index <= model.index_at(epoch)]
    return read(Layout(1, 0, parts, len(parts) == len(spans)), INT, base, log)


@settings(max_examples=300)
@given(
    st.integers(0, 2**32),
    st.sets(st.integers(0, 7), max_size=3),
    st.dictionaries(st.sampled_from(KEYS), st.integers(100, 109)),
    st.sampled_from([5, 2**32 - 3]),
)
def test_what_a_crash_undoes_is_in_no_covered_span(
    seed: int, cuts: set[int], rows: dict[Key, int], first_xid: int
) -> None:
    ends = [None, *(Bound((str(i),)) for i in sorted(cuts)), None]
    spans = [Span(lo, hi) for lo, hi in pairwise(ends)]
    place = {k: sum(i < k[0] for i in cuts) for k in KEYS}  # type: ignore[operator]
    model = MortalModel(KEYS, place, first_xid, rows)
    play(model, seed, len(spans))
    for epoch in range(len(model.commits) + 1):
        visible = {i for i, scan in model.scans.items() if scan.high <= epoch}
        expected = {k: v for k, v in model.state_at(epoch).items() if place[k] in visible}
        assert lake(model, spans, epoch) == expected, f"seed {seed}"


def undone(forget: bool) -> MortalModel:
    """A scan sees a commit that a crash undoes; the next transaction gets the same number."""
    model = MortalModel(KEYS, dict.fromkeys(KEYS, 0), 100, {(3,): 7, (4,): 7})
    model.begin()
    model.write(0, (3,), (3,), 8)
    model.commit_record(0)
    model.end(0)
    model.scan(0)
    model.crash(1, forget=forget)
    model.begin()
    model.write(0, (4,), (4,), 9)
    model.commit_record(0)
    model.end(0)
    model.scan(0)
    return model


def test_a_scan_that_saw_what_was_undone_is_made_again() -> None:
    model = undone(forget=True)
    assert lake(model, [WHOLE], 1) == model.state_at(1) == {(3,): 7, (4,): 9}


def test_without_another_life_the_undone_row_stays_and_the_new_one_is_lost() -> None:
    """The tests above bite: the scan shows what never was, and takes the reused number for seen."""
    assert lake(undone(forget=False), [WHOLE], 1) == {(3,): 8, (4,): 7}
