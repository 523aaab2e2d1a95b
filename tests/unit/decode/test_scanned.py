"""Batches of a scan: what a driver may hand over, without a database."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.decode.scanned import select_expression, to_lake
from headwater.errors import DataError
from headwater.model import Column, UpstreamType


def column(name: str, lake: str, type_name: str) -> Column:
    return Column(name, lake, UpstreamType(type_name, 1))


def one(array: pa.Array, c: Column) -> tuple[list[object], dict[str, int]]:
    batch, unrepresentable = to_lake(pa.RecordBatch.from_arrays([array], [c.name]), (c,))
    batch.validate(full=True)
    return batch.column(0).to_pylist(), unrepresentable


def strings(values: list[bytes | None]) -> pa.Array:
    """A string array that nobody has checked, as a driver makes it."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers())


def test_bytes_that_are_not_utf8_are_counted() -> None:
    array = strings([b"a", None, b"\xff", "ü".encode()])
    assert one(array, column("c", "STRING", "text")) == (["a", None, None, "ü"], {"c": 1})
    assert one(array.slice(1), column("c", "STRING", "text")) == ([None, None, "ü"], {"c": 1})


def test_slices_and_empty_batches_are_read_where_they_begin() -> None:
    array = pa.array(["1.5", None, "-2.25", "NaN"])
    c = column("c", "DECIMAL(5,2)", "numeric")
    assert [str(v) for v in one(array.slice(2), c)[0]] == ["-2.25", "None"]
    assert one(array.slice(1, 1), c) == ([None], {})
    assert one(pa.array([], pa.string()), c) == ([], {})
    assert one(pa.nulls(3, pa.string()), c) == ([None] * 3, {})
    assert one(pa.nulls(2, pa.string()), column("c", "STRING", "text")) == ([None] * 2, {})


@pytest.mark.parametrize("days", [-2147472692, -2147472691, 2932897, -719163])
def test_dates_that_wrap_in_the_driver_are_counted(days: int) -> None:
    array = pa.array([days, 0, None], pa.int32()).view(pa.date32())
    values, unrepresentable = one(array, column("c", "DATE", "date"))
    assert values[0] is None and str(values[1]) == "1970-01-01" and unrepresentable == {"c": 1}


def test_a_column_that_changed_its_type_is_not_cast() -> None:
    for array, c in (
        (pa.array(["5"]), column("c", "INT", "int4")),
        (pa.array([5]), column("c", "STRING", "text")),
        (pa.array([5]), column("c", "DECIMAL(5,2)", "numeric")),
    ):
        with pytest.raises(DataError) as caught:
            one(array, c)
        assert caught.value.code == "data.schema_changed"


def test_wider_lake_types_hold_the_same_values() -> None:
    assert one(pa.array([5], pa.int32()), column("c", "BIGINT", "int4"))[0] == [5]
    assert str(one(pa.array([5], pa.int32()), column("c", "DECIMAL(12,2)", "int4"))[0][0]) == "5.00"
    assert one(pa.array([0.1], pa.float32()), column("c", "DOUBLE", "float4"))[0] == [0.10000000149011612]


def test_text_is_selected_by_the_output_function() -> None:
    assert select_expression(column("c", "INT", "int4")) == "{0}"
    assert select_expression(column("c", "STRING", "bpchar")) == "{0}"
    assert "concat" in select_expression(column("c", "STRING", "int4"))
    assert "concat" in select_expression(column("c", "STRING", "inet"))
