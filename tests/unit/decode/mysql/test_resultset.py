"""Result rows without a server: packets cut anywhere, lengths of every size, texts that a type has and has not."""

from __future__ import annotations

import datetime as dt
import io
import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pymysql import err

from headwater.decode.mysql.resultset import select_expression, text_expression, to_lake
from headwater.errors import DataError
from headwater.model import Bound, Column, Span, UpstreamType
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.client.rows import RowStream, texts_of
from headwater.source.mysql.scan.keyset import KeyColumn, condition, literal
from headwater.source.mysql.scan.low import Low, owned

EOF_PACKET = b"\xfe\x00\x00\x02\x00"


def lenenc(value: bytes | None) -> bytes:
    """A value as a result row holds it."""
    if value is None:
        return b"\xfb"
    size = len(value)
    if size < 251:
        return bytes([size]) + value
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + value
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little") + value
    return b"\xfe" + size.to_bytes(8, "little") + value


def row(*values: bytes | None) -> bytes:
    return b"".join(lenenc(v) for v in values)


def packets(payload: bytes) -> bytes:
    """A payload as packets: more than one from 16 MB - 1 on."""
    out, number = b"", 0
    while True:
        part, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
        out += len(part).to_bytes(3, "little") + bytes([number % 256]) + part
        number += 1
        if len(part) < 0xFFFFFF:
            return out


class Pieces(io.RawIOBase):
    """A socket that gives its bytes in pieces of random sizes."""

    def __init__(self, data: bytes, r: random.Random, most: int) -> None:
        self._data, self._at, self._r, self._most = data, 0, r, most

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        count = min(len(into), self._r.randint(1, self._most), len(self._data) - self._at)
        into[:count] = self._data[self._at : self._at + count]
        self._at += count
        return count


class Answer:
    """A driver's connection whose server answers with these packets after the columns' description."""

    encoding = "utf8"

    def __init__(self, data: bytes, seed: int = 0, most: int = 100) -> None:
        self._rfile = io.BufferedReader(Pieces(data, random.Random(seed), most))
        self._head = iter([1, 2, 3])

    def _execute_command(self, command: int, statement: str) -> None:
        assert command == 3

    def _read_packet(self) -> Answer:
        next(self._head)
        return self

    def read_length_encoded_integer(self) -> int:
        return 1

    def is_eof_packet(self) -> bool:
        return True


def rows_of(answer: Answer, batch_bytes: int) -> list[list[bytes]]:
    return [b.column(0).to_pylist() for b in RowStream(answer, "SELECT").batches(batch_bytes)]


@pytest.mark.parametrize("most", [1, 3, 50, 5000])
def test_rows_come_whole_wherever_the_socket_cuts_them(most: int) -> None:
    r = random.Random(most)
    expected = [row(*(r.randbytes(r.choice((0, 1, 5, 250, 251, 300))) for _ in range(3))) for _ in range(60)]
    data = b"".join(map(packets, expected)) + packets(EOF_PACKET)
    for batch_bytes in (1, 700, 1 << 20):
        batches = rows_of(Answer(data, most, most), batch_bytes)
        assert [r for b in batches for r in b] == expected
        assert all(sum(map(len, b[:-1])) < batch_bytes for b in batches), "a batch ends at the row that fills it"


def test_a_row_of_many_packets_is_one_value() -> None:
    large = row(b"a" * 0xFFFFFF, b"b" * (0xFFFFFF * 2 - 30), b"c")
    data = packets(row(b"1")) + packets(large) + packets(row(b"2")) + packets(EOF_PACKET)
    (batch,) = rows_of(Answer(data, 1, 1 << 20), 1 << 30)
    assert batch == [row(b"1"), large, row(b"2")]


def test_a_row_that_fills_its_packets_exactly_ends_with_an_empty_one() -> None:
    large = row(b"a" * (0xFFFFFF - 5)) + b"\x00"
    assert len(large) == 0xFFFFFF
    data = packets(large) + packets(row(b"2")) + packets(EOF_PACKET)
    (batch,) = rows_of(Answer(data, 1, 1 << 20), 1 << 30)
    assert batch == [large, row(b"2")]


def test_a_first_value_beyond_16_mb_is_no_end_of_the_rows() -> None:
    large = row(b"a" * (1 << 24))
    assert large[0] == 0xFE
    (batch,) = rows_of(Answer(packets(large) + packets(EOF_PACKET), 1, 1 << 20), 1 << 30)
    assert batch == [large]


def test_an_error_among_the_rows_is_the_servers_own() -> None:
    refusal = b"\xff" + struct.pack("<H", 1317) + b"#70100Query execution was interrupted"
    stream = RowStream(Answer(packets(row(b"1")) + packets(refusal)), "SELECT")
    with pytest.raises(err.MySQLError) as e:
        list(stream.batches(1 << 20))
    assert e.value.args[0] == 1317
    assert stream.ended


