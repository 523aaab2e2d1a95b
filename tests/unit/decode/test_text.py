"""The column decoder against a naive model of each type."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.model import UpstreamType
from support.values import decode

INT4, INT8, INT2 = UpstreamType("int4", 23), UpstreamType("int8", 20), UpstreamType("int2", 21)
NUMERIC, TEXT, BYTEA = UpstreamType("numeric", 1700), UpstreamType("text", 25), UpstreamType("bytea", 17)
FLOAT4, FLOAT8 = UpstreamType("float4", 700), UpstreamType("float8", 701)
DATE, TIMESTAMP, TIMESTAMPTZ = (
    UpstreamType("date", 1082),
    UpstreamType("timestamp", 1114),
    UpstreamType("timestamptz", 1184),
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, max_size=20)


def encoded(values: list[Any]) -> list[bytes | None]:
    return [None if v is None else str(v).encode() for v in values]


@given(maybe(st.integers(-(2**70), 2**70) | st.sampled_from([2**63, -(2**63), 2**31, -(2**31) - 1, 10**19, 10**20])))
def test_an_integer_is_kept_or_counted(values: list[int | None]) -> None:
    for upstream, lake, bits in ((INT2, "SMALLINT", 16), (INT4, "INT", 32), (INT8, "BIGINT", 64)):
        got = decode(encoded(values), upstream, lake)
        fits = [v if v is not None and -(2 ** (bits - 1)) <= v < 2 ** (bits - 1) else None for v in values]
        assert got.array.to_pylist() == fits
        assert got.unrepresentable == sum(v is not None and f is None for v, f in zip(values, fits, strict=True))


@given(
    maybe(st.from_regex(r"\A-?[0-9]{1,45}(\.[0-9]{1,45})?\Z")),
    st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))),
)
@example(["18446744073709551616", "9" * 38, "-" + "9" * 38, "9" * 39, "1" + "0" * 38], (38, 0))
@example(["0." + "0" * 37 + "1", "0." + "9" * 38, "1"], (38, 38))
@example(["1.10", "1.11", "-0.0", "0.000"], (3, 1))
@example(["NaN", "Infinity", "-Infinity", None], (5, 2))
def test_a_decimal_is_exact_or_counted_never_rounded(texts: list[str | None], size: tuple[int, int]) -> None:
    precision, scale = size
    expected = []
    for t in texts:
        if t is None or not t.strip("-")[0].isdigit():
            expected.append(None)
            continue
        sign, rest = (-1, t[1:]) if t[0] == "-" else (1, t)
        whole, _, fraction = rest.partition(".")
        lost = fraction[scale:].strip("0")
        number = int(whole + fraction[:scale].ljust(scale, "0"))
        expected.append(None if lost or number >= 10**precision else sign * number)
    got = decode(encoded(texts), NUMERIC, f"DECIMAL({precision},{scale})")
    with_scale = [None if v is None else _unscaled(v) for v in got.array.to_pylist()]
    assert with_scale == expected
    assert got.unrepresentable == sum(t is not None and e is None for t, e in zip(texts, expected, strict=True))
    assert got.array.type == pa.decimal128(precision, scale)


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (5, 2), (18, 0), (19, 0), (20, 7), (37, 1), (38, 0)])
def test_a_decimal_of_exactly_one_digit_too_many_is_counted(precision: int, scale: int) -> None:
    """At 10^p the 128-bit number is right and its precision is not: no other engine could read it."""
    whole = precision - scale
    beyond, last = "1" + "0" * whole, ("9" * whole or "0") + ("." + "9" * scale if scale else "")
    texts = [beyond, f"-{beyond}", last, f"-{last}"]
    got = decode(encoded(texts), NUMERIC, f"DECIMAL({precision},{scale})")
    assert [v is None for v in got.array.to_pylist()] == [True, True, False, False]
    assert got.unrepresentable == 2
    got.array.validate(full=True)


def _unscaled(value: Decimal) -> int:
    sign, figures, _ = value.as_tuple()
    return (-1 if sign else 1) * int("".join(map(str, figures)))


@given(maybe(st.floats(width=64)))
def test_a_double_has_the_very_same_bits(values: list[float | None]) -> None:
    texts = encoded([None if v is None else _float_text(repr(v)) for v in values])
    assert [_bits(v) for v in decode(texts, FLOAT8).array.to_pylist()] == [_bits(v) for v in values]


@given(maybe(st.floats(width=32)))
def test_a_real_has_the_very_same_bits_also_in_a_double(values: list[float | None]) -> None:
    texts = encoded([None if v is None else _float_text(str(np.float32(v))) for v in values])
    for lake in ("FLOAT", "DOUBLE"):
        assert [_bits(v) for v in decode(texts, FLOAT4, lake).array.to_pylist()] == [_bits(v) for v in values]


def _float_text(text: str) -> str:
    """As float8out writes it."""
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, text)


def _bits(value: float | None) -> bytes | None:
    if value is None or math.isnan(value):
        return None if value is None else b"NaN"
    return struct.pack(">d", value)


@given(maybe(st.dates()))
def test_a_date_of_the_years_1_to_9999_is_kept(values: list[dt.date | None]) -> None:
    got = decode(encoded([None if v is None else v.isoformat() for v in values]), DATE)
    assert got.array.to_pylist() == values and got.unrepresentable == 0


@given(maybe(st.datetimes()), st.sampled_from([0, 1, 3, 6]))
def test_a_timestamp_is_kept_to_the_microsecond(values: list[dt.datetime | None], decimals: int) -> None:
    unit = 10 ** (6 - decimals)
    cut = [None if v is None else v.replace(microsecond=v.microsecond // unit * unit) for v in values]
    texts = [None if v is None else v.isoformat(" ", "microseconds").rstrip("0").rstrip(".") for v in cut]
    texts = [
        t if t is None or len(t) >= 19 else f"{v:%Y-%m-%d %H:%M:%S}".zfill(19) for t, v in zip(texts, cut, strict=True)
    ]
    assert decode(encoded(texts), TIMESTAMP).array.to_pylist() == cut


@given(maybe(st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1))), st.integers(-15 * 60, 15 * 60))
def test_an_offset_is_taken_off(values: list[dt.datetime | None], minutes: int) -> None:
    zone = dt.timezone(dt.timedelta(minutes=minutes))
    aware = [None if v is None else v.replace(tzinfo=zone) for v in values]
    assert decode(encoded(aware), TIMESTAMPTZ).array.to_pylist() == aware


@pytest.mark.parametrize("text", ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "5874897-12-31"])
def test_a_date_outside_is_counted(text: str) -> None:
    got = decode([text.encode(), b"2020-01-01"], DATE)
    assert got.array.to_pylist() == [None, dt.date(2020, 1, 1)]
    assert got.unrepresentable == 1 and got.bad is not None and got.bad.tolist() == [True, False]
    if "inf" not in text:
        text = text.replace(" BC", " 00:00:00 BC") if "BC" in text else text + " 00:00:00"
    assert decode([text.encode()], TIMESTAMP).unrepresentable == 1


@pytest.mark.parametrize(
    ("upstream", "text"),
    [
        (INT4, "1.5"), (INT4, ""), (INT4, "-"), (INT4, "x"), (NUMERIC, "1e5"), (NUMERIC, ""), (NUMERIC, "1.2.3"),
        (FLOAT8, "zero"), (FLOAT8, ""), (DATE, "01/02/2020"), (DATE, "2020-13-01"), (DATE, "2020-01-01x"), (DATE, ""),
        (TIMESTAMP, "2020-01-01"), (TIMESTAMP, "2020-01-01 1:00"), (TIMESTAMP, "2020-01-01 00:00:00 PST"),
        (TIMESTAMPTZ, "2020-01-01 00:00:00+"), (BYTEA, "abc"), (BYTEA, r"\xa"), (BYTEA, r"\xzz"),
        (UpstreamType("bool", 16), "maybe"), (UpstreamType("_int4", 1007), "1,2"),
        (UpstreamType("_int4", 1007), "{1,}"),
        (UpstreamType("_text", 1009), '{"a}'), (UpstreamType("_text", 1009), "{,}"),
    ],
)  # fmt: skip
def test_a_text_that_the_type_cannot_have_is_an_error_and_not_a_null(upstream: UpstreamType, text: str) -> None:
    lake = "DECIMAL(10,2)" if upstream is NUMERIC else None
    with pytest.raises(DataError) as caught:
        decode([text.encode()], upstream, lake)
    assert caught.value.code == "data.log_damaged"
    assert not text or f"'{text}'" not in str(caught.value)


@given(maybe(st.binary(max_size=40)))
def test_bytes_survive(values: list[bytes | None]) -> None:
    texts = [None if v is None else b"\\x" + v.hex().encode() for v in values]
    assert decode(texts, BYTEA).array.to_pylist() == values


@given(maybe(st.text(max_size=12)))
def test_text_survives(values: list[str | None]) -> None:
    got = decode(encoded(values), TEXT)
    assert got.array.to_pylist() == values and got.unrepresentable == 0
    got.array.validate(full=True)


@given(maybe(st.binary(max_size=6) | st.text(max_size=3).map(str.encode)))
def test_bytes_that_are_not_utf8_are_counted(values: list[bytes | None]) -> None:
    def text(v: bytes) -> str | None:
        try:
            return v.decode()
        except UnicodeDecodeError:
            return None

    expected = [None if v is None else text(v) for v in values]
    got = decode(values, TEXT)
    assert got.array.to_pylist() == expected
    assert got.unrepresentable == sum(v is not None and e is None for v, e in zip(values, expected, strict=True))


def array_text(elements: list[str | None]) -> str:
    """As array_out writes it."""

    def one(e: str | None) -> str:
        if e is None:
            return "NULL"
        if e == "" or e.upper() == "NULL" or any(c in '{},"\\' or c.isspace() for c in e):
            return '"' + e.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return e

    return "{" + ",".join(one(e) for e in elements) + "}"


ELEMENT = st.text(st.sampled_from('aN UL{},"\\ü🚰'), max_size=6) | st.sampled_from(["NULL", "null", "", "NULLX"])


@given(maybe(st.lists(st.none() | ELEMENT, max_size=5)))
def test_elements_survive_quotes_braces_and_nulls(values: list[list[str | None] | None]) -> None:
    texts = [None if v is None else array_text(v).encode() for v in values]
    got = decode(texts, UpstreamType("_text", 1009))
    assert got.array.to_pylist() == values and got.unrepresentable == 0
    got.array.validate(full=True)


@given(maybe(st.lists(st.none() | st.integers(-(2**33), 2**33), max_size=5)))
def test_an_array_with_an_element_that_cannot_be_kept_is_null_as_a_whole(values: list[list[int | None] | None]) -> None:
    texts = [None if v is None else array_text([None if e is None else str(e) for e in v]).encode() for v in values]
    got = decode(texts, UpstreamType("_int8", 1016), "ARRAY<INT>")
    fits = [v if v is not None and all(e is None or -(2**31) <= e < 2**31 for e in v) else None for v in values]
    assert got.array.to_pylist() == fits
    assert got.unrepresentable == sum(v is not None and f is None for v, f in zip(values, fits, strict=True))
    got.array.validate(full=True)


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "[0:1]={1,2}", "[1:1][1:2]={{1,2}}"])
def test_arrays_of_other_shapes_are_counted(text: str) -> None:
    got = decode([b"{7}", text.encode(), b"{}"], UpstreamType("_int4", 1007))
    assert got.array.to_pylist() == [[7], None, []] and got.unrepresentable == 1


def test_no_rows_and_only_nulls_are_decoded() -> None:
    for upstream in (INT4, TEXT, BYTEA, FLOAT8, DATE, TIMESTAMP, UpstreamType("_text", 1009)):
        assert decode([], upstream).array.to_pylist() == []
        assert decode([None], upstream).array.to_pylist() == [None]
