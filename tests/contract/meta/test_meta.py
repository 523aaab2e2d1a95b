"""Meta: transactions, publication in sequence, pins; on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import itertools
import multiprocessing
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headwater.errors import JobError, MachineError
from headwater.meta import connections, epochs, relations, segments, settle, spans, tables
from headwater.meta.store import Meta
from headwater.model import Bound, DataFile, EpochEntry, Layout, LogColumn, Part, ScanResult, Segment, Span, SpanState
from support.defined import add_table
from support.scan_files import scan_files


@pytest.fixture(params=["sqlite", "postgres"])
def meta(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Meta]:
    url = f"sqlite:///{tmp_path / 'meta.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("database").dsn
    store = Meta(url)
    yield store
    store.close()


def _connection(c: Any, name: str = "shop") -> int:
    return connections.add(
        c,
        name=name,
        type="postgres-cdc",
        options={"hostname": "h"},
        secret="env:PW",
        identity={},
        position="0/10",
        txn=700,
        server_life="1",
    )


def _segment(id: int, first: int, last: int, committed: int | None = None) -> Segment:
    parts = (Part(16384, 1, 0, last - first + 1, first, last),)
    done = last if committed is None else committed
    return Segment(id, first, last, done, f"changelog/{id}/{first}.arrow", 10, 700, 710, parts)


def _publish(c: Any, new: Segment, position: str = "0/20") -> None:
    segments.publish(c, new, resume_position=position, position=position, last_txn=710)


@pytest.mark.parametrize(("txn_min", "start"), [(5, 0), (10, 0), (11, 3), (15, 3), (16, 6), (99, 6)])
def test_a_spans_log_begins_before_the_first_segment_that_may_hold_something_unseen(
    txn_min: int, start: int, meta: Meta
) -> None:
    with meta.write() as c:
        id = _connection(c)
        _publish(c, replace(_segment(id, 1, 3), txn_min=5, txn_max=10))
        _publish(c, replace(_segment(id, 4, 6), txn_min=2, txn_max=15))
        assert segments.first_unseen(c, id, txn_min, 6) == start


def test_a_segment_is_published_only_in_sequence(meta: Meta) -> None:
    with meta.write() as c:
        id = _connection(c)
        _publish(c, _segment(id, 1, 5))
    with pytest.raises(JobError), meta.write() as c:
        _publish(c, _segment(id, 7, 9))
    with meta.write() as c:
        _publish(c, _segment(id, 6, 9))
        assert connections.get(c, id).last_index == 9


def test_cutting_back_forgets_the_open_transaction_and_its_schema_versions(meta: Meta) -> None:
    column = LogColumn("id", 23, -1, True)
    with meta.write() as c:
        id = _connection(c)
        first = segments.add_schema(
            c, id, upstream_id=1, from_index=1, schema="public", table="t", identity="d", columns=[column]
        )
        _publish(c, _segment(id, 1, 5))
        _publish(c, _segment(id, 6, 9, committed=5))
        wider = [column, LogColumn("v", 25, -1, False)]
        segments.add_schema(c, id, upstream_id=1, from_index=8, schema="public", table="t", identity="d", columns=wider)
        assert segments.cut_back(c, id) == [f"changelog/{id}/6.arrow"]
        assert connections.get(c, id).last_index == 5
        assert segments.schemas(c, id) == [first]
        _publish(c, _segment(id, 6, 6))


@pytest.mark.parametrize(("from_index", "kept"), [(5, True), (6, True), (7, False), (8, False), (9, False)])
def test_cutting_back_keeps_what_describes_committed_rows_and_the_first_that_comes_again(
    meta: Meta, from_index: int, kept: bool
) -> None:
    """Rows 1 to 5 are committed; row 6 comes again first and is described alike, what comes after it may not be."""
    with meta.write() as c:
        id = _connection(c)
        _publish(c, _segment(id, 1, 5), position="0/50")
        _publish(c, _segment(id, 6, 7, committed=5), position="0/50")
        _publish(c, _segment(id, 8, 9, committed=5), position="0/50")
        column = LogColumn("id", 23, -1, True)
        segments.add_schema(
            c, id, upstream_id=1, from_index=from_index, schema="public", table="t", identity="d", columns=[column]
        )
        assert segments.cut_back(c, id) == [f"changelog/{id}/6.arrow", f"changelog/{id}/8.arrow"]
        assert bool(segments.schemas(c, id)) is kept
        assert [s.first_index for s in segments.in_range(c, id, 0, 100)] == [1]
        assert segments.parts(c, id, 6) == segments.parts(c, id, 8) == ()
        now = connections.get(c, id)
        assert (now.last_index, now.committed_index, now.resume_position) == (5, 5, "0/50")
        assert segments.cut_back(c, id) == [], "safe to repeat"
        _publish(c, _segment(id, 6, 6))


def test_a_segment_that_ends_inside_a_transaction_it_did_not_begin_is_never_cut(meta: Meta) -> None:
    with meta.write() as c:
        id = _connection(c)
        _publish(c, _segment(id, 1, 5, committed=3))
        with pytest.raises(JobError):
            segments.cut_back(c, id)


def test_the_same_schema_again_is_the_same_version(meta: Meta) -> None:
    column = LogColumn("id", 23, -1, True)
    with meta.write() as c:
        id = _connection(c)
        ids = {
            segments.add_schema(
                c, id, upstream_id=1, from_index=i, schema="public", table="t", identity="d", columns=[column]
            ).id
            for i in (1, 5, 9)
        }
    assert len(ids) == 1


def test_a_scan_that_stopped_early_leaves_its_rest_pending_and_in_order(meta: Meta) -> None:
    with meta.write() as c:
        whole = [Span(None, Bound(("9",))), Span(Bound(("9",)), Bound(("20",))), Span(Bound(("20",)), None)]
        spans.add(c, 1, whole, 0.0)
        first = spans.all(c, 1)[0]
        result = ScanResult("1:2:", "0/1", (DataFile("f", 1, 1, "{}"),), 1, {}, Bound(("4",)))
        spans.scanned(c, first.id, result, 0, "life")
        after = spans.all(c, 1)
        assert [s.span.hi.key[0] if s.span.hi else None for s in after] == ["4", "9", "20", None]
        assert [s.state for s in after] == [SpanState.SCANNED] + [SpanState.PENDING] * 3
        assert scan_files(c, 1) == {"f"}


def test_settled_neighbours_become_one_span(meta: Meta) -> None:
    with meta.write() as c:
        bounds = [None, *(Bound((str(i),)) for i in range(1, 10)), None]
        spans.add(c, 1, [Span(a, b) for a, b in itertools.pairwise(bounds)], 0.0)
        for s in spans.all(c, 1):
            spans.scanned(c, s.id, ScanResult("1:2:", "0/1", (), 7), 0, "life")
            spans.cover(c, s.id, 3)
        settle.move(c, 1, [s.id for s in spans.all(c, 1)], 3)
        assert settle.join(c, 1) == 9
        (one,) = spans.all(c, 1)
        assert one.span == Span(None, None) and one.rows == 70


def test_a_layout_holds_from_its_epoch_until_the_next_one(meta: Meta) -> None:
    a, b = Layout(1, 3, (), False), Layout(1, 4, (), True)
    with meta.write() as c:
        first = epochs.publish(c, [EpochEntry(1, 5, "0/5")], {1: a})
        second = epochs.publish(c, [EpochEntry(1, 6, "0/6")], {})
        third = epochs.publish(c, [EpochEntry(1, 7, "0/7")], {1: b})
        assert [epochs.layout_at(c, 1, e.id) for e in (first, second, third)] == [a, a, b]
        epochs.thin(c, second.created_at)
        assert epochs.get(c, first.id) is None
        assert epochs.layout_at(c, 1, second.id) == a
        epochs.thin(c, time.time() + 1)
        assert epochs.layout_at(c, 1, second.id) is None
        assert epochs.newest(c) == third and epochs.layout_at(c, 1, third.id) == b, "the newest always stays"


@pytest.mark.parametrize("seed", range(8))
def test_thinning_keeps_what_pins_and_the_newest_epoch_see_and_nothing_else(meta: Meta, seed: int) -> None:
    r = random.Random(seed)
    with meta.write() as c:
        for version in range(30):
            changed = {id: Layout(id, version, (), True) for id in (1, 2) if r.random() < 0.3 or not version}
            epochs.publish(c, [EpochEntry(1, version, "0/1")], changed)
        all_epochs = epochs.recent(c, 100)
        pinned = r.sample(all_epochs[1:], r.randrange(4))
        for e in pinned:
            epochs.take_pin(c, e.id, "reader")
        kept = sorted({e.id for e in (*pinned, all_epochs[0])})
        seen = {(id, e): epochs.layout_at(c, id, e) for id in (1, 2) for e in kept}
        assert epochs.thin(c, time.time() + 1) == 30 - len(kept)
        assert sorted(e.id for e in epochs.recent(c, 100)) == kept and epochs.oldest(c) == kept[0]
        assert {(id, e): epochs.layout_at(c, id, e) for id in (1, 2) for e in kept} == seen
        for id in (1, 2):
            of = {seen[id, e].base_version for e in kept}  # type: ignore[union-attr]
            assert epochs.base_versions(c, id) == of
        assert c.execute(sa.select(sa.func.count()).select_from(tables.layout)).scalar() == sum(
            len({seen[id, e] for e in kept}) for id in (1, 2)
        )
        assert c.execute(sa.select(sa.func.count()).select_from(tables.cut)).scalar() == len(kept)


def test_what_was_retired_before_the_oldest_running_statement_may_go(meta: Meta) -> None:
    with meta.write() as c:
        assert epochs.unread_since(c) <= time.time()
        first = epochs.publish(c, [], {})
        epochs.publish(c, [], {})
        old = epochs.take_pin(c, first.id, "reader")
        assert epochs.unread_since(c) == first.created_at
        epochs.release_pin(c, old)
        assert epochs.unread_since(c) > first.created_at


def test_schema_versions_that_no_change_needs_go_but_never_a_tables_newest(meta: Meta) -> None:
    with meta.write() as c:
        id = _connection(c)
        made = [
            segments.add_schema(
                c,
                id,
                upstream_id=upstream,
                from_index=i,
                schema="public",
                table="t",
                identity="d",
                columns=[LogColumn(f"c{i}", 23, -1, True)],
            ).id
            for upstream in (1, 2)
            for i in range(3)
        ]
        part = Part(1, made[1], 0, 1, 1, 1)
        _publish(c, Segment(id, 1, 1, 1, "s", 1, 700, 700, (part,)))
        segments.remove_schemas(c)
        assert [v.id for v in sorted(segments.schemas(c, id), key=lambda v: v.id)] == [made[1], made[2], made[5]]


def test_an_expired_pin_protects_nothing(meta: Meta) -> None:
    with meta.write() as c:
        epochs.take_pin(c, 3, "gone", seconds=-1)
        kept = epochs.take_pin(c, 5, "alive")
        assert epochs.oldest_pinned(c) == 5
        epochs.release_pin(c, kept)
        assert epochs.oldest_pinned(c) is None


def test_the_id_of_a_dropped_table_is_never_used_again(meta: Meta) -> None:
    with meta.write() as c:
        first = add_table(c, "t")
        relations.remove(c, first)
        assert add_table(c, "t") > first


def test_a_home_of_a_newer_version_is_refused_and_left_alone(meta: Meta) -> None:
    with meta.write() as c:
        c.execute(sa.update(tables.home).values(version=tables.VERSION + 1))
    with pytest.raises(MachineError) as e:
        Meta(meta.url)
    assert e.value.code == "home.newer" and e.value.exit_status == 3


def test_a_failed_transaction_leaves_nothing_behind(meta: Meta) -> None:
    with pytest.raises(RuntimeError), meta.write() as c:
        _connection(c)
        raise RuntimeError
    with meta.read() as c:
        assert connections.all(c) == []


def _count_up(url: str, times: int) -> None:
    store = Meta(url)
    for _ in range(times):
        with store.write() as c:
            version = c.execute(sa.select(tables.lease.c.fence).where(tables.lease.c.name == "n")).scalar_one()
            c.execute(sa.update(tables.lease).where(tables.lease.c.name == "n").values(fence=version + 1))
    store.close()


def test_what_meta_commits_is_durable_on_a_server_that_does_not_wait_for_its_disk(database: Any) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
    store = Meta(database.dsn)
    with store.read() as c:
        assert c.exec_driver_sql("SHOW synchronous_commit").scalar() == "off"
    with store.write() as c:
        assert c.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    store.close()


def test_three_processes_that_read_and_then_write_lose_nothing(tmp_path: Path) -> None:
    """Hazard 58: with a plain BEGIN most of these transactions fail with "database is locked"."""
    url = f"sqlite:///{tmp_path / 'meta.db'}"
    with Meta(url).write() as c:
        c.execute(sa.insert(tables.lease).values(name="n", owner="x", fence=1, expires_at=0.0))
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_count_up, args=(url, 50)) for _ in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join(120)
    assert [w.exitcode for w in workers] == [0, 0, 0]
    with Meta(url).read() as c:
        assert c.execute(sa.select(tables.lease.c.fence)).scalar_one() == 151
