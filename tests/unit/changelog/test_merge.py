"""Merged segments: the same changes, transactions and schema versions as before, in fewer files."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import crash
from headwater.changelog import merge, reader
from headwater.errors import FencedError
from headwater.meta import connections, merged, segments, tables
from headwater.meta.merged import Aged
from headwater.model import Op, Part, Segment
from support.log import Log
from support.messages import begin, commit, relation, row, truncate
from support.owned import acquired, taken_over

MB = 1 << 20
NOW = 10 * merge.PERIOD_S + 1800.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    it = Log(tmp_path)
    yield it
    it.home.meta.close()


def merge_once(log: Log, *, now: float, age_s: float, **options: Any) -> Segment | None:
    """As the server does it."""
    with log.home.meta.write() as c:
        lease = acquired(c)
    return merge.merge_once(log.home.meta, log.home.storage, log.id, lease, now=now, age_s=age_s, **options)


def contents(log: Log, tables: tuple[int, ...] = (1, 2, 3)) -> Any:
    """Everything that a reader can get of the changelog."""
    with log.home.meta.read() as c:
        found = segments.in_range(c, log.id, 0, 10**9)
    done = reader.read_transactions(log.home.storage, [s.path for s in found]).to_pylist()
    return [log.read(t) for t in tables], done, [log.read(t, 3, 7) for t in tables]


def written(log: Log, sizes: list[int], cuts: list[int]) -> None:
    """A segment per size: a transaction of so many rows in three tables, with other columns after the cuts."""
    version = 0
    for i, size in enumerate(sizes):
        version += i in cuts
        columns = ("a", "b", "c")[: 1 + version % 3]
        rows = [row("I", 1 + j % 3, b"N\0" + bytes([j % 250]) * (j % 7)) for j in range(size)]
        told = [relation(t, *columns) for t in (1, 2, 3)] if i == 0 or i in cuts else []
        log.write(begin(100 + i), *told, *rows, truncate(1, 2), commit(200 + 10 * i))


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=12),
    cuts=st.lists(st.integers(1, 11), max_size=3),
    changes=st.sampled_from([1, 3, 25_000]),
    held=st.sampled_from([1, 200, 64 * MB]),
)
def test_merged_segments_are_the_segments_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cuts: list[int], changes: int, held: int
) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "PART_CHANGES", changes)
        patch.setattr(merge, "HELD_BYTES", held)
        patch.setattr(merge, "LEAST", 2)
        written(log, sizes, cuts)
        before = contents(log)
        with log.home.meta.read() as c:
            old = segments.in_range(c, log.id, 0, 10**9)
            newest = merged.aged(c, log.id, time.time() + 1)[-1].created_at
            oldest = segments.published_after(c, log.id, 0)
        new = merge_once(log, now=time.time() + 1, age_s=0.5)
    assert new is not None and contents(log) == before
    assert all(p.changes <= changes for p in new.parts), "a reader of the last changes does not unpack them all"
    with log.home.meta.read() as c:
        left = segments.in_range(c, log.id, 0, 10**9)
        assert segments.count_changes(c, log.id, 1, 0, 10**9) == len(before[0][0])
        check_truncates(log, segments.of_table(c, log.id, 1, 0, 10**9), len(sizes))
        check_numbers(left, old)
        assert merged.aged(c, log.id, time.time() + 1)[-1].created_at == newest, "retention counts from the newest"
        assert segments.published_after(c, log.id, 0) == oldest, "and holds from the oldest"
    log.home.meta.close()


def check_truncates(log: Log, pieces: list[tuple[str, Part]], count: int) -> None:
    """The parts say how many TRUNCATEs they hold; whoever looks for them reads no other."""
    emptying = [(path, part) for path, part in pieces if part.truncates]
    assert sum(part.truncates for _, part in emptying) == count
    rows = reader.read_table(log.home.storage, emptying, 0, 10**9)
    assert rows["op"].to_pylist().count(int(Op.TRUNCATE)) == count


def check_numbers(left: list[Segment], old: list[Segment]) -> None:
    """Indexes, transactions and parts of what is left say what the old ones said."""
    assert (left[0].first_index, left[-1].last_index) == (old[0].first_index, old[-1].last_index)
    for a, b in itertools.pairwise(left):
        assert b.first_index == a.last_index + 1
    for s in left:
        inside = [o for o in old if s.first_index <= o.first_index and o.last_index <= s.last_index]
        assert (s.txn_min, s.txn_max) == (min(o.txn_min for o in inside), max(o.txn_max for o in inside))
        assert s.committed_index == inside[-1].committed_index
        for key in {(p.upstream_id, p.schema_id) for o in inside for p in o.parts}:
            mine = [p for p in s.parts if (p.upstream_id, p.schema_id) == key]
            theirs = [p for o in inside for p in o.parts if (p.upstream_id, p.schema_id) == key]
            assert sum(p.changes for p in mine) == sum(p.changes for p in theirs)
            assert sum(p.truncates for p in mine) == sum(p.truncates for p in theirs)
            assert min(p.first_index for p in mine) == min(p.first_index for p in theirs)
            assert max(p.last_index for p in mine) == max(p.last_index for p in theirs)


def test_nothing_of_an_open_transaction_or_of_the_last_minute_is_merged(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "LEAST", 2)
    written(log, [2, 2, 2], [])
    log.write(begin(900), row("I", 1), row("I", 1))  # a piece; its commit is still to come
    committed = log.info().committed_index
    assert merge_once(log, now=time.time(), age_s=60) is None
    new = merge_once(log, now=time.time() + 61, age_s=60)
    assert new is not None and new.last_index == committed < log.info().last_index
    with log.home.meta.write() as c:
        assert len(segments.cut_back(c, log.id)) == 1, "the piece is cut back alone"
    assert [r["index"] for r in log.read(1)][-1] <= committed


def test_old_files_stay_for_a_reader_that_has_chosen_them_and_go_when_told(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "LEAST", 2)
    written(log, [3, 3, 3], [])
    with log.home.meta.read() as c:
        chosen = segments.of_table(c, log.id, 1, 0, 100)
    new = merge_once(log, now=time.time() + 61, age_s=60)
    assert new is not None
    assert reader.read_table(log.home.storage, chosen, 0, 100).num_rows == len(log.read(1))
    with log.home.meta.write() as c:
        assert merged.remove_retired(c, time.time() - 100) == []
        assert sorted(merged.remove_retired(c, time.time() + 1)) == sorted({path for path, _ in chosen})
        assert merged.paths(c, log.id) == {new.path}


def test_a_merge_that_lost_a_race_or_its_lease_leaves_no_file_and_changes_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "LEAST", 2)
    written(log, [3, 3, 3], [])
    before, files = contents(log), list(log.home.storage.list("changelog"))

    with log.home.meta.write() as c:
        stale = acquired(c)
        taken_over(c, by="me")
    with pytest.raises(FencedError):
        merge.merge_once(log.home.meta, log.home.storage, log.id, stale, now=time.time() + 61, age_s=60)
    assert (contents(log), list(log.home.storage.list("changelog"))) == (before, files)

    def removed(point: str) -> None:
        with log.home.meta.write() as c:
            connections.remove(c, log.id)

    monkeypatch.setattr(crash, "here", removed)
    assert merge_once(log, now=time.time() + 61, age_s=60) is None
    assert list(log.home.storage.list("changelog")) == files


def sizes_of(*sizes: int, at: float = NOW - 60) -> list[Aged]:
    return [Aged(i + 1, i + 1, size, at) for i, size in enumerate(sizes)]


def test_few_small_segments_wait_until_their_period_is_over() -> None:
    few = sizes_of(*[1000] * (merge.LEAST - 1))
    assert merge.plan(few, NOW) is None
    assert merge.plan(few, NOW + merge.PERIOD_S) == (1, len(few))
    assert merge.plan(sizes_of(*[1000] * merge.LEAST), NOW) == (1, merge.LEAST)


def test_a_gap_or_another_period_is_not_merged_over() -> None:
    first = sizes_of(*[1000] * merge.LEAST)
    later = [Aged(s.first_index + 100, s.last_index + 100, s.bytes, s.created_at) for s in first]
    assert merge.plan([*first, *later], NOW) == (1, merge.LEAST)
    other = sizes_of(*[10] * 3, at=NOW - merge.PERIOD_S)
    joined = [*other, *(Aged(s.first_index + 3, s.last_index + 3, s.bytes, s.created_at) for s in first)]
    assert merge.plan(joined, NOW) == (1, 3)


def arrive(sizes: list[int], now: float, most: int = 1000) -> tuple[list[Aged], int]:
    """The segments that are left when so many have arrived one by one, and how many bytes were copied for that."""
    left: list[Aged] = []
    copied = 0
    for i, size in enumerate(sizes):
        left.append(Aged(i + 1, i + 1, size, NOW - 60))
        while (due := merge.plan(left, now, most_bytes=most)) is not None:
            inside = [s for s in left if due[0] <= s.first_index and s.last_index <= due[1]]
            total = sum(s.bytes for s in inside)
            assert len(inside) >= 2 and total <= most
            copied += total
            at = left.index(inside[0])
            left[at : at + len(inside)] = [Aged(due[0], due[1], total, NOW - 60)]
    return left, copied


@settings(max_examples=100)
@given(st.lists(st.integers(1, 80), min_size=1, max_size=300), st.booleans())
def test_merging_ends_with_few_segments(sizes: list[int], over: bool) -> None:
    left, _ = arrive(sizes, NOW + (merge.PERIOD_S if over else 0))
    full = [s for s in left if s.bytes >= 500]
    assert [s.first_index for s in left] == [1, *(s.last_index + 1 for s in left[:-1])]
    assert len(full) <= sum(sizes) / 500
    assert len(left) - len(full) <= (8 if over else merge.LEAST * 8) + 8 * len(full)


def test_a_change_is_copied_a_few_times_however_many_segments_follow() -> None:
    count = 1500
    left, copied = arrive([1] * count, NOW, most=10 * count)
    print(f"{copied / count:.1f} copies of each, {len(left)} left")
    assert len(left) < 3 * merge.LEAST and copied <= 8 * count


def test_a_part_counts_by_the_share_that_lies_in_the_range(log: Log) -> None:
    with log.home.meta.write() as c:
        c.execute(
            sa.insert(tables.part).values(
                connection_id=log.id,
                segment_index=1,
                batch=0,
                upstream_id=1,
                schema_id=1,
                changes=1000,
                truncates=0,
                first_index=1,
                last_index=2000,
            )
        )
        counts = [
            segments.count_changes(c, log.id, 1, after, upto)
            for after, upto in [(0, 2000), (1000, 2000), (1999, 2000), (2000, 3000), (500, 1500), (7, 7)]
        ]
    assert counts == [1000, 500, 1, 0, 500, 0]
