"""Dates and times of row images against naive encoders of the servers' formats."""

from __future__ import annotations

import calendar
import datetime as dt
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.model import UpstreamType
from unit.decode.mysql.test_logged import decode, of

YEARS = st.integers(0, 9999) | st.sampled_from([0, 1, 1600, 1900, 1970, 2000, 2020, 9999])
DATES = st.tuples(YEARS, st.integers(0, 12), st.integers(0, 31))  # also those that no calendar has
CLOCKS = st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999))
DIGITS = st.integers(0, 6)


def exists(year: int, month: int, day: int) -> bool:
    return year > 0 and month > 0 and 0 < day <= calendar.monthrange(year, month)[1]


def cut(micros: int, digits: int) -> int:
    return micros // 10 ** (6 - digits) * 10 ** (6 - digits)


def fraction(micros: int, digits: int) -> bytes:
    """The bytes of a fraction: two digits in each, as many as it takes."""
    size = (digits + 1) // 2
    return (micros // 10 ** (6 - 2 * size)).to_bytes(size, "big")


@given(st.lists(st.none() | DATES, max_size=9))
def test_dates_are_decoded_and_impossible_ones_counted(values: list[Any]) -> None:
    data = [None if v is None else (v[0] << 9 | v[1] << 5 | v[2]).to_bytes(3, "little") for v in values]
    decoded = decode(data, of("date", 10))
    assert decoded.array.to_pylist() == [dt.date(*v) if v and exists(*v) else None for v in values]
    assert decoded.unrepresentable == sum(v is not None and not exists(*v) for v in values)
    texts = decode(data, of("date", 10), "STRING").array.to_pylist()
    assert texts == [None if v is None else "{:04}-{:02}-{:02}".format(*v) for v in values]


@given(st.lists(st.none() | st.tuples(DATES, CLOCKS), max_size=9), DIGITS)
def test_datetimes_are_decoded_with_their_fraction(values: list[Any], digits: int) -> None:
    data, expected, texts = [], [], []
    for v in values:
        if v is None:
            data.append(None)
            expected.append(None)
            texts.append(None)
            continue
        (year, month, day), (hour, minute, second, micros) = v
        micros = cut(micros, digits)
        bits = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
        data.append((bits + 0x8000000000).to_bytes(5, "big") + fraction(micros, digits))
        real = exists(year, month, day)
        expected.append(dt.datetime(year, month, day, hour, minute, second, micros) if real else None)
        shown = f".{micros:06}"[: digits + 1] if digits else ""
        texts.append(f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{shown}")
    upstream = of("datetime", 18, digits, scale=digits)
    decoded = decode(data, upstream)
    assert decoded.array.to_pylist() == expected
    assert decoded.unrepresentable == sum(v is not None and e is None for v, e in zip(values, expected, strict=True))
    assert decode(data, upstream, "STRING").array.to_pylist() == texts


@given(st.lists(st.none() | st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 999_999)), max_size=9), DIGITS)
def test_timestamps_are_decoded_with_their_fraction(values: list[Any], digits: int) -> None:
    values = [v and (v[0], cut(v[1], digits)) for v in values]
    data = [None if v is None else v[0].to_bytes(4, "big") + fraction(v[1], digits) for v in values]
    moments = [
        dt.datetime.fromtimestamp(v[0], dt.UTC).replace(microsecond=v[1]) if v and any(v) else None for v in values
    ]
    upstream = of("timestamp", 17, digits, scale=digits)
    decoded = decode(data, upstream)
    assert decoded.array.to_pylist() == moments
    assert decoded.unrepresentable == values.count((0, 0))
    zero = "0000-00-00 00:00:00" + (f".{'0' * digits}" if digits else "")
    shown = [
        m and m.strftime("%Y-%m-%d %H:%M:%S") + (f".{m.microsecond:06}"[: digits + 1] if digits else "")
        for m in moments
    ]
    texts = decode(data, upstream, "STRING").array.to_pylist()
    assert texts == [zero if v == (0, 0) else s for v, s in zip(values, shown, strict=True)]


@given(
    st.lists(
        st.none() | st.tuples(st.booleans(), st.integers(0, 838), *[st.integers(0, 59)] * 2, st.integers(0, 999_999)),
        max_size=9,
    ),
    DIGITS,
)
def test_times_are_decoded_with_their_fraction(values: list[Any], digits: int) -> None:
    size = (digits + 1) // 2
    data: list[bytes | None] = []
    texts: list[str | None] = []
    for v in values:
        if v is None:
            data.append(None)
            texts.append(None)
            continue
        negative, hour, minute, second, micros = v
        micros = cut(micros, digits)
        negative = negative and any((hour, minute, second, micros))
        bits = (hour << 12 | minute << 6 | second) << 8 * size | micros // 10 ** (6 - 2 * size)
        data.append(((0x800000 << 8 * size) + (-bits if negative else bits)).to_bytes(3 + size, "big"))
        shown = f".{micros:06}"[: digits + 1] if digits else ""
        texts.append(f"{'-' if negative else ''}{hour:02}:{minute:02}:{second:02}{shown}")
    assert decode(data, of("time", 19, digits, scale=digits)).array.to_pylist() == texts


@given(DATES, CLOCKS)
def test_the_forms_of_old_servers(date: Any, clock: Any) -> None:
    year, month, day = date
    hour, minute, second, _ = clock
    number = int(f"{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
    expected = dt.datetime(*date, *clock[:3]) if exists(*date) else None
    (got,) = decode([number.to_bytes(8, "little")], of("datetime", 12, scale=0)).array.to_pylist()
    assert got == expected
    for sign in (1, -1):
        packed = (sign * int(f"{hour:02}{minute:02}{second:02}")).to_bytes(3, "little", signed=True)
        (text,) = decode([packed], of("time", 11, scale=0)).array.to_pylist()
        assert text.removeprefix("-") == f"{hour:02}:{minute:02}:{second:02}"
        assert text.startswith("-") == (sign < 0 and any(clock[:3]))
    old = UpstreamType("timestamp", 7, dialect="mysql", scale=0)
    assert decode([(1_700_000_000).to_bytes(4, "little")], old).array.to_pylist() == [
        dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    ]
