"""Slices of a changelog: together they are everything, in order, and none is larger than the limit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest

from headwater.changelog.reader import Limit, read_slices, read_table
from headwater.meta import segments
from headwater.model import Part
from support.log import Log
from support.messages import begin, commit, relation, row

TABLE, OTHER = 1, 2
VALUE = b"N\0\0" + bytes(50)  # all of one size: the bytes of a slice can be foretold


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Segments of one or two transactions of one to nine changes, some of them another table's."""
    it = Log(tmp_path_factory.mktemp("log") / "home")
    rng = random.Random(1)
    for n in range(12):
        messages = [relation(TABLE, "a"), relation(OTHER, "a")]
        for txn in range(rng.randint(1, 2)):
            tables = rng.choices((TABLE, OTHER), (3, 1), k=rng.randint(1, 9))
            changes = [row(rng.choice("IUD"), table, VALUE) for table in tables]
            messages += [begin(101 + 2 * n + txn), *changes, commit(200 + 2 * n + txn)]
        it.write(*messages)
    yield it
    it.home.meta.close()


def pieces_of(log: Log, after: int, upto: int) -> list[tuple[str, Part]]:
    with log.home.meta.read() as c:
        return segments.of_table(c, log.id, TABLE, after, upto)


def sliced(log: Log, after: int, upto: int, limit: Limit) -> list[pa.Table]:
    """The slices of a range, after checking that each begins where the last one ended."""
    found = list(read_slices(log.home.storage, pieces_of(log, after, upto), after, upto, limit))
    assert found[-1][0] == upto
    begin = after
    for end, table in found:
        indexes = table["index"].to_pylist()
        assert begin < end and all(begin < i <= end for i in indexes)
        begin = end
    return [table for _, table in found]


@pytest.mark.parametrize("size", [1, 100, 300, 1 << 20])
@pytest.mark.parametrize("changes", [1, 2, 3, 7, 1000])
def test_slices_of_any_range_and_limit_are_together_what_is_read_at_once(log: Log, changes: int, size: int) -> None:
    last = log.info().last_index
    for after in range(0, last, 5):
        for upto in (*range(after + 1, last, 7), last):
            whole = read_table(log.home.storage, pieces_of(log, after, upto), after, upto)
            parts = sliced(log, after, upto, Limit(changes, size))
            assert pa.concat_tables(parts).equals(whole), (after, upto)
            assert all(t.num_rows for t in parts) or not whole.num_rows
            assert all(t.num_rows <= changes for t in parts)
            most = size + whole.nbytes // max(whole.num_rows, 1)  # what fits is an estimate
            assert all(t.num_rows == 1 or t.nbytes <= most for t in parts)


def test_a_slice_is_filled_across_segments_and_ends_inside_a_transaction(log: Log) -> None:
    last = log.info().last_index
    whole = read_table(log.home.storage, pieces_of(log, 0, last), 0, last)
    parts = sliced(log, 0, last, Limit(7, 1 << 20))
    assert [t.num_rows for t in parts[:-1]] == [7] * (len(parts) - 1)
    assert any(a["txn"][-1] == b["txn"][0] for a, b in pairwise(parts)), "inside a transaction"
    assert any(len(set(t["txn"].to_pylist())) > 2 for t in parts), "over more than one segment"
    by_size = sliced(log, 0, last, Limit(1000, 300))
    assert 1 < len(by_size) < whole.num_rows, "the bytes end a slice, too"
    assert len(sliced(log, 0, last, Limit(1000, 1 << 20))) == 1


def test_a_range_without_changes_is_one_empty_slice(log: Log) -> None:
    assert [t.num_rows for t in sliced(log, 10**6, 10**6 + 5, Limit(1, 1))] == [0]