def test_a_socket_that_ends_among_the_rows_is_an_error() -> None:
    stream = RowStream(Answer(packets(row(b"1")) + b"\x05\x00"), "SELECT")
    with pytest.raises(err.OperationalError) as e:
        list(stream.batches(1 << 20))
    assert e.value.args[0] == 2013


def test_texts_of_one_row_are_read_at_every_length() -> None:
    values = [b"", b"x" * 250, b"y" * 251, "é".encode() * 40_000, b"7"]
    assert texts_of(row(*values)) == tuple(v.decode() for v in values)


def column(name: str, lake: str, *, key: str = "c", **type: Any) -> Column:
    return Column(key, lake, UpstreamType(name=name, oid=0, dialect="mysql", **type))


def lake_of(column: Column, *values: bytes | None, key: tuple[str, ...] = ()) -> tuple[list[Any], dict[str, int]]:
    batch = pa.record_batch({"row": pa.array([row(v, b"behind it") for v in values], pa.binary())})
    found, unrepresentable = to_lake(batch, [column], key)
    return found.column(0).to_pylist(), unrepresentable


@pytest.mark.parametrize(
    ("of", "texts", "expected"),
    [
        (column("int", "INT"), [b"-2147483648", b"7", None], [-(2**31), 7, None]),
        (column("bigint", "DECIMAL(20,0)", unsigned=True), [b"18446744073709551615"], [Decimal(2**64 - 1)]),
        (column("decimal", "DECIMAL(10,2)"), [b"-0.01", b"5.00"], [Decimal("-0.01"), Decimal("5.00")]),
        (column("float", "FLOAT"), [b"0.10000000149011612", b"-0"], [0.10000000149011612, -0.0]),
        (column("date", "DATE"), [b"0001-01-01", b"9999-12-31"], [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (
            column("datetime", "TIMESTAMP_NTZ"),
            [b"1969-12-31 23:59:59.999999", b"2020-02-29 12:34:56.5", b"2020-02-29 00:00:00"],
            [
                dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
                dt.datetime(2020, 2, 29, 12, 34, 56, 500000),
                dt.datetime(2020, 2, 29),
            ],
        ),
        (column("timestamp", "TIMESTAMP"), [b"1970-01-01 00:00:01"], [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)]),
        (column("tinyint", "BOOLEAN", length=1), [b"0", b"1", None], [False, True, None]),
        (column("bit", "BOOLEAN", length=1), [b"\0", b"\1"], [False, True]),
        (column("blob", "BINARY", charset="binary"), [b"", b"\0\xff", None], [b"", b"\0\xff", None]),
        (column("geometry", "BINARY"), [b"\0\0\0\0wkb", None, b"\1\2\3\4"], [b"wkb", None, b""]),
        (column("vector", "ARRAY<FLOAT>"), [struct.pack("<2f", 1.5, -2), None, b""], [[1.5, -2.0], None, []]),
        (column("varchar", "STRING", charset="latin1"), [b"stra\xdfe", None], ["straße", None]),
        (column("varchar", "STRING", charset="utf8mb4"), ["🚰".encode(), b""], ["🚰", ""]),
        (column("time", "STRING"), [b"-838:59:59"], ["-838:59:59"]),
    ],
)
def test_texts_become_lake_values(of: Column, texts: list[bytes | None], expected: list[Any]) -> None:
    assert lake_of(of, *texts) == (expected, {})


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column("date", "DATE"), b"0000-00-00"),
        (column("date", "DATE"), b"2020-02-30"),
        (column("date", "DATE"), b"0000-01-01"),
        (column("datetime", "TIMESTAMP_NTZ"), b"2020-00-10 00:00:00"),
        (column("tinyint", "BOOLEAN", length=1), b"2"),
        (column("tinyint", "BOOLEAN", length=1), b"-1"),
        (column("int", "INT"), b"2147483648"),
        (column("varchar", "STRING", charset="utf8mb4"), b"\xff"),
    ],
)
def test_what_the_lake_cannot_keep_is_null_and_counted_and_an_error_in_a_key(of: Column, text: bytes) -> None:
    assert lake_of(of, text, None) == ([None, None], {"c": 1})
    with pytest.raises(DataError) as e:
        lake_of(of, text, key=("c",))
    assert e.value.code == "data.key_value"


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column("date", "DATE"), b"2020/01/01"),
        (column("datetime", "TIMESTAMP_NTZ"), b"2020-01-01T00:00:00"),
        (column("datetime", "TIMESTAMP_NTZ"), b"2020-01-01 00:00"),
        (column("int", "INT"), b"x"),
    ],
)
def test_a_text_that_no_such_value_has_is_an_error(of: Column, text: bytes) -> None:
    with pytest.raises(DataError) as e:
        lake_of(of, text)
    assert e.value.code == "data.log_damaged"


