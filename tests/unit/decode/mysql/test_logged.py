"""Values of row images against naive encoders of the servers' formats, one property per type."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.decode.column import Decoded
from headwater.decode.mysql.logged import decode_logged
from headwater.decode.mysql.types import lake_type
from headwater.errors import DataError
from headwater.model import UpstreamType
from headwater.source.mysql.binlog import codes

CODES = {"tinyint": 1, "smallint": 2, "mediumint": 9, "int": 3, "bigint": 8}


def decode(values: list[bytes | None], upstream: UpstreamType, lake: str | None = None) -> Decoded:
    """Values, laid out with gaps between them, through the column decoder."""
    buffer = bytearray(b"?")
    starts, lengths = [], []
    for v in values:
        starts.append(len(buffer))
        lengths.append(-1 if v is None else len(v))
        buffer += (v or b"") + b"?"
    places = np.array(starts, np.int64), np.array(lengths, np.int64)
    decoded = decode_logged(np.frombuffer(bytes(buffer), np.uint8), *places, upstream, lake or lake_type(upstream))
    decoded.array.validate(full=True)
    bad = [] if decoded.bad is None else np.flatnonzero(decoded.bad).tolist()
    assert len(bad) == decoded.unrepresentable and all(decoded.array[i].as_py() is None for i in bad)
    return decoded


def of(name: str, oid: int, modifier: int = -1, **more: Any) -> UpstreamType:
    return UpstreamType(name, oid, modifier, dialect="mysql", **more)


def integer(name: str, unsigned: bool) -> UpstreamType:
    return of(name, CODES[name], unsigned=unsigned)


def bounds(upstream: UpstreamType) -> tuple[int, int]:
    bits = 8 * codes.INTEGER_BYTES[upstream.oid]
    return (0, 2**bits - 1) if upstream.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@st.composite
def integers(draw: st.DrawFn) -> tuple[UpstreamType, list[int | None]]:
    upstream = integer(draw(st.sampled_from(list(CODES))), draw(st.booleans()))
    low, high = bounds(upstream)
    some = st.integers(low, high) | st.sampled_from([low, high, 0, 1, high // 2, high // 2 + 1])
    return upstream, draw(st.lists(st.none() | some, max_size=9))


def packed(values: list[int | None], upstream: UpstreamType) -> list[bytes | None]:
    width = codes.INTEGER_BYTES[upstream.oid]
    return [None if v is None else v.to_bytes(width, "little", signed=not upstream.unsigned) for v in values]


@given(integers())
def test_integers_of_every_width_and_sign(given_: Any) -> None:
    upstream, values = given_
    decoded = decode(packed(values, upstream), upstream)
    assert [None if v is None else int(v) for v in decoded.array.to_pylist()] == values and not decoded.unrepresentable


@given(integers(), st.sampled_from(["BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE"]))
def test_an_integer_outside_its_lake_type_is_not_kept(given_: Any, lake: str) -> None:
    upstream, values = given_
    decoded = decode(packed(values, upstream), upstream, lake)
    whole = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}

    def fits(v: int) -> bool:
        if lake == "BOOLEAN":
            return v in (0, 1)
        if lake in whole:
            return -(2 ** whole[lake]) <= v < 2 ** whole[lake]
        return int(float(np.float32(v)) if lake == "FLOAT" else float(v)) == v

    expected = [None if v is None or not fits(v) else v for v in values]
    assert decoded.array.to_pylist() == expected
    assert decoded.unrepresentable == sum(v is not None and not fits(v) for v in values)


def test_an_unsigned_integer_beyond_63_bits_is_not_kept_in_a_signed_one() -> None:
    upstream = integer("bigint", unsigned=True)
    decoded = decode(packed([2**63 - 1, 2**63, 2**64 - 1], upstream), upstream, "BIGINT")
    assert decoded.array.to_pylist() == [2**63 - 1, None, None] and decoded.unrepresentable == 2


@given(integers(), st.integers(1, 38), st.integers(0, 38))
def test_integers_become_decimals_where_they_fit(given_: Any, precision: int, scale: int) -> None:
    upstream, values = given_
    scale = min(scale, precision)
    decoded = decode(packed(values, upstream), upstream, f"DECIMAL({precision},{scale})")
    limit = 10 ** (precision - scale)
    assert decoded.array.to_pylist() == [None if v is None or abs(v) >= limit else Decimal(v) for v in values]


@pytest.mark.parametrize(
    ("name", "unsigned"), [("bigint", False), ("bigint", True), ("int", False), ("smallint", True)]
)
@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (4, 0), (6, 2), (7, 5)])
def test_an_integer_of_exactly_one_digit_too_many_is_not_kept(
    name: str, unsigned: bool, precision: int, scale: int
) -> None:
    upstream, limit = integer(name, unsigned), 10 ** (precision - scale)
    values: list[int | None] = [limit, limit - 1] if unsigned else [limit, -limit, limit - 1, 1 - limit]
    decoded = decode(packed(values, upstream), upstream, f"DECIMAL({precision},{scale})")
    expected = [None, limit - 1] if unsigned else [None, None, limit - 1, 1 - limit]
    assert decoded.array.to_pylist() == [None if v is None else Decimal(v) for v in expected]
    decoded.array.validate(full=True)


@given(integers())
def test_integers_become_text(given_: Any) -> None:
    upstream, values = given_
    decoded = decode(packed(values, upstream), upstream, "STRING")
    assert decoded.array.to_pylist() == [None if v is None else str(v) for v in values]


def packed_decimal(digits: int, precision: int, scale: int) -> bytes:
    """Nine digits in four bytes, fewer in fewer, outermost groups short; turned over below zero."""
    sizes = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
    text = str(abs(digits)).rjust(precision, "0")
    whole, fraction = text[: precision - scale], text[precision - scale :]
    groups = [whole[: len(whole) % 9]] + [whole[i : i + 9] for i in range(len(whole) % 9, len(whole), 9)]
    groups += [fraction[i : i + 9] for i in range(0, len(fraction), 9)]
    out = bytearray(b"".join(int(g).to_bytes(sizes[len(g)], "big") for g in groups if g))
    out[0] |= 0x80
    return bytes(b ^ 0xFF for b in out) if digits < 0 else bytes(out)


@st.composite
def decimals(draw: st.DrawFn, most: int) -> tuple[UpstreamType, list[int | None]]:
    precision = draw(st.integers(1, most))
    scale = draw(st.integers(0, min(precision, 30)))
    limit = 10**precision - 1
    some = st.integers(-limit, limit) | st.sampled_from([0, 1, -1, limit, -limit])
    upstream = of("decimal", 246, precision << 8 | scale, precision=precision, scale=scale)
    return upstream, draw(st.lists(st.none() | some, max_size=9))


@given(decimals(38))
def test_decimals_of_up_to_38_digits(given_: Any) -> None:
    upstream, values = given_
    decoded = decode(encoded_decimals(upstream, values), upstream)
    expected = [None if v is None else exact(v, upstream.scale) for v in values]
    assert decoded.array.to_pylist() == expected and not decoded.unrepresentable


@given(decimals(65), st.integers(1, 38), st.integers(0, 38))
def test_decimals_in_another_decimal_or_as_text(given_: Any, precision: int, scale: int) -> None:
    upstream, values = given_
    scale = min(scale, precision)
    decoded = decode(encoded_decimals(upstream, values), upstream, f"DECIMAL({precision},{scale})")
    expected = []
    for v in values:
        scaled, rest = divmod(abs(v or 0) * 10**scale, 10**upstream.scale)
        fits = v is not None and not rest and scaled < 10**precision
        expected.append(exact(-scaled if v and v < 0 else scaled, scale) if fits else None)
    assert decoded.array.to_pylist() == expected
    texts = decode(encoded_decimals(upstream, values), upstream, "STRING").array.to_pylist()
    assert texts == [None if v is None else decimal_text(v, upstream.scale) for v in values]


def exact(digits: int, scale: int) -> Decimal:
    return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


def encoded_decimals(upstream: UpstreamType, values: list[int | None]) -> list[bytes | None]:
    assert upstream.precision is not None and upstream.scale is not None
    return [None if v is None else packed_decimal(v, upstream.precision, upstream.scale) for v in values]


def decimal_text(digits: int, scale: int) -> str:
    text = str(abs(digits)).rjust(scale + 1, "0")
    shown = f"{text[: len(text) - scale]}.{text[len(text) - scale :]}" if scale else text
    return ("-" if digits < 0 else "") + shown


def test_digits_that_no_decimal_has_are_damage() -> None:
    upstream = of("decimal", 246, 9 << 8, precision=9, scale=0)
    for lake in ("DECIMAL(9,0)", "STRING"):
        with pytest.raises(DataError) as caught:
            decode([struct.pack(">I", 0x80000000 | 10**9)], upstream, lake)
        assert caught.value.code == "data.log_damaged"


@given(st.lists(st.none() | st.floats(width=32, allow_nan=False), max_size=9))
def test_floats_keep_their_bits(values: list[float | None]) -> None:
    data = [None if v is None else struct.pack("<f", v) for v in values]
    assert same(decode(data, of("float", 4, 4)).array.to_pylist(), values)
    assert same(decode(data, of("float", 4, 4), "DOUBLE").array.to_pylist(), values)


@given(st.lists(st.none() | st.floats(allow_nan=False), max_size=9))
def test_doubles_keep_their_bits(values: list[float | None]) -> None:
    data = [None if v is None else struct.pack("<d", v) for v in values]
    assert same(decode(data, of("double", 5, 8)).array.to_pylist(), values)
    with np.errstate(over="ignore"):
        narrow = [v is None or float(np.float32(v)) == v for v in values]
    decoded = decode(data, of("float", 5, 8))
    assert same(decoded.array.to_pylist(), [v if n else None for v, n in zip(values, narrow, strict=True)])
    assert decoded.unrepresentable == narrow.count(False)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=9))
def test_the_text_of_a_double_reads_back_as_the_same(values: list[float]) -> None:
    texts = decode([struct.pack("<d", v) for v in values], of("double", 5, 8), "STRING").array.to_pylist()
    assert same([float(t) for t in texts], values)
    assert not any("+" in t or t.endswith(".") for t in texts)


def same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


@given(st.lists(st.none() | st.integers(0, 255), max_size=9))
def test_years_are_decoded_as_numbers_and_as_text(values: list[int | None]) -> None:
    data = [None if v is None else bytes([v]) for v in values]
    years = [v if not v else 1900 + v for v in values]
    assert decode(data, of("year", 13)).array.to_pylist() == years
    assert decode(data, of("year", 13), "STRING").array.to_pylist() == [y if y is None else f"{y:04}" for y in years]


@given(st.lists(st.none() | st.binary(min_size=1, max_size=8), max_size=9), st.sampled_from(["BINARY", "STRING"]))
def test_bits_are_decoded_as_bytes_and_as_text(values: list[bytes | None], lake: str) -> None:
    shown = values if lake == "BINARY" else [None if v is None else "0x" + v.hex().upper() for v in values]
    assert decode(values, of("bit", 16, 0, length=64), lake).array.to_pylist() == shown


def test_a_single_bit_is_a_boolean_and_more_are_not_kept() -> None:
    decoded = decode([b"\1", b"\0", None, b"\2"], of("bit", 16, 1, length=1))
    assert decoded.array.to_pylist() == [True, False, None, None] and decoded.unrepresentable == 1


@given(st.lists(st.none() | st.binary(max_size=6), max_size=9), st.integers(0, 8))
def test_fixed_binaries_get_their_zero_bytes_back(values: list[bytes | None], length: int) -> None:
    cut = [None if v is None else v[:length].rstrip(b"\0") for v in values]
    decoded = decode(cut, of("binary", 254, length, length=length, charset="binary"))
    assert decoded.array.to_pylist() == [None if v is None else v.ljust(length, b"\0") for v in cut]


@given(st.lists(st.none() | st.binary(max_size=300), max_size=9))
def test_other_binaries_are_as_they_are(values: list[bytes | None]) -> None:
    upstream = of("varbinary", 15, 300, length=300, charset="binary")
    assert decode(values, upstream).array.to_pylist() == values
    shown = [None if v is None else "0x" + v.hex().upper() for v in values]
    assert decode(values, upstream, "STRING").array.to_pylist() == shown


@given(st.lists(st.none() | st.binary(max_size=30), max_size=9))
def test_geometries_lose_their_srid(values: list[bytes | None]) -> None:
    stored = [None if v is None else b"\xe6\x10\0\0" + v for v in values]
    assert decode(stored, of("geometry", 255, 4)).array.to_pylist() == values
    with pytest.raises(DataError):
        decode([b"\0\0\0"], of("geometry", 255, 4))


@given(st.lists(st.none() | st.lists(st.floats(width=32, allow_nan=False), max_size=5), max_size=9))
def test_vectors_are_decoded_as_floats_and_as_doubles(values: list[list[float] | None]) -> None:
    stored = [None if v is None else struct.pack(f"<{len(v)}f", *v) for v in values]
    assert same(decode(stored, of("vector", 242, 4)).array.to_pylist(), values)
    assert same(decode(stored, of("vector", 242, 4), "ARRAY<DOUBLE>").array.to_pylist(), values)
    with pytest.raises(DataError):
        decode([b"\0\0\0\0\0"], of("vector", 242, 4))


@given(st.lists(st.none() | st.integers(0, 3), max_size=9))
def test_enumerations_are_decoded_to_their_labels(values: list[int | None]) -> None:
    upstream = of("enum", 247, 2, labels=("a", "b,c", "€"))
    data = [None if v is None else struct.pack("<H", v) for v in values]
    assert decode(data, upstream).array.to_pylist() == [None if v is None else ("", "a", "b,c", "€")[v] for v in values]
    with pytest.raises(DataError):
        decode([b"\4\0"], upstream)


@given(st.lists(st.none() | st.integers(0, 2**12 - 1), max_size=9))
def test_sets_are_decoded_to_their_labels(values: list[int | None]) -> None:
    labels = tuple(f"m{i}" for i in range(12))
    data = [None if v is None else struct.pack("<H", v) for v in values]
    named = [None if v is None else ",".join(m for i, m in enumerate(labels) if v >> i & 1) for v in values]
    assert decode(data, of("set", 248, 2, labels=labels)).array.to_pylist() == named
    with pytest.raises(DataError):
        decode([b"\0\x10"], of("set", 248, 2, labels=labels))


def test_a_label_with_bytes_that_are_no_character_is_not_kept() -> None:
    """As a scan, which reads the same bytes as a value."""
    data = [b"\1", b"\2", None, b"\0"]
    enum = of("enum", 247, 1, labels=("a", "\ufffd"), charset="dec8")
    decoded = decode(data, enum)
    assert (decoded.array.to_pylist(), decoded.unrepresentable) == (["a", None, None, ""], 1)
    assert decode(data, of("set", 248, 1, labels=("a", "\ufffd"), charset="dec8")).array.to_pylist() == [
        "a",
        None,
        None,
        "",
    ]
    assert decode(data, of("enum", 247, 1, labels=("a", "\ufffd"), charset="utf8mb4")).array.to_pylist()[1] == "\ufffd"
