"""Overlays of an owner: the runs that it makes on the way are right for whoever reads later, after a fold too."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.changelog import retention
from headwater.engine.commit import clean
from headwater.engine.commit.sweep import Sweeper
from headwater.errors import FencedError, HeadwaterError
from headwater.meta import epochs, relations, segments
from headwater.meta import runs as meta_runs
from headwater.meta.store import Meta
from headwater.model import (
    Column,
    CoveredSpan,
    EpochEntry,
    Layout,
    Op,
    Part,
    RelationInfo,
    Segment,
    Span,
    TableState,
    UpstreamType,
)
from headwater.ownership.lease import Leases
from headwater.relation import overlay, runs
from headwater.relation.layers import read_layer
from headwater.relation.overlay import TAIL_FOLDER, Overlays
from headwater.relation.schema import overlay_schema
from headwater.settings.table import DEFAULTS
from headwater.storage import LocalStorage
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, relation, row
from support.owned import acquired, taken_over
from support.relation import Change, History, ScriptedChanges, applied, columns_of, relation_of

WHOLE = Span(None, None)
SLICES = replace(DEFAULTS, slice_changes=1)  # so that every reader that may makes runs


def never(saw: object, txn: Any) -> Any:
    return txn < 0


def moved(reused: bool) -> History:
    """A row moves from key 1 to 2 and is changed again, both times without its large value `t`."""
    h = History(columns_of(), ("k",), random.Random(1))
    h.states = [{(1,): values(1, "large")}]
    change(h, Op.UPDATE, values(2, None, 1), old=(1,))
    if reused:
        change(h, Op.INSERT, values(1, "of another row"))
    while len(h.changes) < 8:
        change(h, Op.INSERT, values(50 + len(h.changes), "x"))
    change(h, Op.UPDATE, values(2, None, 9))
    change(h, Op.INSERT, values(90, "x"))
    return h


def values(k: int, t: str | None, n: int = 0) -> dict[str, Any]:
    return {"n": n, "k": k, "a`b.c": "x", "t": t}


def change(h: History, op: Op, row: dict[str, Any], old: tuple[int, ...] | None = None) -> None:
    index, state = len(h.changes) + 1, dict(h.now)
    lacks = op is Op.UPDATE
    full = {**row, "t": (state.pop(old) if old else state[(row["k"],)])["t"]} if lacks else row
    state[(row["k"],)] = full
    carried = {k: v for k, v in row.items() if not (lacks and k == "t")}
    h.changes.append(Change(index, index * 10, op, carried, (3,) if lacks else (), old))
    h.states.append(state)


@pytest.mark.parametrize("reused", [False, True])
def test_a_run_made_during_a_fold_is_not_laid_over_the_base_that_the_fold_made(tmp_path: Path, reused: bool) -> None:
    h = moved(reused)
    t = relation_of(h.columns, h.key)
    storage, meta = LocalStorage(tmp_path), Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    before = Layout(1, 0, (CoveredSpan(WHOLE, 0, 0, (), 1),), True)
    after = Layout(1, 1, (CoveredSpan(WHOLE, 8, 0, (), 1),), True)
    with meta.write() as c:
        segments.insert(c, Segment(1, 1, 8, 8, "s1", 1, 10, 80, (Part(t.origin.upstream_id, 1, 0, 8, 1, 8),)))
        epochs.publish(c, [EpochEntry(1, 8, "0/8")], {1: before})
        leases = Leases(acquired(c))
    owner = Overlays(storage, meta, leases=leases, changes=ScriptedChanges(h), sees=never, settings=SLICES)
    with owner.use(t, before, 8):  # what the fold reads
        pass
    with meta.write() as c:
        segments.insert(c, Segment(1, 9, 10, 10, "s2", 1, 90, 100, (Part(t.origin.upstream_id, 1, 0, 2, 9, 10),)))
        epochs.publish(c, [EpochEntry(1, 10, "0/10")], {})
    with owner.use(t, before, 10):  # a query while it merges
        pass
    with meta.write() as c:
        meta_runs.retire_folded(c, 1, 8)
        epochs.publish(c, [EpochEntry(1, 10, "0/10")], {1: after})
        assert meta_runs.live(c, 1, 8, 10), "the query's run is still there"
    for reader in (owner, Overlays(storage, meta, changes=ScriptedChanges(h), sees=never)):
        with reader.use(t, after, 10) as used:
            rows: dict[int, dict[str, Any]] = {}
            for layer in used.layers:
                rows.update({r["k"]: r for r in read_layer(storage, t, layer.path).to_pylist()})
        netted = pa.Table.from_pylist(list(rows.values()), schema=overlay_schema(h.columns, h.key))
        assert applied(h.states[8], netted, h.columns, h.key) == (h.states[10], set())
    meta.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ten inserts, a segment each."""
    log = Log(tmp_path / "home")
    for n in range(1, 11):
        tuple_ = b"N" + struct.pack("!H", 1) + b"t" + struct.pack("!I", len(str(n))) + str(n).encode()
        log.write(begin(100 + n), relation(1, "a"), row("I", 1, tuple_), commit(200 + n))
    yield log
    log.home.meta.close()


