"""The backfill rule over MySQL's and MariaDB's numbers: a place in the log instead of a snapshot."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backfill.span import WHOLE
from headwater.model import Bound, Column, CoveredSpan, Layout, Span, UpstreamType
from headwater.source.mysql.upstream import MysqlUpstream
from support.history import STEPS, Key, read, run
from support.history_mysql import PlacedModel

INT = (Column("id", "INT", UpstreamType("int", 3, dialect="mysql", ordered=True), False),)
KEYS: list[Key] = [(i,) for i in range(8)]


def lake(model: PlacedModel, spans: list[Span], epoch: int, sees: object = MysqlUpstream.sees) -> dict[Key, int]:
    """What a reader gets after the first `epoch` commits."""
    covered = [(spans[i], scan) for i, scan in sorted(model.scans.items()) if scan.high <= epoch]
    parts = tuple(CoveredSpan(span, 0, 0, (scan.saw,)) for span, scan in covered)
    base = {k: v for _, scan in covered for k, v in scan.rows.items()}
    log = [c for c in model.log if c.index <= model.index_at(epoch)]
    return read(Layout(1, 0, parts, len(parts) == len(spans)), INT, base, log, sees=sees)  # type: ignore[arg-type]


@settings(max_examples=300)
@given(
    st.integers(0, 2**32),
    STEPS,
    st.sets(st.integers(0, 7), max_size=3),
    st.dictionaries(st.sampled_from(KEYS), st.integers(100, 109)),
)
def test_covered_spans_and_what_counts_are_the_database_at_every_cut(
    late: int, steps: list[tuple[object, ...]], cuts: set[int], rows: dict[Key, int]
) -> None:
    ends = [None, *(Bound((str(i),)) for i in sorted(cuts)), None]
    spans = [Span(lo, hi) for lo, hi in pairwise(ends)]
    place = {k: sum(i < k[0] for i in cuts) for k in KEYS}  # type: ignore[operator]
    model = PlacedModel(KEYS, place, 1, rows)
    model.late = Random(late)
    run(model, steps, spans)
    for epoch in range(len(model.commits) + 1):
        visible = {i for i, scan in model.scans.items() if scan.high <= epoch}
        expected = {k: v for k, v in model.state_at(epoch).items() if place[k] in visible}
        assert lake(model, spans, epoch) == expected


def between_log_and_visibility() -> PlacedModel:
    """A commit that is in the log before the scan, and visible only after it; a later one is visible already."""
    model = PlacedModel(KEYS, dict.fromkeys(KEYS, 0), 1, {(3,): 7, (4,): 7})
    for who, key in ((0, 3), (1, 4)):
        model.begin()
        model.write(who, (key,), (key,), 8)
    model.commit_record(0)
    model.commit_record(0)
    model.end(1)
    model.scan(0)
    model.end(0)
    return model


def test_a_commit_between_the_log_and_visibility_counts() -> None:
    model = between_log_and_visibility()
    assert model.scans[0].rows == {(3,): 7, (4,): 8}
    assert lake(model, [WHOLE], 2) == {(3,): 8, (4,): 8} == model.state_at(2)


def test_the_end_of_the_log_as_a_scans_place_would_lose_it() -> None:
    """The test above bites: with where the log ended instead of a proven place the row stays old."""
    model = between_log_and_visibility()
    end = model.place_of(2)

    def by_end(_: str, txn: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return txn < end

    assert lake(model, [WHOLE], 2, by_end) == {(3,): 7, (4,): 8} != model.state_at(2)


def test_what_a_scan_saw_begins_with_the_first_transaction_that_it_may_not_have_seen() -> None:
    saw = "binlog.000007:104"
    assert MysqlUpstream.txn_min(saw) == 7 << 36 | 104
    assert MysqlUpstream.sees(saw, np.array([7 << 36 | 4, 7 << 36 | 104, 6 << 36 | 900])).tolist() == [
        True,
        False,
        True,
    ]
