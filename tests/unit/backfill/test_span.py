"""Finding the span of a key, for every type whose order the database and the lake share."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backfill.span import WHOLE, locate, one_key
from headwater.decode.values import arrow_type
from headwater.model import Bound, Column, Span, UpstreamType

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=4)
START = datetime(2000, 1, 1, tzinfo=UTC)


def column(name: str, lake: str, upstream: str, **more: Any) -> Column:
    return Column(name, lake, UpstreamType(upstream, 0, ordered=True, **more), False)


def moment(us: int) -> datetime:
    return START + timedelta(microseconds=us)


# lake column, values, the database's text of a value
KINDS: dict[str, tuple[Column, st.SearchStrategy[Any], Any]] = {
    "int": (column("k", "INT", "int4"), st.integers(-(2**31), 2**31 - 1), str),
    "bigint": (column("k", "BIGINT", "int8"), st.integers(-(2**63), 2**63 - 1), str),
    "decimal": (
        column("k", "DECIMAL(38,4)", "numeric", precision=38, scale=4),
        st.integers(-(10**37), 10**37).map(lambda i: Decimal(i).scaleb(-4)),
        lambda v: f"{v:f}",
    ),
    "date": (column("k", "DATE", "date"), st.dates(date(1, 1, 1)), lambda v: v.isoformat()),
    "timestamptz": (
        column("k", "TIMESTAMP", "timestamptz"),
        st.integers(-(10**15), 10**15).map(moment),
        lambda v: f"{v:%Y-%m-%d %H:%M:%S.%f}+00",
    ),
    "text": (column("k", "STRING", "text"), TEXT, str),
    "bytea": (column("k", "BINARY", "bytea"), st.binary(max_size=4), lambda v: "\\x" + v.hex()),
    "boolean": (column("k", "BOOLEAN", "bool"), st.booleans(), lambda v: "t" if v else "f"),
    "uuid": (column("k", "STRING", "uuid"), st.uuids().map(str), str),
}


def in_order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def naive(spans: list[tuple[Any, Any]], key: tuple[Any, ...]) -> int:
    """The first span that holds the key; a bound is (values, after) or None."""
    at = tuple(map(in_order, key))
    for i, (lo, hi) in enumerate(spans):
        above = lo is None or (at > lo[0] if lo[1] else at >= lo[0])
        below = hi is None or (at <= hi[0] if hi[1] else at < hi[0])
        if above and below:
            return i
    return -1


@settings(max_examples=150)
@given(st.data())
def test_every_key_is_found_where_the_database_would_put_it(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    kinds = [KINDS[n] for n in names]
    columns = [Column(f"k{i}", c.lake_type, c.upstream, False) for i, (c, _, _) in enumerate(kinds)]
    key = st.tuples(*(st.one_of(values, st.sampled_from(data.draw(st.lists(values, min_size=1, max_size=3))))
                      for _, values, _ in kinds))  # fmt: skip
    cuts = data.draw(st.lists(st.tuples(key, st.booleans()), max_size=6))
    places = sorted(((tuple(map(in_order, k)), after, k) for k, after in cuts), key=lambda p: (p[0], p[1]))
    ends: list[Any] = [None, *dict.fromkeys(places), None]
    chosen = [p for p in pairwise(ends) if data.draw(st.booleans())]
    if data.draw(st.booleans()):
        chosen.reverse()

    def bound(end: Any) -> Bound | None:
        if end is None:
            return None
        return Bound(tuple(text(v) for (_, _, text), v in zip(kinds, end[2], strict=True)), end[1])

    keys = data.draw(st.lists(st.one_of(key, st.sampled_from([k for k, _ in cuts])) if cuts else key, max_size=20))
    arrays = [pa.array([k[i] for k in keys], arrow_type(c.lake_type)) for i, c in enumerate(columns)]
    found = locate(
        [Span(bound(lo), bound(hi)) for lo, hi in chosen], columns, pa.table(arrays, names=[c.name for c in columns])
    )
    assert found.tolist() == [naive(chosen, k) for k in keys]


@pytest.mark.parametrize(("spans", "expected"), [((), -1), ((WHOLE,), 0)])
def test_no_span_holds_nothing_and_the_whole_holds_all(spans: tuple[Span, ...], expected: int) -> None:
    keys = pa.table({"k": pa.array([1, 2], pa.int32())})
    assert locate(spans, [KINDS["int"][0]], keys).tolist() == [expected, expected]


def test_keys_in_many_chunks_are_found() -> None:
    chunks = pa.chunked_array([[1, 5], [], [3]], pa.int32())
    place = Bound(("3",), after=False)
    low, high = Span(None, place), Span(place, None)
    assert locate([low, high], [KINDS["int"][0]], pa.table({"k": chunks})).tolist() == [0, 1, 1]


def test_one_key_is_a_span_of_its_own() -> None:
    keys = pa.table({"k": pa.array(["a", "b", "ba"])})
    assert locate([one_key(("b",))], [KINDS["text"][0]], keys).tolist() == [-1, 0, -1]
