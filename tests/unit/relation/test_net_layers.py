"""What surrounds netting: judging by what scans saw, planning runs, ranges, the kept tail."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.backfill import rule
from headwater.backfill.span import joined
from headwater.meta.store import Meta
from headwater.model import Bound, CoveredSpan, Layout, Op, RunInfo, Span
from headwater.relation.changes import LoggedChanges, Slice
from headwater.relation.judge import after_truncate, judge, settled
from headwater.relation.net import holes, keys_named, named_by, net
from headwater.settings.table import Settings
from headwater.storage import LocalStorage
from support.relation import Change, History, changes_table, columns_of, relation_of

COLUMNS = columns_of()
KEY = ("k",)
WHOLE = Span(None, None)
T = next(i for i, c in enumerate(COLUMNS) if c.name == "t")


def sees(saw: str, txn: Any) -> Any:
    return txn <= int(saw)


def run(id: int, first: int, last: int, rows: int) -> RunInfo:
    return RunInfo(id, 1, first, last, f"run{id}", rows, 1, False)


def moved(index: int, old: int, new: int) -> Change:
    return Change(index, index, Op.UPDATE, {"n": 1, "k": new, "a`b.c": "a"}, (T,), (old,))


def overlay_of(changes: list[Change], layout: Layout) -> pa.Table:
    table = changes_table(changes, COLUMNS, KEY)
    return net([table], COLUMNS, KEY, judge(relation_of(COLUMNS, KEY), layout, table, sees))


def test_where_keys_have_no_place_a_renamed_row_that_some_scan_saw_is_a_hole() -> None:
    """One scan saw 1 → 2 and the new row 1; another did not. Row 1 of the base may be either: nobody guesses."""
    layout = Layout(1, 0, (CoveredSpan(WHOLE, 0, 9, ("3", "0")),), True)
    insert = Change(2, 2, Op.INSERT, {"n": 1, "k": 1, "a`b.c": "x", "t": "other"})
    assert holes(overlay_of([moved(1, 1, 2), insert], layout))["k"].to_pylist() == [2]


def test_where_keys_have_no_place_a_renamed_row_that_no_scan_saw_comes_from_the_base() -> None:
    layout = Layout(1, 0, (CoveredSpan(WHOLE, 0, 9, ("0", "0")),), True)
    overlay = overlay_of([moved(1, 1, 2)], layout)
    assert not holes(overlay).num_rows
    assert overlay["__from"].to_pylist() == [{"k": 1}, None]


def test_with_at_least_once_a_renamed_row_that_a_scan_may_have_seen_is_a_hole() -> None:
    layout = Layout(1, 0, (CoveredSpan(WHOLE, 0, 5),), True)
    relation = relation_of(COLUMNS, KEY, delivery="at-least-once")
    table = changes_table([moved(5, 1, 2), moved(6, 3, 4)], COLUMNS, KEY)
    overlay = net([table], COLUMNS, KEY, judge(relation, layout, table, sees))
    assert holes(overlay)["k"].to_pylist() == [2]
    assert layout.settled and not settled(relation, layout)


def test_a_row_renamed_out_of_a_span_that_is_not_covered_is_a_hole() -> None:
    layout = Layout(1, 0, (CoveredSpan(Span(Bound(("5",)), None), 0, 9, ("0",)),), False)
    assert holes(overlay_of([moved(1, 1, 7)], layout))["k"].to_pylist() == [7]


def test_a_truncate_ends_changes_only_in_spans_that_did_not_see_it() -> None:
    spans = (CoveredSpan(Span(None, Bound(("5",))), 0, 9, ("0",)), CoveredSpan(Span(Bound(("5",)), None), 0, 9, ("9",)))
    layout = Layout(1, 0, spans, True)
    rows = [Change(i, i, Op.INSERT, {"n": 1, "k": k, "a`b.c": "a", "t": "t"}) for i, k in ((1, 1), (3, 2))]
    table = changes_table([rows[0], Change(2, 2, Op.TRUNCATE, {}), rows[1]], COLUMNS, KEY)
    relation = relation_of(COLUMNS, KEY)
    emptied = rule.truncated(layout, [(2, 2)], sees)
    overlay = after_truncate(
        relation, layout, net([table], COLUMNS, KEY, judge(relation, layout, table, sees)), emptied
    )
    assert emptied.tolist() == [2, 0]
    assert overlay["k"].to_pylist() == [2]


def test_touched_rows_are_those_that_a_change_names_by_new_or_old_key() -> None:
    before = net([changes_table([Change(1, 1, Op.DELETE, {"k": k}) for k in range(5)], COLUMNS, KEY)], COLUMNS, KEY)
    after = changes_table([moved(2, 1, 9), Change(3, 3, Op.DELETE, {"k": 3})], COLUMNS, KEY)
    named = named_by(before, keys_named(after, KEY), KEY)
    assert before.filter(pa.array(named))["k"].to_pylist() == [1, 3]


def test_neighbouring_spans_are_one_range() -> None:
    a, b, c = (Bound((str(i),)) for i in range(3))
    assert joined([Span(None, a), Span(a, b), Span(c, None)]) == [Span(None, b), Span(c, None)]
    assert joined([Span(None, a), Span(a, None)]) == [WHOLE]
    assert joined([Span(a, Bound(("1",), after=False)), Span(b, c)]) == [Span(a, Bound(("1",), False)), Span(b, c)]


WIDE = 1200  # bytes of the largest change


class Recorded(LoggedChanges):
    """Remembers what had to be decoded."""

    def __init__(self, root: Path, history: History) -> None:
        super().__init__(LocalStorage(root), Meta(f"sqlite:///{root}/meta.db"))
        self.history = history
        self.decoded: list[tuple[int, int]] = []

    def _decoded(self, relation: Any, after: int, upto: int, *, limit: Any = None, **_: Any) -> Any:
        limit = limit or self._limit
        while True:
            end = min(after + min(limit.changes, max(1, limit.bytes // WIDE)), upto)
            self.decoded.append((after, end))
            chosen = [c for c in self.history.changes if after < c.index <= end]
            yield Slice(after, end, changes_table(chosen, COLUMNS, KEY))
            after = end
            if after >= upto:
                return

    def all(self, relation: Any, after: int, upto: int) -> list[int]:
        found = list(self.slices(relation, after, upto))
        assert [s.after for s in found] == [after, *(s.upto for s in found[:-1])] and found[-1].upto == upto
        assert all(indexes(s.table) == list(range(s.after + 1, s.upto + 1)) for s in found)
        return [i for s in found for i in indexes(s.table)]


@pytest.fixture
def tails(tmp_path: Path) -> Recorded:
    history = History(COLUMNS, KEY, random.Random(1))
    history.begin(4)
    history.run(40)
    return Recorded(tmp_path, history)


def indexes(table: pa.Table) -> list[int]:
    return table["__index"].to_pylist()  # type: ignore[no-any-return]


def test_a_change_is_decoded_once(tails: Recorded) -> None:
    relation = relation_of(COLUMNS, KEY)
    assert tails.all(relation, 0, 10) == list(range(1, 11))
    assert tails.all(relation, 5, 20) == list(range(6, 21))
    assert tails.all(relation, 5, 8) == [6, 7, 8]
    assert tails.decoded == [(0, 10), (10, 20)]


def test_a_reader_of_an_old_epoch_does_not_push_out_the_new_ones(tails: Recorded) -> None:
    relation = relation_of(COLUMNS, KEY)
    tails.all(relation, 10, 30)
    assert tails.all(relation, 2, 15) == list(range(3, 16))
    tails.all(relation, 10, 30)
    assert tails.decoded == [(10, 30), (2, 15)]


def test_a_reader_beyond_what_is_kept_begins_again(tails: Recorded) -> None:
    relation = relation_of(COLUMNS, KEY)
    tails.all(relation, 0, 5)
    assert tails.all(relation, 20, 25) == list(range(21, 26))
    assert tails.decoded == [(0, 5), (20, 25)]


def test_memory_goes_to_the_relation_that_was_asked_last(tails: Recorded) -> None:
    first, second = relation_of(COLUMNS, KEY), relation_of(COLUMNS, KEY)
    object.__setattr__(second, "id", 2)
    tails._settings = Settings(tail_memory_bytes=1)
    tails.all(first, 0, 20)
    tails.all(second, 0, 20)
    assert set(tails._kept) == {2}


def test_a_long_range_comes_in_slices_and_what_is_kept_of_it_is_bounded(tails: Recorded) -> None:
    tails._settings = Settings(slice_changes=7, tail_changes=3)
    relation = relation_of(COLUMNS, KEY)
    assert tails.all(relation, 0, 40) == list(range(1, 41))
    assert all(b - a <= 7 for a, b in tails.decoded)
    assert tails._kept[relation.id].table.num_rows <= 14
    tails.decoded.clear()
    assert tails.all(relation, 35, 40) == list(range(36, 41))
    assert tails.decoded == []


def test_wide_changes_come_in_slices_out_of_memory_too_and_memory_is_bounded_by_their_bytes(tails: Recorded) -> None:
    relation, most = relation_of(COLUMNS, KEY), 6 << 10
    for change in tails.history.changes:
        change.row = {**change.row, "t": "x" * 1000}
        change.missing = ()
    tails._settings = Settings(slice_changes=5, tail_memory_bytes=1 << 30)
    assert tails.all(relation, 0, 40) == list(range(1, 41))  # all of it is in memory now
    tails._settings = Settings(slice_bytes=most // 2, tail_memory_bytes=most)
    assert all(s.table.nbytes <= most // 2 for s in tails.slices(relation, 0, 40))
    for _ in range(2):
        assert tails.all(relation, 0, 40) == list(range(1, 41))
        assert tails._kept[relation.id].table.nbytes <= most


def test_a_reader_of_its_own_range_leaves_memory_to_the_others(tails: Recorded) -> None:
    relation = relation_of(COLUMNS, KEY)
    tails.all(relation, 0, 10)
    own = [i for s in tails.slices(relation, 20, 30, apart=True) for i in indexes(s.table)]
    assert own == list(range(21, 31))
    tails.all(relation, 0, 10)
    assert tails.decoded == [(0, 10), (20, 30)]


def test_changes_of_other_columns_are_not_given_out_of_memory(tails: Recorded) -> None:
    relation = relation_of(COLUMNS, KEY)
    tails.all(relation, 0, 10)
    tails.all(replace(relation, schema_version=2), 0, 10)
    assert tails.decoded == [(0, 10), (0, 10)]


def test_the_last_of_many_changes_to_a_key_wins() -> None:
    n = 200_000
    keys = np.random.default_rng(1).integers(0, 50_000, n)
    table = changes_table([], COLUMNS, KEY)
    data = {f.name: pa.nulls(n, f.type) for f in table.schema}
    data["k"], data["__index"] = pa.array(keys, pa.int32()), pa.array(np.arange(1, n + 1))
    data["__op"] = pa.array(np.full(n, 2, np.int8))
    overlay = net([pa.table(data)], COLUMNS, KEY)
    last = {int(k): i + 1 for i, k in enumerate(keys)}
    assert dict(zip(overlay["k"].to_pylist(), overlay["__index"].to_pylist(), strict=True)) == last
