"""Digests and comparison against naive models."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.changelog.reader import index_at
from headwater.check.compare import Comparison, compare, equal_but_for
from headwater.check.digest import Digest, digest, hashes, rows_in
from headwater.decode.values import arrow_schema
from headwater.model import Column, UpstreamType
from headwater.source.postgres.client.session import lsn_to_int

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(),
    "FLOAT": st.floats(width=32),
    "BOOLEAN": st.booleans(),
    "STRING": st.text(max_size=12),
    "BINARY": st.binary(max_size=12),
    "DATE": st.dates(),
    "TIMESTAMP": st.datetimes(timezones=st.just(datetime.UTC)),
    "DECIMAL(38,4)": st.decimals(
        allow_nan=False, allow_infinity=False, places=4, min_value=-(10**30), max_value=10**30
    ),
    "ARRAY<STRING>": st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=3),
    "ARRAY<INT>": st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3),
}
COLUMNS = tuple(Column(f"c{i}", kind, UpstreamType("any", 0)) for i, kind in enumerate(KINDS))
PLAIN = (Column("id", "INT", UpstreamType("int4", 23)), Column("v", "STRING", UpstreamType("text", 25)))


def batch_of(rows: list[dict[str, Any]], columns: Any = COLUMNS) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns))


def same(a: Any, b: Any) -> bool:
    """Equality of values as the lake means it: NaN is itself, -0.0 is not 0.0."""
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or (a == b and np.signbit(a) == np.signbit(b))
    return bool(a == b)


@settings(max_examples=60)
@given(st.data(), st.sampled_from(list(enumerate(KINDS))))
def test_hashes_are_equal_exactly_when_the_values_are(data: st.DataObject, kind: tuple[int, str]) -> None:
    i, name = kind
    values = st.one_of(st.none(), KINDS[name])
    a, b = data.draw(values), data.draw(values)
    column = (COLUMNS[i],)
    _, found = hashes(batch_of([{f"c{i}": a}, {f"c{i}": b}, {f"c{i}": a}], column), column, [f"c{i}"])
    assert found[0] == found[2]
    assert (found[0] == found[1]) == same(a, b)


@settings(max_examples=30)
@given(
    st.lists(st.fixed_dictionaries({f"c{i}": st.one_of(st.none(), s) for i, s in enumerate(KINDS.values())})),
    st.randoms(),
)
def test_a_digest_does_not_depend_on_order_slices_or_batches(
    rows: list[dict[str, Any]], random_: random.Random
) -> None:
    whole = digest([batch_of(rows)], COLUMNS, ["c0", "c5"])
    shuffled = rows[:]
    random_.shuffle(shuffled)
    batch = batch_of(shuffled)
    cut = random_.randint(0, len(rows))
    parts = digest([batch.slice(0, cut), batch.slice(cut)], COLUMNS, ["c0", "c5"])
    assert whole.rows == len(rows)
    assert not len(whole.differing(parts))


def test_neighbouring_columns_do_not_run_into_each_other() -> None:
    columns = (Column("a", "STRING", UpstreamType("text", 25)), Column("b", "STRING", UpstreamType("text", 25)))
    _, found = hashes(
        batch_of([{"a": "ab", "b": "c"}, {"a": "a", "b": "bc"}, {"a": None, "b": ""}, {"a": "", "b": None}], columns),
        columns,
        ["a"],
    )
    assert len(set(found.tolist())) == 4


def outcome(upstream: dict[int, str | None], lake: list[tuple[int, str | None]], **named: Any) -> Comparison:
    def batches(rows: list[tuple[int, str | None]]) -> list[pa.RecordBatch]:
        return [batch_of([{"id": k, "v": v} for k, v in rows], PLAIN)]

    theirs, ours = batches(list(upstream.items())), batches(lake)
    return compare(
        digest(theirs, PLAIN, ["id"]),
        digest(ours, PLAIN, ["id"]),
        ["id"],
        lambda ranges: pa.Table.from_batches(list(rows_in(theirs, PLAIN, ["id"], ranges))),
        lambda ranges: pa.Table.from_batches(list(rows_in(ours, PLAIN, ["id"], ranges))),
        **named,
    )


@settings(max_examples=100)
@given(
    st.dictionaries(st.integers(0, 30), st.one_of(st.none(), st.sampled_from("abc")), max_size=8),
    st.dictionaries(st.integers(0, 30), st.one_of(st.none(), st.sampled_from("abc")), max_size=8),
)
def test_a_comparison_names_exactly_the_keys_of_the_model(upstream: dict[int, Any], lake: dict[int, Any]) -> None:
    found = outcome(upstream, list(lake.items()))
    assert found.equal == (upstream == lake)
    assert (found.upstream_rows, found.lake_rows) == (len(upstream), len(lake))
    if not found.sampled:
        assert set(found.missing) == {(str(k),) for k in upstream.keys() - lake.keys()}
        assert set(found.surplus) == {(str(k),) for k in lake.keys() - upstream.keys()}
        assert set(found.different) == {(str(k),) for k in upstream.keys() & lake.keys() if upstream[k] != lake[k]}


def test_a_key_that_is_there_twice_is_a_difference() -> None:
    found = outcome({1: "a", 2: "b"}, [(1, "a"), (2, "b"), (2, "b")])
    assert not found.equal
    assert found.different == (("2",),)
    assert "different (2)" in str(found)


def test_many_differences_are_sampled_and_say_so() -> None:
    found = outcome(dict.fromkeys(range(5000), "a"), [], limit=5)
    assert found.sampled
    assert len(found.missing) == 5
    assert found.ranges > 900
    assert "or more" in str(found)


def test_keys_that_are_read_again_excuse_only_themselves() -> None:
    def judged(hidden: set[str], *, ordered: bool = True, **found: Any) -> bool | None:
        comparison = Comparison(9, 9, found.pop("ranges", 1), **found)
        return equal_but_for({(k,) for k in hidden}, comparison, ordered=ordered)

    assert judged(set(), ranges=0) is True
    assert judged({"1"}, ranges=0) is True
    assert judged({"1", "2"}, missing=(("1",),)) is True
    assert judged({"1"}, missing=(("1",), ("2",))) is False
    assert judged({"1"}, missing=(("1",),), surplus=(("3",),)) is False
    assert judged({"1"}, different=(("1",),)) is False
    assert judged({"1"}, missing=(("1",),), sampled=True) is None, "there may be others"
    assert judged({"1"}, missing=(("2",),), sampled=True) is False
    assert judged({"1"}, different=(("2",),), ordered=False) is None, "a table without an order is hidden as a whole"
    assert judged(set(), sampled=True) is False, "a difference whose rows nobody can list"


def test_an_equal_table_says_how_many_rows() -> None:
    assert str(outcome(dict.fromkeys(range(1200)), [(i, None) for i in range(1200)])) == "1,200 rows, all equal"


def transactions(*ends: tuple[int, int]) -> pa.Table:
    return pa.table(
        {
            "commit": pa.array([e for e, _ in ends], pa.int64()),
            "last_index": pa.array([i for _, i in ends], pa.int64()),
        }
    )


@pytest.mark.parametrize(
    ("position", "index"), [("0/0", 3), ("0/F", 3), ("0/10", 5), ("0/1F", 5), ("0/20", 9), ("1/0", 9)]
)
def test_the_index_of_a_position_is_the_last_commit_that_ends_by_it(position: str, index: int) -> None:
    assert index_at(transactions((16, 5), (32, 9)), lsn_to_int(position), 3) == index
    assert index_at(transactions(), lsn_to_int(position), 3) == 3


def test_decimals_of_one_value_hash_alike_whatever_their_text() -> None:
    column = (Column("d", "DECIMAL(10,2)", UpstreamType("numeric", 1700)),)
    rows = [{"d": decimal.Decimal("1.50")}, {"d": decimal.Decimal("1.5")}]
    _, found = hashes(batch_of(rows, column), column, ["d"])
    assert found[0] == found[1]


def test_digests_add_up() -> None:
    a = digest([batch_of([{"id": 1, "v": "x"}], PLAIN)], PLAIN, ["id"])
    b = digest([batch_of([{"id": 2, "v": "y"}], PLAIN)], PLAIN, ["id"])
    both = digest([batch_of([{"id": 2, "v": "y"}, {"id": 1, "v": "x"}], PLAIN)], PLAIN, ["id"])
    assert not len((a + b + Digest.empty()).differing(both))
