"""Row images against a naive writer of them, and images that are damaged."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.decode.changes import changes_schema, decode_changes
from headwater.errors import DataError
from headwater.model import Column, LogColumn, Op, SchemaVersion, UpstreamType
from support.before import decode_before

INT = UpstreamType("int", 3, dialect="mysql")
SHORT = UpstreamType("varchar", 15, length=10, charset="utf8mb4", dialect="mysql")
LONG = UpstreamType("varchar", 15, length=100, charset="utf8mb4", dialect="mysql")
TEXT = UpstreamType("text", 252, charset="utf8mb4", dialect="mysql")
# the relation's order differs from the log's, and the log has columns that the relation does not want
COLUMNS = (
    Column("v", "STRING", LONG),
    Column("k2", "INT", INT),
    Column("w", "STRING", TEXT),
    Column("k1", "STRING", SHORT),
)
KEY = ("k1", "k2")
LOG = (
    LogColumn("k1", 15, 40, True, charset="utf8mb4"),
    LogColumn("u0", 246, 20 << 8 | 5, False),
    LogColumn("v", 15, 400, False, charset="utf8mb4"),
    LogColumn("u1", 16, 1 << 8 | 4, False),
    LogColumn("k2", 3, 0, True),
    LogColumn("u2", 18, 3, False),
    LogColumn("u3", 254, 600, False, charset="latin1"),
    LogColumn("w", 252, 2, False, charset="utf8mb4"),
    LogColumn("u4", 248, 3, False),
    LogColumn("u5", 245, 4, False),
)
SIZES = {"u0": 10, "u1": 2, "u2": 7, "u4": 3}
PREFIXES = {"k1": 1, "v": 2, "u3": 2, "w": 2, "u5": 4}
SCHEMAS = {7: SchemaVersion(7, 1, 1, "d", "t", "f", LOG)}
RAW = pa.schema(
    [("index", pa.int64()), ("op", pa.int8()), ("txn", pa.int64()), ("payload", pa.binary()), ("schema_id", pa.int64())]
)

WORD = st.text(max_size=5)
ROWS = st.fixed_dictionaries(
    {
        "k1": WORD,
        "k2": st.integers(-(2**31), 2**31 - 1),
        **{c: st.none() | WORD for c in ("v", "w", "u3", "u5")},
        **{c: st.none() | st.binary(min_size=n, max_size=n) for c, n in SIZES.items()},
    }
)


def image(row: dict[str, Any]) -> bytes:
    nulls, out = 0, b""
    for i, c in enumerate(LOG):
        value = row[c.name]
        if value is None:
            nulls |= 1 << i
        elif c.name == "k2":
            out += struct.pack("<i", value)
        elif c.name in SIZES:
            out += value
        else:
            data = value.encode()
            out += len(data).to_bytes(PREFIXES[c.name], "little") + data
    return nulls.to_bytes(2, "little") + out


@st.composite
def changes(draw: st.DrawFn) -> tuple[Op, bytes, dict[str, Any], dict[str, Any] | None]:
    """A change: its op, its payload, what a reader must find in it, and the row as it was."""
    row = draw(ROWS)
    op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.DELETE, Op.TRUNCATE]))
    names = [c.name for c in COLUMNS]
    nothing: dict[str, Any] = dict.fromkeys(names)
    found: dict[str, Any] = {"__missing": None, "__old": None}
    key = {k: row[k] for k in KEY}
    if op is Op.INSERT:
        return op, image(row), found | {c: row[c] for c in names}, None
    if op is Op.DELETE:
        return op, image(row), found | nothing | key, {c: row[c] for c in names}
    if op is Op.TRUNCATE:
        return op, b"", found | nothing, None
    new = row | draw(st.fixed_dictionaries({}, optional={"v": st.none() | WORD, "k1": WORD, "k2": st.just(5)}))
    if any(new[k] != row[k] for k in KEY):
        found["__old"] = key
    return op, image(row) + image(new), found | {c: new[c] for c in names}, {c: row[c] for c in names}


def table(given_: list[Any], chunks: int = 1) -> pa.Table:
    rows = [(i + 1, int(op), 100 + i, payload, 7) for i, (op, payload, *_) in enumerate(given_)]
    size = max(1, len(rows) // chunks)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    tables = [
        pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(zip(*p, strict=True), RAW, strict=True)], schema=RAW)
        for p in parts
    ]
    return pa.concat_tables([RAW.empty_table(), *tables])


@given(st.lists(changes(), max_size=20), st.integers(1, 4), st.integers(0, 3))
def test_every_change_is_read_as_the_format_says(given_: list[Any], chunks: int, skip: int) -> None:
    raw = table(given_, chunks).slice(skip)
    got = decode_changes(raw, SCHEMAS, COLUMNS, KEY)
    expected = [e | {"__index": i + 1, "__txn": 100 + i, "__op": int(op)} for i, (op, _, e, _) in enumerate(given_)][
        skip:
    ]
    assert got.table.to_pylist() == expected
    assert got.table.schema == changes_schema(COLUMNS, KEY)
    assert got.unrepresentable == {} and got.notices == []
    got.table.validate(full=True)
    assert decode_before(raw, SCHEMAS, COLUMNS, KEY).to_pylist() == [b for *_, b in given_][skip:]


@given(changes().filter(lambda c: c[0] is not Op.TRUNCATE), st.data())
def test_a_damaged_image_is_an_error_or_a_row_never_a_crash(change: Any, data: st.DataObject) -> None:
    op, payload, *_ = change
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(DataError) as caught:
        decode_changes(table([(op, cut)]), SCHEMAS, COLUMNS, KEY)
    assert caught.value.code in ("data.log_damaged", "data.key_value")
    broken = bytearray(payload)
    broken[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_changes(table([(op, bytes(broken))]), SCHEMAS, COLUMNS, KEY).table.validate(full=True)
    except DataError as e:
        assert e.code in ("data.log_damaged", "data.key_value")


def test_bytes_behind_an_image_are_damage() -> None:
    row = {c.name: None for c in LOG} | {"k1": "a", "k2": 1}
    with pytest.raises(DataError, match="index 1 ") as caught:
        decode_changes(table([(Op.INSERT, image(row) + b"\0")]), SCHEMAS, COLUMNS, KEY)
    assert caught.value.code == "data.log_damaged"


def test_a_type_that_no_server_writes_is_damage() -> None:
    log = (*LOG, LogColumn("odd", 99, 0, False))
    with pytest.raises(DataError, match="odd") as caught:
        decode_changes(table([(Op.INSERT, b"")]), {7: SchemaVersion(7, 1, 1, "d", "t", "f", log)}, COLUMNS, KEY)
    assert caught.value.code == "data.log_damaged"
