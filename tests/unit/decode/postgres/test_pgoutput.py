"""Row messages against a naive reading of the protocol, and messages that are damaged."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.decode.changes import changes_schema, decode_changes
from headwater.decode.layout import RowLayout, decodable_until
from headwater.errors import DataError
from headwater.model import Column, LogColumn, Op, SchemaVersion, UpstreamType
from support.values import RAW

TEXT = UpstreamType("text", 25)
INT8 = UpstreamType("int8", 20)
# the relation's order differs from the log's, and the log has a column that the relation does not want
COLUMNS = (
    Column("v", "STRING", TEXT),
    Column("k2", "BIGINT", INT8),
    Column("w", "STRING", TEXT),
    Column("k1", "STRING", TEXT),
)
KEY = ("k1", "k2")
LOG = (
    LogColumn("k1", 25, -1, True),
    LogColumn("unwanted", 25, -1, False),
    LogColumn("v", 25, -1, False),
    LogColumn("k2", 20, -1, True),
    LogColumn("w", 25, -1, False),
)
UNCHANGED = "unchanged"
SCHEMAS = {
    7: SchemaVersion(7, 1, 1, "public", "t", "d", LOG),
    8: SchemaVersion(8, 1, 1, "public", "t", "f", tuple(LogColumn(c.name, c.type_oid, c.modifier, True) for c in LOG)),
}


def tuple_data(row: dict[str, Any]) -> bytes:
    out = struct.pack(">H", len(LOG))
    for c in LOG:
        value = row.get(c.name)
        if value is None:
            out += b"n"
        elif value is UNCHANGED:
            out += b"u"
        else:
            text = str(value).encode()
            out += b"t" + struct.pack(">I", len(text)) + text
    return out


@st.composite
def changes(draw: st.DrawFn) -> tuple[Op, int, bytes, dict[str, Any]]:
    """A change: its op, its schema, its message, and what a reader must find in it."""
    word = st.text(max_size=5)
    keys = st.fixed_dictionaries({"k1": word, "k2": st.integers(-(2**63), 2**63 - 1)})
    rest = st.fixed_dictionaries({c: st.none() | word for c in ("unwanted", "v", "w")})
    row = draw(keys) | draw(rest)
    full = draw(st.booleans())
    op = draw(st.sampled_from([op for op in Op if op is not Op.BREAK]))
    nothing = dict.fromkeys([c.name for c in COLUMNS])
    head = b"IUDT"[op - 1 : op] + struct.pack(">I", 1)
    key_only = {k: row[k] for k in KEY}
    expected: dict[str, Any] = {"__missing": None, "__old": None}
    if op is Op.INSERT:
        message = head + b"N" + tuple_data(row)
        expected |= {c: row[c] for c in nothing}
    elif op is Op.TRUNCATE:
        message = b"T" + struct.pack(">IBI", 1, 0, 1)
        expected |= nothing
    elif op is Op.DELETE:
        message = head + (b"O" + tuple_data(row) if full else b"K" + tuple_data(key_only))
        expected |= nothing | key_only
    else:
        new = row | draw(st.fixed_dictionaries({}, optional={"v": word, "k1": word}))
        unchanged = [c for c in ("v", "w") if new[c] == row[c] and draw(st.booleans())]
        moved = any(new[k] != row[k] for k in KEY)
        old = b"O" + tuple_data(row) if full else b"K" + tuple_data(key_only) if moved or draw(st.booleans()) else b""
        message = head + old + b"N" + tuple_data(new | dict.fromkeys(unchanged, UNCHANGED))
        missing = [] if full else unchanged
        expected |= {c: None if c in missing else new[c] for c in nothing}
        expected["__missing"] = [i for i, c in enumerate(COLUMNS) if c.name in missing] or None
        expected["__old"] = key_only if moved else None
    return op, 8 if full else 7, message, expected


def table(rows: list[tuple[int, int, int, bytes, int]], chunks: int = 1) -> pa.Table:
    size = max(1, len(rows) // chunks)
    parts = [rows[i : i + size] for i in range(0, len(rows), size)]
    return pa.concat_tables(
        [RAW.empty_table()]
        + [
            pa.Table.from_arrays(
                [pa.array(c, f.type) for c, f in zip(zip(*p, strict=True), RAW, strict=True)], schema=RAW
            )
            for p in parts
        ]
    )


@given(st.lists(changes(), max_size=25), st.integers(1, 4), st.integers(0, 3))
def test_every_change_is_read_as_the_protocol_says(given_: list[Any], chunks: int, skip: int) -> None:
    raw = table([(i + 1, op, 100 + i, m, schema) for i, (op, schema, m, _) in enumerate(given_)], chunks)
    got = decode_changes(raw.slice(skip), SCHEMAS, COLUMNS, KEY)
    expected = [e | {"__index": i + 1, "__txn": 100 + i, "__op": int(op)} for i, (op, _, _, e) in enumerate(given_)][
        skip:
    ]
    assert got.table.to_pylist() == expected
    assert got.table.schema == changes_schema(COLUMNS, KEY)
    assert got.unrepresentable == {} and got.notices == []
    got.table.validate(full=True)


@given(changes(), st.data())
def test_a_damaged_message_is_an_error_or_a_row_never_a_crash(change: Any, data: st.DataObject) -> None:
    op, schema, message, _ = change
    at = data.draw(st.integers(0, len(message)))
    kind = data.draw(st.sampled_from(["cut", "flip", "grow"]))
    if kind == "cut":
        message = message[:at]
    elif kind == "grow":
        message = message[:at] + b"\xff" + message[at:]
    elif at < len(message):
        message = message[:at] + bytes([message[at] ^ data.draw(st.integers(1, 255))]) + message[at + 1 :]
    try:
        decode_changes(table([(1, op, 1, message, schema)]), SCHEMAS, COLUMNS, KEY)
    except DataError as e:
        assert e.code in ("data.log_damaged", "data.key_value")


def test_a_change_without_its_key_is_an_error() -> None:
    message = b"U" + struct.pack(">I", 1) + b"N" + tuple_data({"k1": UNCHANGED, "k2": 1})
    with pytest.raises(DataError) as caught:
        decode_changes(table([(1, Op.UPDATE, 1, message, 7)]), SCHEMAS, COLUMNS, KEY)
    assert caught.value.code == "data.key_value" and "replica identity" in caught.value.hint


def test_no_changes_give_an_empty_table_of_the_right_schema() -> None:
    got = decode_changes(RAW.empty_table(), SCHEMAS, COLUMNS, KEY).table
    assert got.num_rows == 0 and got.schema == changes_schema(COLUMNS, KEY)


def test_more_changes_than_one_piece_come_in_order() -> None:
    from headwater.decode import layout

    n = layout.ROWS_AT_ONCE + 3
    message = b"I" + struct.pack(">I", 1) + b"N" + tuple_data({"k1": "a", "k2": 1, "v": "x"})
    raw = table([(i, Op.INSERT, 1, message, 7) for i in range(n)], 5)
    got = decode_changes(raw, SCHEMAS, COLUMNS, KEY).table
    assert got.column("__index").to_pylist() == list(range(n))
    assert set(got.column("v").to_pylist()) == {"x"}


def version(id: int, from_index: int, columns: tuple[LogColumn, ...] = LOG, broken: str = "") -> SchemaVersion:
    return SchemaVersion(id, 1, from_index, "public", "t", "d", columns, broken)


RETYPED = tuple(LogColumn(c.name, 20 if c.name == "v" else c.type_oid, -1, c.key) for c in LOG)


@pytest.mark.parametrize(
    ("versions", "last"),
    [
        ([version(1, 1)], 10),
        ([version(1, 1), version(2, 7, RETYPED)], 6),
        ([version(1, 1), version(2, 7, broken="it was truncated")], 6),
        ([version(1, 1), version(2, 5, RETYPED), version(3, 8, RETYPED)], 4),
        ([version(1, 1), version(2, 10, RETYPED)], 9),
        ([version(1, 1), version(2, 11, RETYPED)], 10),  # of rows that are not asked for
        ([version(1, 2, RETYPED), version(2, 5)], 10),  # of rows that the base holds
    ],
)
def test_a_table_can_be_followed_up_to_the_last_row_of_a_form_that_can_be_read(
    versions: list[SchemaVersion], last: int
) -> None:
    assert decodable_until(versions, COLUMNS, KEY, 2, 10) == last


PLACED = tuple(Column(n, "BIGINT", UpstreamType("int8", 20, number=i)) for i, n in enumerate(("k", "a", "b", "c"), 1))


def laid_out(names: str) -> RowLayout:
    """The layout of a table whose columns have these names now."""
    written = tuple(LogColumn(n, 20, -1, n == "k") for n in names.split())
    return RowLayout.of(version(1, 1, written), PLACED, ("k",))


@pytest.mark.parametrize("names", ["k a c", "k a c d"])  # d was added since: it stands behind all that were there
def test_a_column_that_was_dropped_is_told_from_one_that_was_renamed(names: str) -> None:
    assert [t is None for t in laid_out(names).types] == [False, False, True, False]


@pytest.mark.parametrize("names", ["k a x c", "k a b x", "k a c b"])
def test_a_column_that_may_have_been_renamed_is_not_followed(names: str) -> None:
    with pytest.raises(DataError, match=r"names|renamed"):
        laid_out(names)