def defined(log: Log) -> tuple[RelationInfo, Layout, Leases]:
    """A table over the log whose base holds nothing of it, and its owner."""
    columns = (Column("a", "INT", UpstreamType("int4", 23, ordered=True), False),)
    with log.home.meta.write() as c:
        id = add_table(c, "t", columns, ("a",), connection_id=log.id, upstream_id=1)
        relations.set_state(c, id, TableState.LIVE)
        layout = Layout(id, 0, (CoveredSpan(WHOLE, 0, 0, (), log.id),), True)
        epochs.publish(c, [EpochEntry(log.id, 10, "0/1")], {id: layout})
        return relations.get(c, id), layout, Leases(acquired(c))


def live_runs(log: Log, t: RelationInfo) -> list[str]:
    with log.home.meta.read() as c:
        return [r.path for r in meta_runs.live(c, t.id, 0, 10)]


def test_a_reader_from_before_a_fold_continues_to_use_the_runs_that_were_folded(log: Log) -> None:
    t, layout, leases = defined(log)
    Overlays(log.home.storage, log.home.meta, leases=leases).make_runs(t, layout, 10, 0)
    (run,) = live_runs(log, t)
    folded = Layout(t.id, 1, (CoveredSpan(WHOLE, 10, 0, (), log.id),), True)
    with log.home.meta.write() as c:
        meta_runs.retire_folded(c, t.id, 10)
        epochs.publish(c, [EpochEntry(log.id, 10, "0/1")], {t.id: folded})
    reader = Overlays(log.home.storage, log.home.meta)
    with reader.use(t, layout, 10) as before, reader.use(t, folded, 10) as after:
        assert [layer.path for layer in before.layers] == [run] and not before.temporary
        assert after.empty


def test_runs_are_not_merged_across_an_epoch_that_is_being_read(log: Log) -> None:
    t, layout, leases = defined(log)
    overlays = Overlays(log.home.storage, log.home.meta, leases=leases)
    with log.home.meta.write() as c:
        early = epochs.publish(c, [EpochEntry(log.id, 4, "0/1")], {})
        pin = epochs.take_pin(c, early.id, "reader")
    for upto in (4, 7, 10):
        overlays.make_runs(t, layout, upto, 0)
    with log.home.meta.write() as c:
        assert [(r.first_index, r.last_index) for r in meta_runs.live(c, t.id, 0, 10)] == [(1, 4), (5, 10)]
        epochs.release_pin(c, pin)


def test_an_owner_that_lost_its_lease_makes_no_run(log: Log) -> None:
    t, layout, leases = defined(log)
    with log.home.meta.write() as c:
        taken_over(c)
    with pytest.raises(FencedError):
        Overlays(log.home.storage, log.home.meta, leases=leases, settings=SLICES).at(t, layout, 10)
    assert live_runs(log, t) == []