@pytest.mark.parametrize("damaged", [b"\x05abc", b"\xfc\x01", b""])
def test_a_row_with_too_few_values_is_an_error(damaged: bytes) -> None:
    batch = pa.record_batch({"row": pa.array([row(b"1", b"2"), b"\x011" + damaged], pa.binary())})
    with pytest.raises(DataError) as e:
        to_lake(batch, [column("int", "INT"), column("int", "INT", key="d")])
    assert e.value.code == "data.log_damaged"


def test_more_rows_than_are_decoded_at_once_come_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.decode.mysql.resultset.ROWS_AT_ONCE", 7)
    numbers = [str(i).encode() for i in range(100)]
    assert lake_of(column("int", "INT"), *numbers)[0] == list(range(100))
    batch = pa.record_batch({"row": pa.array([row(v) for v in numbers], pa.binary())}).slice(3, 20)
    assert to_lake(batch, [column("int", "INT")])[0].column(0).to_pylist() == list(range(3, 23))


def test_expressions_keep_what_the_servers_would_round_or_pad() -> None:
    assert select_expression(column("float", "FLOAT")) == "{0} * 1e0"
    assert select_expression(column("int", "BIGINT", unsigned=True)) == "{0} + 0"
    assert text_expression(column("varchar", "STRING", charset="latin1")) == "CONVERT({0} USING utf8mb4)"
    assert text_expression(column("varchar", "STRING", charset="utf8mb4")) == "{0}"


def key_column(name: str, **type: Any) -> KeyColumn:
    return KeyColumn("k", UpstreamType(name=name, oid=0, dialect="mysql", **type))


@pytest.mark.parametrize(
    ("of", "text", "expected"),
    [
        (key_column("bigint", unsigned=True), "18446744073709551615", "18446744073709551615"),
        (key_column("decimal"), "1E+3", "1000"),
        (key_column("double"), "1e+300", "1e+300"),
        (key_column("double"), "0.5", "0.5e0"),
        (key_column("varchar"), "it's \\", "_utf8mb4 x'69742773205c'"),
        (key_column("binary"), "\\x00ff", "x'00ff'"),
        (key_column("bit", length=12), "\\x0b0f", "2831"),
        (key_column("timestamp"), "2020-01-01 02:00:00.5+02:00", "TIMESTAMP'2020-01-01 00:00:00.500000'"),
        (key_column("enum", labels=("b", "a")), "a", "2"),
        (key_column("enum", labels=("b", "a")), "", "0"),
        (key_column("set", labels=("b", "a", "c")), "b,c", "5"),
    ],
)
def test_a_bound_becomes_a_literal_of_its_columns_type(of: KeyColumn, text: str, expected: str) -> None:
    assert literal(of, text) == expected


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (key_column("int"), "1; DROP TABLE t"),
        (key_column("date"), "2020-01-01' OR '1"),
        (key_column("time"), "00:00:00' OR '1"),
        (key_column("double"), "x"),
        (key_column("enum", labels=("a",)), "other"),
        (key_column("json"), "{}"),
    ],
)
def test_a_bound_that_is_not_a_value_of_its_column_is_refused(of: KeyColumn, text: str) -> None:
    with pytest.raises(DataError) as e:
        literal(of, text)
    assert e.value.code == "data.key_value" and text not in e.value.message


def test_a_comparison_of_rows_is_spelled_out_for_the_index() -> None:
    key = [KeyColumn(name, UpstreamType(name="int", oid=0)) for name in "abc"]
    assert condition(key, Span(Bound(("1", "2", "3")), None)) == (
        "(scanned.`a` > 1 OR (scanned.`a` = 1 AND (scanned.`b` > 2 OR (scanned.`b` = 2 AND scanned.`c` > 3))))"
    )
    assert (
        condition(key[:1], Span(Bound(("1",), after=False), Bound(("1",)))) == "scanned.`a` >= 1 AND scanned.`a` <= 1"
    )


def test_transactions_that_are_owned_are_read_with_their_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = "8dff63e3-e17e-11f1-83a5-02fc00000001", "9dff63e3-e17e-11f1-83a5-02fc00000002"
    for text, expected in (
        ("", {}),
        (f"{a}:5#12", {f"{a}:5": 12}),
        (f"{a}:5#12:7#13,\n{b}:tag_one:1#14", {f"{a}:5": 12, f"{a}:7": 13, f"{b}:tag_one:1": 14}),
    ):
        monkeypatch.setattr("headwater.source.mysql.scan.low.query", lambda *_, text=text: [(text,)])
        assert owned(None) == expected


def test_a_low_travels_as_a_ticket() -> None:
    low = Low(Position.parse("binlog.000002:62062092@3"), "gtid", frozenset({"a:1", "b:2"}))
    assert Low.of_ticket(low.ticket()) == low
    assert np.int64(low.position.number) == (5 << 36 | 62062092)
