"""File statistics: never narrower than the data, absent where an engine could misread them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backfill.statistics import INDEXED_COLUMNS, Statistics

MOMENTS = st.integers(-(10**16), 2 * 10**17)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "n": (pa.decimal128(38, 18), st.integers(-(10**37), 10**37).map(lambda i: Decimal(i).scaleb(-18))),
    "d": (pa.date32(), st.integers(-100_000, 3_000_000)),
    "t": (pa.timestamp("us", "UTC"), MOMENTS),
    "z": (pa.timestamp("us"), MOMENTS),
    "s": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=40)),
    "f": (pa.float64(), st.floats()),
    "b": (pa.binary(), st.binary(max_size=5)),
    "a": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=2)),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])


def numbers(array: pa.ChunkedArray) -> list[Any]:
    kind = array.type
    plain = array.cast(pa.int64()) if pa.types.is_timestamp(kind) else array
    plain = plain.cast(pa.int32()) if pa.types.is_date32(kind) else plain
    return [v for v in plain.to_pylist() if v is not None]


def read_back(kind: pa.DataType, stored: Any) -> Any:
    """A stored value as a number of the column's unit, or the string's bytes."""
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(stored)
        return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if pa.types.is_date32(kind):
        return (date.fromisoformat(stored) - date(1970, 1, 1)).days
    return stored


@settings(max_examples=150)
@given(st.data())
def test_no_value_lies_outside_the_stored_range(data: st.DataObject) -> None:
    statistics = Statistics(SCHEMA)
    groups = []
    for _ in range(data.draw(st.integers(1, 3))):
        count = data.draw(st.integers(1, 6))
        columns = [
            pa.array(data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
            for kind, values in KINDS.values()
        ]
        groups.append(pa.table(columns, schema=SCHEMA))
        statistics.add(groups[-1])
    whole = pa.concat_tables(groups)
    stats = json.loads(statistics.to_json(), parse_float=Decimal)
    assert stats["numRecords"] == whole.num_rows
    assert stats["nullCount"] == {name: whole[name].null_count for name in KINDS}
    assert stats["minValues"].keys() == stats["maxValues"].keys() <= set("indtzs")
    for name, stored in stats["minValues"].items():
        values = numbers(whole[name])
        least, greatest = (
            read_back(SCHEMA.field(name).type, stored),
            read_back(SCHEMA.field(name).type, stats["maxValues"][name]),
        )
        if name in "tz":  # outward, by less than a millisecond
            assert min(values) - 999 <= least <= min(values) and max(values) <= greatest <= max(values) + 999
        elif name == "s":
            encoded = [v.encode() for v in values]
            assert (least.encode(), greatest.encode()) == (min(encoded), max(encoded))
        else:
            assert (least, greatest) == (min(values), max(values))


def stats_of(kind: pa.DataType, values: list[Any]) -> dict[str, Any]:
    table = pa.table({"c": pa.array(values, kind)})
    statistics = Statistics(table.schema)
    statistics.add(table)
    found: dict[str, Any] = json.loads(statistics.to_json())
    return found


def test_a_string_that_would_be_cut_has_no_range() -> None:
    assert stats_of(pa.string(), ["a", "b" * 32])["maxValues"] == {"c": "b" * 32}
    assert stats_of(pa.string(), ["a", "b" * 33])["maxValues"] == {}
    assert stats_of(pa.string(), ["a" * 33, "b"])["minValues"] == {}
    assert stats_of(pa.string(), ["a", "b" * 99, "c"])["maxValues"] == {"c": "c"}


def test_a_long_string_in_an_early_row_group_is_not_forgotten() -> None:
    statistics = Statistics(pa.schema([("c", pa.string())]))
    for value in ("z" * 40, "a"):
        statistics.add(pa.table({"c": [value]}))
    assert json.loads(statistics.to_json())["maxValues"] == {}


def test_floats_have_no_range() -> None:
    assert stats_of(pa.float64(), [1.0, float("nan")])["maxValues"] == {}
    assert stats_of(pa.float32(), [1.0])["maxValues"] == {}


def test_years_that_engines_write_differently_have_no_range() -> None:
    assert stats_of(pa.date32(), [date(1, 1, 1)])["minValues"] == {}
    assert stats_of(pa.timestamp("us"), [datetime(1500, 1, 1)])["minValues"] == {}
    assert stats_of(pa.date32(), [date(2024, 2, 29)])["minValues"] == {"c": "2024-02-29"}


def test_a_column_of_nulls_has_no_range() -> None:
    assert stats_of(pa.int32(), [None, None]) == {
        "numRecords": 2,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"c": 2},
        "tightBounds": True,
    }


def test_columns_behind_the_indexed_ones_are_left_out_unless_they_are_keys() -> None:
    names = [f"c{i}" for i in range(INDEXED_COLUMNS + 2)]
    table = pa.table({n: [1] for n in names})
    statistics = Statistics(table.schema, key=[names[-1]])
    statistics.add(table)
    assert list(json.loads(statistics.to_json())["minValues"]) == [*names[:INDEXED_COLUMNS], names[-1]]
