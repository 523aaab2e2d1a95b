"""Overlays made slice by slice, against the naive model: however the changelog is cut, the rows are the upstream's."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.meta import runs as meta_runs
from headwater.meta import segments
from headwater.meta.store import Meta
from headwater.model import Bound, CoveredSpan, Layout, Op, Part, RunInfo, Segment, Span
from headwater.relation import layers, overlay, runs
from headwater.relation.changes import Slice
from headwater.relation.layers import read_layer, write_layer
from headwater.relation.overlay import Overlay, Overlays
from headwater.relation.runs import RunWriter, usable
from headwater.relation.schema import overlay_schema
from headwater.storage import LocalStorage
from support.owned import acquired
from support.relation import Change, History, Rows, ScriptedChanges, applied, columns_of, inside, relation_of

WHOLE = Span(None, None)
BOUNDS = [None, Bound(("3",)), Bound(("6",)), Bound(("9",)), None]
SPANS = [Span(lo, hi) for lo, hi in pairwise(BOUNDS)]


@pytest.fixture(scope="module", autouse=True)
def _tiny_row_groups() -> Iterator[None]:
    """Most layers have several row groups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "ROW_GROUP_ROWS", 3)
        yield


def sees(saw: str, txn: Any) -> Any:
    return txn <= int(saw) * 10


class Log:
    """A history of one relation as meta would tell of it, and overlays over it."""

    def __init__(
        self,
        root: Path,
        seed: int,
        at_once: int,
        *,
        truncates: bool,
        steps: int = 40,
        script: Sequence[Change] = (),
    ) -> None:
        """Random steps, then what a script says: changes of keys that no random step uses."""
        self.history = History(columns_of(), ("k",), random.Random(seed), truncates=truncates)
        self.history.begin(6)
        self.history.run(steps)
        self.history.changes += script
        self.relation = relation_of(self.history.columns, self.history.key)
        self.storage, self.meta = LocalStorage(root), Meta(f"sqlite:///{root}/meta.db")
        self.changes = ScriptedChanges(self.history, at_once)
        last = len(self.history.changes)
        part = Part(self.relation.origin.upstream_id, 1, 0, last, 1, last)
        with self.meta.write() as c:
            segments.insert(c, Segment(1, 1, last, last, "s", 1, 10, last * 10, (part,)))
            self.lease = acquired(c)
        self.overlays = Overlays(self.storage, self.meta, changes=self.changes, sees=sees)  # type: ignore[arg-type]
        self.last = last

    def read(self, base: Rows, layout: Layout, index: int) -> tuple[Rows, set[Any]]:
        """What a read shows, and the keys that it hides; layers are laid over each other as Spark does it."""
        with self.overlays.use(self.relation, layout, index) as overlay:
            ended = [layout.spans[i].span for i in overlay.emptied]
            shown = {k: r for k, r in base.items() if not any(inside(s, k) for s in ended)}
            return applied(shown, self.newest(overlay), self.history.columns, self.history.key)

    def newest(self, overlay: Overlay) -> pa.Table:
        """The newest row of each key: the one in the last layer that names it."""
        rows: dict[Any, Any] = {}
        for layer in overlay.layers:
            table = read_layer(self.storage, self.relation, layer.path)
            assert table.num_rows == layer.rows
            for row in table.to_pylist():
                rows[row["k"]] = row
        return pa.Table.from_pylist(list(rows.values()), schema=overlay_schema(self.history.columns, self.history.key))


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32),
    at_once=st.integers(1, 45),
    scanned=st.lists(st.integers(-1, 40), min_size=4, max_size=4),
    truncates=st.booleans(),
)
def test_whatever_the_slices_a_filling_relation_shows_the_upstream_or_knows_what_it_hides(
    seed: int, at_once: int, scanned: list[int], truncates: bool
) -> None:
    """Span i is scanned when the log stood at scanned[i]; -1: not covered."""
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), seed, at_once, truncates=truncates)
        covered = [i for i, at in enumerate(scanned) if at >= 0]
        base = {k: r for i in covered for k, r in log.history.states[scanned[i]].items() if inside(SPANS[i], k)}
        spans = tuple(CoveredSpan(SPANS[i], 0, scanned[i], (str(scanned[i]),)) for i in covered)
        layout = Layout(1, 0, spans, len(covered) == len(SPANS))
        if not spans:
            return
        with log.overlays.use(log.relation, layout, log.last) as overlay:
            hidden = {(k,) for k in overlay.holes["k"].to_pylist()}
        shown, unresolved = log.read(base, layout, log.last)
        truth = {k: r for k, r in log.history.now.items() if any(inside(SPANS[i], k) for i in covered)}
        assert unresolved == hidden, "every hole is known without the base"
        assert shown == {k: r for k, r in truth.items() if k not in hidden}
        if len(set(scanned)) == 1:
            assert not hidden
        assert not list(log.storage.list("tmp/tail")) or log.overlays._known, "files are kept for known answers only"


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32), at_once=st.integers(1, 45), ends=st.lists(st.integers(1, 40), min_size=1, max_size=4)
)
def test_runs_of_slices_and_a_tail_of_slices_are_the_upstream(seed: int, at_once: int, ends: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder), seed, at_once, truncates=True)
        layout, base = Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True), log.history.states[0]
        writer = RunWriter(log.storage, log.meta, log.changes)  # type: ignore[arg-type]
        for end in sorted(ends):
            made = writer.write(log.relation, layout, end, sees, log.lease, limit=3)
            assert made.tail <= 3
            for index in (end, min(end + 5, log.last), log.last):
                log.overlays.forget(log.relation.id)
                assert log.read(base, layout, index) == (log.history.states[index], set())