def test_a_sweep_leaves_a_run_alone_that_is_being_written(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    t, layout, leases = defined(log)
    written, swept = runs.write_layer, list[int]()

    def sweep(*args: Any, **named: Any) -> None:
        written(*args, **named)
        Sweeper(log.home, leases).sweep()  # the file is there, and nobody has recorded it
        swept.append(1)

    monkeypatch.setattr(runs, "write_layer", sweep)
    Overlays(log.home.storage, log.home.meta, leases=leases, settings=SLICES).make_runs(t, layout, 10, 0)
    assert swept and live_runs(log, t) and all(log.home.storage.exists(path) for path in live_runs(log, t))


def test_who_waited_for_another_to_make_the_runs_makes_none(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    t, layout, leases = defined(log)
    overlays = Overlays(log.home.storage, log.home.meta, leases=leases)
    turn, others = runs.RunWriter._turn, list[int]()

    def late(self: runs.RunWriter, *args: Any) -> bool:
        if not others:
            others.append(1)
            assert overlays.make_runs(t, layout, 10, 0) == 0  # somebody else, who was first
        return turn(self, *args)

    monkeypatch.setattr(runs.RunWriter, "_turn", late)
    assert overlays.make_runs(t, layout, 10, 0) == 0
    with log.home.meta.read() as c:
        assert [(r.first_index, r.last_index) for r in meta_runs.live(c, t.id, 0, 10**6)] == [(1, 10)]


def test_a_tail_that_has_become_runs_leaves_no_files(log: Log) -> None:
    t, layout, leases = defined(log)
    overlays = Overlays(log.home.storage, log.home.meta, leases=leases)
    with overlays.use(t, layout, 10) as used:
        assert used.temporary
    overlays.make_runs(t, layout, 10, 0)
    assert live_runs(log, t) and not any(log.home.storage.exists(path) for path in used.temporary)


class Counted(Overlays):
    """Counts who nets a tail at the same time."""

    at_once = 0
    met = threading.Event()

    def _layered(self, *args: Any) -> Any:
        self.at_once += 1
        if self.at_once > 1:
            self.met.set()
        self.met.wait(0.3)
        self.at_once -= 1
        return super()._layered(*args)


@pytest.mark.parametrize(("tail_changes", "together"), [(5, False), (10, True)])
def test_long_tails_wait_for_each_other_and_short_ones_do_not(log: Log, tail_changes: int, together: bool) -> None:
    """A slice is bounded, and many slices at once would not be."""
    t, layout, _ = defined(log)
    overlays = Counted(log.home.storage, log.home.meta, settings=replace(DEFAULTS, tail_changes=tail_changes))
    overlays.met.clear()
    threads = [threading.Thread(target=overlays.at, args=(t, layout, 10)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert overlays.met.is_set() is together


def test_an_overlay_that_could_not_be_made_leaves_no_files(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    t, layout, _ = defined(log)
    overlays = Overlays(log.home.storage, log.home.meta, settings=SLICES)
    decoded = overlays.changes.slices

    def broken(*args: Any, **named: Any) -> Iterator[Any]:
        for number, part in enumerate(decoded(*args, **named)):
            if number == 3:
                assert list(log.home.storage.list(TAIL_FOLDER)), "some are written"
                raise HeadwaterError("sql.refused", "a change cannot be decoded")
            yield part

    monkeypatch.setattr(overlays.changes, "slices", broken)
    with pytest.raises(HeadwaterError):
        overlays.at(t, layout, 10)
    assert list(log.home.storage.list(TAIL_FOLDER)) == []


def test_a_sweep_takes_no_file_that_is_in_use_however_old_it_is(log: Log) -> None:
    t, layout, _ = defined(log)
    overlays = Overlays(log.home.storage, log.home.meta)
    with overlays.use(t, layout, 10) as used:
        overlays.forget(t.id)  # nobody gets it again, but it is being read
        overlays.sweep(older_than_s=-60)
        assert used.temporary and all(log.home.storage.exists(path) for path in used.temporary)
    assert not any(log.home.storage.exists(path) for path in used.temporary)


def test_an_overlay_is_made_again_before_its_runs_may_be_gone(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    t, layout, _ = defined(log)
    overlays = Overlays(log.home.storage, log.home.meta)
    first = overlays.at(t, layout, 10)
    assert overlays.at(t, layout, 10) is first
    assert overlay.FRESH_S < clean.RETIRED_KEPT_S, "what it names is still there while it is handed out"
    monkeypatch.setattr(overlay, "FRESH_S", 0.0)
    assert overlays.at(t, layout, 10) is not first


def test_a_reader_of_an_old_epoch_makes_no_runs(log: Log) -> None:
    """They would overlap with those that readers of the newest one make."""
    t, old, leases = defined(log)
    new = Layout(t.id, 1, (CoveredSpan(WHOLE, 5, 0, (), log.id),), True)
    with log.home.meta.write() as c:
        epochs.publish(c, [EpochEntry(log.id, 10, "0/1")], {t.id: new})
    overlays = Overlays(log.home.storage, log.home.meta, leases=leases, settings=SLICES)
    assert overlays.at(t, old, 10).rows == 10 and live_runs(log, t) == []
    assert overlays.at(t, new, 10).rows == 5 and live_runs(log, t) != []


@pytest.mark.parametrize(("held_upto", "whole"), [(3, False), (4, True)])
def test_history_is_whole_if_the_first_change_after_the_base_is_still_there(
    log: Log, held_upto: int, whole: bool
) -> None:
    t, _, _ = defined(log)
    assert retention.expire(log.home.meta, log.home.storage, log.id, needed_after=4, keep_s=-1)
    layout = Layout(t.id, 0, (CoveredSpan(WHOLE, held_upto, 0, (), log.id),), True)
    overlays = Overlays(log.home.storage, log.home.meta)
    if whole:
        assert overlays.at(t, layout, 10).rows == 6
        return
    with pytest.raises(HeadwaterError, match="changelog begins at 5"):
        overlays.at(t, layout, 10)


def test_no_run_is_made_over_changes_that_the_changelog_has_lost(log: Log) -> None:
    home = log.home
    t, layout, leases = defined(log)
    assert retention.expire(home.meta, home.storage, log.id, needed_after=4, keep_s=-1)
    for owner in (leases, None):
        with pytest.raises(HeadwaterError, match="changelog begins at 5") as e:
            Overlays(home.storage, home.meta, leases=owner, settings=SLICES).at(t, layout, 10)
        assert e.value.code == "data.history_missing"
    assert live_runs(log, t) == []


def test_a_file_that_is_not_ours_does_not_stop_the_sweep(log: Log) -> None:
    storage = log.home.storage
    odd, old = f"{TAIL_FOLDER}/.DS_Store", f"{TAIL_FOLDER}/rows-0123456789ab-1.parquet"
    for path in (odd, old):
        with storage.write(path) as f:
            f.write(b"x")
    Overlays(storage, log.home.meta).sweep()
    assert not storage.exists(old)
