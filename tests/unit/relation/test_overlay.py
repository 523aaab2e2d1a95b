"""Overlays of an owner: the runs that it makes on the way are right for whoever reads later, after a fold too."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.changelog import retention
from headwater.errors import HeadwaterError
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
    Segment,
    Span,
    TableState,
    UpstreamType,
)
from headwater.ownership.lease import Leases
from headwater.relation.layers import read_layer
from headwater.relation.overlay import TAIL_FOLDER, Overlays
from headwater.relation.schema import overlay_schema
from headwater.settings.table import DEFAULTS
from headwater.storage import LocalStorage
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, relation, row
from support.owned import acquired
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
        with reader.use(t, after, 10) as overlay:
            rows: dict[int, dict[str, Any]] = {}
            for layer in overlay.layers:
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


def test_no_run_is_made_over_changes_that_the_changelog_has_lost(log: Log) -> None:
    home, columns = log.home, (Column("a", "INT", UpstreamType("int4", 23, ordered=True), False),)
    with home.meta.write() as c:
        id = add_table(c, "t", columns, ("a",), connection_id=log.id, upstream_id=1)
        relations.set_state(c, id, TableState.LIVE)
        layout = Layout(id, 0, (CoveredSpan(WHOLE, 0, 0, (), log.id),), True)
        epochs.publish(c, [EpochEntry(log.id, 10, "0/1")], {id: layout})
        leases, t = Leases(acquired(c)), relations.get(c, id)
    assert retention.expire(home.meta, home.storage, log.id, needed_after=4, keep_s=-1)
    for owner in (leases, None):
        with pytest.raises(HeadwaterError, match="changelog begins at 5") as e:
            Overlays(home.storage, home.meta, leases=owner, settings=SLICES).at(t, layout, 10)
        assert e.value.code == "data.history_missing"
    with home.meta.read() as c:
        assert meta_runs.live(c, id, 0, 10) == []


def test_a_file_that_is_not_ours_does_not_stop_the_sweep(log: Log) -> None:
    storage = log.home.storage
    odd, old = f"{TAIL_FOLDER}/.DS_Store", f"{TAIL_FOLDER}/rows-0123456789ab-1.parquet"
    for path in (odd, old):
        with storage.write(path) as f:
            f.write(b"x")
    Overlays(storage, log.home.meta).sweep()
    assert not storage.exists(old)