def test_a_tail_that_is_longer_than_a_slice_becomes_several_runs_that_follow_each_other(tmp_path: Path) -> None:
    log = Log(tmp_path, 5, at_once=7, truncates=False)
    writer = RunWriter(log.storage, log.meta, log.changes)  # type: ignore[arg-type]
    made = writer.write(
        log.relation, Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True), log.last, sees, log.lease, limit=7
    )
    assert made == runs.Made(5, 5)
    assert writer.write(
        log.relation,
        Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True),
        log.last,
        sees,
        log.lease,
        limit=0,
        until=0.0,
    ) == runs.Made(0, 5)


@pytest.mark.parametrize("key", [100, 119], ids=["of its first row group", "of its last row group"])
@pytest.mark.parametrize("moves", [False, True])
def test_a_change_without_a_value_gets_it_from_a_large_run_that_is_not_merged(
    tmp_path: Path, key: int, moves: bool
) -> None:
    values = {"n": 1, "a`b.c": "x", "t": "large"}
    inserts = [Change(i + 1, 10 * (i + 1), Op.INSERT, {**values, "k": 100 + i}) for i in range(20)]
    t = next(i for i, c in enumerate(columns_of()) if c.name == "t")
    new = key + 100 if moves else key
    update = Change(21, 210, Op.UPDATE, {"n": 2, "a`b.c": "y", "k": new}, (t,), (key,) if moves else None)
    log = Log(tmp_path, 5, at_once=20, truncates=False, steps=0, script=[*inserts, update])
    layout, base = Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True), log.history.states[0]
    writer = RunWriter(log.storage, log.meta, log.changes)  # type: ignore[arg-type]
    assert writer.write(log.relation, layout, 21, sees, log.lease, limit=0) == runs.Made(2, 0)
    with log.meta.read() as c:
        assert [(r.first_index, r.last_index) for r in meta_runs.live(c, 1, 0, 21)] == [(1, 20), (21, 21)]
    expected = base | {(100 + i,): {**values, "k": 100 + i} for i in range(20)}
    del expected[key,]
    expected[new,] = {"n": 2, "a`b.c": "y", "k": new, "t": "large"}
    assert log.read(base, layout, 21) == (expected, set())


def hot(log_of: Path, keys: int, rounds: int, at_once: int) -> tuple[Log, Layout]:
    """Rows with large values, inserted once and then updated again and again without them."""
    t = next(i for i, c in enumerate(columns_of()) if c.name == "t")
    script = [
        Change(i + 1, 10 * (i + 1), Op.INSERT, {"n": 0, "a`b.c": "x", "t": "large" * 100, "k": 100 + i})
        for i in range(keys)
    ]
    for n in range(keys, keys * (rounds + 1)):
        update = {"n": n, "a`b.c": "y", "k": 100 + n % keys}
        script.append(Change(n + 1, 10 * (n + 1), Op.UPDATE, update, (t,)))
    log = Log(log_of, 5, at_once=at_once, truncates=False, steps=0, script=script)
    return log, Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True)


