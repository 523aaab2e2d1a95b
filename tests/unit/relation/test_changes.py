"""A relation's changes in tiny slices out of a real changelog: nothing is lost or doubled, whatever is cached."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.meta import relations
from headwater.model import Bound, Column, Op, RelationInfo, Span, UpstreamType
from headwater.relation.changes import LoggedChanges, _within
from headwater.settings.table import Settings
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, relation, row
from support.relation import Change, changes_table, columns_of, relation_of

COLUMNS = (Column("id", "INT", UpstreamType("int4", 23, ordered=True), False),)
ROW_BYTES = 40  # about what a decoded change takes


class Logged:
    """A changelog in which two tables take turns; the value of each change is its index."""

    def __init__(self, path: Path) -> None:
        self.log = Log(path)
        rng = random.Random(2)
        self.of: dict[int, list[int]] = {1: [], 2: []}
        index = 0
        for n in range(15):
            messages = [begin(101 + n), relation(1, "id"), relation(2, "id")]
            for _ in range(rng.randint(1, 12)):
                index += 1
                table = rng.choice((1, 1, 2))
                self.of[table].append(index)
                messages.append(row("I", table, _values(index)))
            self.log.write(*messages, commit(200 + n))
        self.last = index
        with self.log.home.meta.write() as c:
            ids = [add_table(c, f"t{n}", COLUMNS, ("id",), connection_id=self.log.id, upstream_id=n) for n in (1, 2)]
            self.tables = [relations.get(c, id) for id in ids]

    def changes(self, **settings: int) -> LoggedChanges:
        return LoggedChanges(self.log.home.storage, self.log.home.meta, settings=Settings(**settings))  # type: ignore[arg-type]

    def check(
        self, changes: LoggedChanges, table: RelationInfo, after: int, upto: int, *, before: bool = False
    ) -> list[pa.Table]:
        """Asserts that a range comes completely, slice after slice."""
        found = list(changes.slices(table, after, upto, before=before))
        assert [s.after for s in found] == [after, *(s.upto for s in found[:-1])] and found[-1].upto == upto
        for s in found:
            assert all(s.after < i <= s.upto for i in s.table["__index"].to_pylist())
        got = [i for s in found for i in s.table["__index"].to_pylist()]
        assert got == [i for i in self.of[table.origin.upstream_id] if after < i <= upto], (after, upto)
        assert [v for s in found for v in s.table["id"].to_pylist()] == got, "each with its own values"
        return [s.table for s in found]


def _values(value: int) -> bytes:
    text = str(value).encode()
    return b"N" + struct.pack("!H", 1) + b"t" + struct.pack("!I", len(text)) + text


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    it = Logged(tmp_path_factory.mktemp("log") / "home")
    yield it
    it.log.home.meta.close()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("most", [1, 2, 5, 1000])
def test_slices_of_every_range_are_everything(logged: Logged, most: int, before: bool) -> None:
    for after in range(0, logged.last, 11):
        for upto in (after + 1, (after + logged.last) // 2 + 1, logged.last):
            parts = logged.check(logged.changes(slice_changes=most), logged.tables[0], after, upto, before=before)
            assert all(t.num_rows <= most for t in parts)


@pytest.mark.parametrize("before", [False, True])
def test_a_slice_also_ends_when_it_has_enough_bytes(logged: Logged, before: bool) -> None:
    """A single change that is larger comes anyway."""
    for size, least in ((1, 1), (5 * ROW_BYTES, 2)):
        parts = logged.check(logged.changes(slice_bytes=size), logged.tables[0], 0, logged.last, before=before)
        assert least <= max(t.num_rows for t in parts) <= max(1, 10 * size // ROW_BYTES)
        assert len(parts) > 3


def test_asking_again_from_the_beginning_gives_all_of_it_though_the_cache_moved_on(logged: Logged) -> None:
    changes, table = logged.changes(slice_changes=4, tail_changes=3), logged.tables[0]
    for _ in range(3):
        logged.check(changes, table, 0, logged.last)
    assert changes._kept[table.id].table.num_rows < len(logged.of[1]), "what was read is dropped"
    logged.check(changes, table, logged.last // 2, logged.last)
    logged.check(changes, table, 1, logged.last)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("memory", [1, 300, 1 << 20])
def test_any_order_of_readers_gets_everything_though_the_cache_is_trimmed_and_evicted(
    logged: Logged, memory: int, seed: int
) -> None:
    rng = random.Random(seed)
    changes = logged.changes(slice_changes=rng.randint(1, 9), tail_changes=rng.randint(1, 9), tail_memory_bytes=memory)
    for _ in range(40):
        after = rng.randrange(logged.last)
        upto = rng.randint(after + 1, logged.last)
        table = rng.choice(logged.tables)
        logged.check(changes, table, after, upto, before=rng.random() < 0.2)
        if rng.random() < 0.1:
            changes.forget(table.id)


def test_readers_that_take_turns_slice_by_slice_do_not_disturb_each_other(logged: Logged) -> None:
    changes = logged.changes(slice_changes=3, tail_changes=2)
    readers = [(after, changes.slices(logged.tables[0], after, logged.last)) for after in (0, 20, 50, 5)]
    got: dict[int, list[int]] = {after: [] for after, _ in readers}
    open = list(readers)
    while open:
        for reader in list(open):
            after, slices = reader
            part = next(slices, None)
            if part is None:
                open.remove(reader)
            else:
                got[after] += part.table["__index"].to_pylist()
    assert got == {after: [i for i in logged.of[1] if i > after] for after, _ in readers}


def test_a_span_keeps_its_changes_of_every_slice(logged: Logged) -> None:
    span = Span(Bound(("10",)), Bound(("60",)))
    parts = list(logged.changes(slice_changes=3).slices(logged.tables[0], 0, logged.last, within=span))
    found = [i for p in parts for i in p.table["id"].to_pylist()]
    assert found == [i for i in logged.of[1] if 10 < i <= 60] and parts[-1].upto == logged.last


def test_a_span_also_keeps_a_change_that_moved_a_row_out_of_it() -> None:
    columns, key = columns_of(), ("k",)
    moved = [Change(1, 10, Op.UPDATE, {"k": 70}, old=(20,)), Change(2, 20, Op.UPDATE, {"k": 80}, old=(70,))]
    truncate = Change(3, 30, Op.TRUNCATE, {})
    table = changes_table([*moved, truncate], columns, key)
    found = _within(relation_of(columns, key), table, Span(Bound(("10",)), Bound(("60",))))
    assert found["__index"].to_pylist() == [1, 3]