@pytest.mark.parametrize("by", ["runs", "tail"])
@pytest.mark.parametrize("most_bytes", [1 << 20, 2000], ids=["whole slices", "parts of slices"])
def test_however_often_a_row_changes_a_slice_reads_it_once_and_not_too_many_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, most_bytes: int
) -> None:
    keys, at_once = 20, 20
    log, layout = hot(tmp_path, keys, 6, at_once)
    read: list[tuple[int, int]] = []

    def watched(*args: Any) -> layers.Fitting:
        found = layers.fitting(*args, most_bytes)
        read.append((sum(t.num_rows for t in found.older), sum(t.nbytes for t in found.older)))
        return found

    monkeypatch.setattr(runs, "MERGED_ROWS", 0)  # as if each were too large to be merged
    for user in (runs, overlay):
        monkeypatch.setattr(user, "fitting", watched)
    if by == "runs":
        RunWriter(log.storage, log.meta, log.changes).write(  # type: ignore[arg-type]
            log.relation, layout, log.last, sees, log.lease, limit=0
        )
    base = log.history.states[0]
    updated = {k: {"n": log.last - keys + k - 100, "a`b.c": "y", "k": k, "t": "large" * 100} for k in range(100, 120)}
    assert log.read(base, layout, log.last) == (base | {(k,): row for k, row in updated.items()}, set())
    assert max(rows for rows, _ in read) <= at_once
    assert max(size for _, size in read) <= most_bytes and len(read) >= 7


def test_between_two_runs_another_thread_has_its_turn(tmp_path: Path) -> None:
    log, layout = hot(tmp_path, 20, 6, at_once=1)
    writer = RunWriter(log.storage, log.meta, log.changes)  # type: ignore[arg-type]
    first, met = threading.Event(), []

    class Slow(ScriptedChanges):
        def slices(self, *args: Any, **named: Any) -> Iterator[Slice]:
            if threading.current_thread() is not threading.main_thread():
                first.set()
            return super().slices(*args, **named)

    writer.changes = Slow(log.history, 1)

    def all_of_them() -> None:
        writer.write(log.relation, layout, log.last, sees, log.lease, limit=0)
        met.append("the long one ended")

    long = threading.Thread(target=all_of_them)
    long.start()
    assert first.wait(30)
    made = writer.write(log.relation, layout, log.last, sees, log.lease, limit=log.last - 10)
    assert made.tail <= log.last - 10 and not met, "it did not wait for the whole backlog"
    assert writer.write(log.relation, layout, log.last, sees, log.lease, limit=0, until=0.0).runs == 0
    long.join(60)
    assert met


def test_runs_of_large_values_are_not_merged_however_small_their_files_are(tmp_path: Path) -> None:
    t = "same" * (runs.MERGED_BYTES // 40)  # ten of them are a run that may not grow, and hardly a file
    script = [Change(i + 1, 10 * (i + 1), Op.INSERT, {"n": i, "a`b.c": "x", "t": t, "k": 100 + i}) for i in range(20)]
    log = Log(tmp_path, 5, at_once=10, truncates=False, steps=0, script=script)
    layout = Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True)
    writer = RunWriter(log.storage, log.meta, log.changes)  # type: ignore[arg-type]
    assert writer.write(log.relation, layout, log.last, sees, log.lease, limit=0) == runs.Made(2, 0)
    with log.meta.read() as c:
        made = meta_runs.live(c, 1, 0, log.last)
    assert [(r.first_index, r.last_index) for r in made] == [(1, 10), (11, 20)]
    assert all(log.storage.size(r.path) < runs.MERGED_BYTES // 8 for r in made)


def test_a_row_group_of_large_values_has_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is what a slice that is netted over a layer reads at once."""
    monkeypatch.setattr(layers, "ROW_GROUP_ROWS", 1000)
    monkeypatch.setattr(layers, "ROW_GROUP_BYTES", 4000)
    table = pa.table({"t": ["x" * 1000] * 40})
    write_layer(tmp_path / "layer", table, compression="none")
    file = pq.read_metadata(tmp_path / "layer")
    sizes = [file.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    assert file.num_rows == 40 and max(sizes) < 2 * layers.ROW_GROUP_BYTES


def test_overlays_that_expired_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, 5, at_once=7, truncates=False)
    layout = Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True)
    with log.overlays.use(log.relation, layout, log.last):
        assert list(log.storage.list("tmp/tail"))
    log.overlays.sweep()
    assert list(log.storage.list("tmp/tail")), "the next reader may want them"
    monkeypatch.setattr(overlay, "FRESH_S", -1.0)
    with log.overlays.use(log.relation, layout, log.last):
        log.overlays.sweep()
        assert list(log.storage.list("tmp/tail")), "somebody reads them"
    assert not list(log.storage.list("tmp/tail"))


def run(id: int, first: int, last: int, rows: int, bytes: int = 1) -> RunInfo:
    return RunInfo(id, 1, first, last, f"run{id}", rows, bytes, False)


def test_runs_merge_so_that_few_are_left_and_each_change_is_written_seldom() -> None:
    chain: list[RunInfo] = []
    written = end = 0
    for i in range(100):
        end += 10
        due = runs.plan(chain, 0, end, 10, 0)
        assert due.after == end - 10 and due.upto == end
        rows = 10 + sum(r.rows for r in due.contains)
        chain = [*chain[: len(chain) - len(due.contains)], run(i, due.first_index, end, rows)]
        written += rows
        assert usable(chain, 0, 1) == chain
        assert len(chain) <= 5
    assert written <= 10 * end


@pytest.mark.parametrize(
    ("rows", "bytes", "changes", "merged"),
    [
        (200_000, 1, runs.MERGED_ROWS - 200_000, True),
        (200_000, 1, runs.MERGED_ROWS - 199_999, False),
        (29, runs.MERGED_BYTES, 10, True),
        (29, runs.MERGED_BYTES + 1, 10, False),
        (30, 1, 10, False),
    ],
)
def test_a_run_is_merged_into_the_next_one_if_that_is_worth_it_and_fits_into_memory(
    rows: int, bytes: int, changes: int, merged: bool
) -> None:
    before = run(1, 1, 5, rows, bytes)
    due = runs.plan([before], 0, 9, changes, 0)
    assert (due.contains, due.first_index) == (((before,), 1) if merged else ((), 6))


@pytest.mark.parametrize(("kept", "merged"), [(4, 2), (5, 1), (8, 1), (9, 0), (11, 0), (12, 2)])
def test_no_run_is_merged_across_an_index_at_which_the_relation_is_still_read(kept: int, merged: int) -> None:
    chain = [run(1, 1, 5, 10), run(2, 6, 9, 10)]
    due = runs.plan(chain, 0, 12, 10, 0, {kept})
    assert list(due.contains) == chain[len(chain) - merged :]


def test_a_run_behind_a_gap_or_across_the_start_or_with_other_columns_is_not_used() -> None:
    assert usable([run(1, 5, 9, 1), run(2, 12, 20, 1)], 4, 1) == [run(1, 5, 9, 1)]
    assert usable([run(1, 3, 9, 1)], 4, 1) == []
    assert usable([run(1, 5, 9, 1)], 4, 2) == []


def test_a_run_that_refers_to_rows_of_another_base_is_not_used() -> None:
    whole, refers = run(1, 5, 9, 1), replace(run(2, 10, 12, 1), missing=True, base_index=4)
    assert usable([whole, refers], 4, 1) == [whole, refers]
    assert usable([refers], 9, 1) == []
    assert usable([replace(refers, base_index=-1)], 9, 1) == [], "an earlier version did not say of which base"
    assert usable([replace(refers, missing=False)], 9, 1) == [replace(refers, missing=False)]


def test_a_truncate_in_a_later_slice_ends_what_earlier_ones_brought(tmp_path: Path) -> None:
    log = Log(tmp_path, 3, at_once=1, truncates=False, steps=4)
    log.history.changes[2].op, log.history.changes[2].row = Op.TRUNCATE, {}
    layout = Layout(1, 0, (CoveredSpan(WHOLE, 0, 0),), True)
    with log.overlays.use(log.relation, layout, 3) as overlay:
        assert overlay.layers == () and overlay.emptied == {0}
