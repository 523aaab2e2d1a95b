"""Framing of hand-made binlogs: rows, transactions and positions, wherever the log is cut."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model import Op
from headwater.source.frames import FramedTo
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.carry import Sender
from headwater.source.mysql.binlog.history import History, Now
from headwater.source.mysql.binlog.position import Position, table_number
from headwater.source.mysql.binlog.tablemap import parse
from headwater.source.mysql.frame import MysqlFraming
from support.mysql_log import DictMemory

START = "binlog.000003:1000 00000000-0000-0000-0000-000000000001:1-5"
SID = bytes(15) + b"\x01"
TYPES, METADATA = bytes([3, 15, 16]), bytes([40, 0, 3, 1])  # int, varchar(40 bytes), bit(11)


def names(*texts: str) -> bytes:
    listed = b"".join(bytes([len(t)]) + t.encode() for t in texts)
    return bytes([4, len(listed)]) + listed


@dataclass
class HandMade:
    """A binlog that is written event by event."""

    offset: int = 1000
    gno: int = 5
    messages: list[bytes] = field(default_factory=list)

    def event(self, kind: int, body: bytes, *, told: bool = True) -> None:
        size = ev.HEADER_BYTES + len(body) + 4
        self.offset += size if told else 0
        number = (3 << 36 | self.offset) if told else 0
        header = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, self.offset if told else 0, 0)
        self.messages.append(number.to_bytes(8, "little") + header + body)

    def begin(self) -> int:
        began = 3 << 36 | self.offset
        self.gno += 1
        moment = (1_700_000_000_000_000 + self.gno).to_bytes(7, "little")
        self.event(ev.GTID, b"\0" + SID + self.gno.to_bytes(8, "little") + b"\2" + bytes(16) + moment)
        return began

    def query(self, text: str, schema: str = "db") -> None:
        head = struct.pack("<IIBHH", 1, 0, len(schema), 0, 0)
        self.event(ev.QUERY, head + schema.encode() + b"\0" + text.encode())

    def table(self, id: int, table: str, metadata: bytes = names("id", "v", "b")) -> None:
        body = id.to_bytes(6, "little") + b"\1\0\2db\0" + bytes([len(table)]) + table.encode() + b"\0\3" + TYPES
        full = bytes([1, 1, 0, 2, 1, 45]) + metadata
        self.event(ev.TABLE_MAP, body + bytes([4]) + METADATA + b"\6" + full)

    def rows(self, kind: int, id: int, images: bytes, present: int = 7) -> None:
        extra = b"\2\0" if kind >= ev.WRITE_ROWS else b""
        bitmaps = bytes([present] * (2 if kind in (ev.UPDATE_ROWS, ev.UPDATE_ROWS_V1) else 1))
        self.event(kind, id.to_bytes(6, "little") + b"\1\0" + extra + b"\3" + bitmaps + images)

    def arrays(self) -> tuple[Any, Any]:
        data = np.frombuffer(bytearray(b"".join(self.messages)), np.uint8)
        return data, np.array([len(m) for m in self.messages], np.int64)


def image(id: int, text: str | None, bits: int | None) -> bytes:
    nulls = (text is None) << 1 | (bits is None) << 2
    out = bytes([nulls]) + id.to_bytes(4, "little", signed=True)
    out += b"" if text is None else bytes([len(text)]) + text.encode()
    return out + (b"" if bits is None else bits.to_bytes(2, "big"))


def framing() -> MysqlFraming:
    def ask(_schema: str, _table: str) -> Now | None:
        return None

    return MysqlFraming(Sender(Position.parse(START), mariadb=False, database="db"), History(ask))


def frame(log: HandMade, sizes: list[int] | None = None, followed: str = "t") -> tuple[list[Any], list[Any], FramedTo]:
    """Rows and transactions, framed in batches of so many messages (where the log may be cut there)."""
    f, memory = framing(), DictMemory([table_number("db", name) for name in followed.split()])
    data, lengths = log.arrays()
    progress = f.begin(START, 1, 0)
    rows: list[Any] = []
    done: list[Any] = []
    at = turn = 0
    while at < len(lengths):
        wanted = len(lengths) - at if sizes is None else sizes[turn % len(sizes)]
        turn += 1
        while True:
            part = lengths[at : at + wanted]
            first = int(lengths[:at].sum())
            cut = f.boundary(data[first : first + int(part.sum())], part, progress.open)
            count, size = (cut.whole, cut.whole_bytes) if cut.whole else (cut.piece, cut.piece_bytes)
            if count:
                break
            wanted += 1
        batch = data[first : first + size], lengths[at : at + count]
        again, _ = f.frame(*batch, progress, memory)  # a batch may be framed again
        frames, progress = f.frame(*batch, progress, memory)
        assert again.start.tolist() == frames.start.tolist()
        assert again.relations == frames.relations
        assert len(frames) or not len(frames.transactions)
        memory.published(frames)
        rows += [
            (Op(int(op)), int(txn), bytes(frames.data[start : start + length]))
            for op, txn, start, length in zip(frames.op, frames.txn, frames.start, frames.length, strict=True)
        ]
        t = frames.transactions
        done += list(zip(t.txn.tolist(), t.commit.tolist(), t.first_index.tolist(), t.last_index.tolist(), strict=True))
        at += count
    return rows, done, progress


values = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text("abc", max_size=40),
    st.none() | st.integers(0, 2047),
)
statements = st.tuples(
    st.sampled_from([0, 1, 2]), st.booleans(), st.booleans(), st.lists(values, min_size=1, max_size=4)
)
transactions = st.lists(st.lists(statements, max_size=4), min_size=1, max_size=5)


@settings(max_examples=60)
@given(transactions, st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_rows_and_transactions_are_the_same_wherever_the_log_is_cut(groups: list[Any], sizes: list[int]) -> None:
    log = HandMade()
    rows: list[Any] = []
    done: list[Any] = []
    for group in groups:
        txn, before = log.begin(), len(rows)
        log.query("BEGIN")
        for what, old_version, other, of in group:
            log.table(8 if other else 7, "other" if other else "t")
            images = [image(*v) * (2 if what == 1 else 1) for v in of]
            log.rows((23 if old_version else 30) + what, 8 if other else 7, b"".join(images))
            rows += [] if other else [((Op.INSERT, Op.UPDATE, Op.DELETE)[what], txn, i) for i in images]
        log.event(ev.XID, bytes(8))
        if len(rows) > before:
            done.append((txn, 3 << 36 | log.offset, before + 1, len(rows)))
    for cut in (None, sizes):
        found, completed, progress = frame(log, cut)
        assert found == rows
        assert completed == done
        assert not progress.open
        assert progress.position == f"binlog.000003:{log.offset} 00000000-0000-0000-0000-000000000001:1-{log.gno}"


def test_commit_times_come_from_the_transactions_beginning() -> None:
    log = HandMade()
    log.begin()
    log.query("BEGIN")
    log.table(7, "t")
    log.rows(ev.WRITE_ROWS, 7, image(1, "a", 1))
    log.event(ev.XID, bytes(8))
    f = framing()
    frames, _ = f.frame(*log.arrays(), f.begin(START, 1, 0), DictMemory([table_number("db", "t")]))
    assert frames.transactions.commit_time_us.tolist() == [1_700_000_000_000_006 - ev.EPOCH_US]


def test_a_heartbeat_moves_the_position_only_between_transactions() -> None:
    log = HandMade()
    log.event(ev.HEARTBEAT, b"binlog.000003")
    between = log.offset
    log.begin()
    log.query("BEGIN")
    log.event(ev.HEARTBEAT, b"binlog.000003")
    f = framing()
    data, lengths = log.arrays()
    _, progress = f.frame(data, lengths, f.begin(START, 1, 0), DictMemory([]))
    assert progress.position.startswith(f"binlog.000003:{between} ")
    assert progress.open
    cut = f.boundary(data, lengths, False)
    assert (cut.whole, cut.piece, cut.position) == (1, 4, 3 << 36 | between)


def test_a_transaction_that_was_rolled_back_leaves_no_rows() -> None:
    log = HandMade()
    for end in ("ROLLBACK", "COMMIT"):
        log.begin()
        log.query("BEGIN")
        log.table(7, "t")
        log.rows(ev.WRITE_ROWS, 7, image(len(end), "a", 1))
        log.query(end)
    rows, done, _ = frame(log)
    assert [payload for _, _, payload in rows] == [image(6, "a", 1)]
    assert [(first, last) for _, _, first, last in done] == [(1, 1)]


def test_a_transaction_that_a_crash_of_the_server_cut_off_leaves_no_rows() -> None:
    """Its log goes on in a new file, which begins with a description of its format."""
    log = HandMade()
    for number in (1, 2):
        log.begin()
        log.query("BEGIN")
        log.table(7, "t")
        log.rows(ev.WRITE_ROWS, 7, image(number, "a", 1))
        if number == 1:
            log.event(ev.FORMAT_DESCRIPTION, bytes(60))
    log.query("COMMIT")
    rows, done, _ = frame(log)
    assert [payload for _, _, payload in rows] == [image(2, "a", 1)]
    assert [(first, last) for _, _, first, last in done] == [(1, 1)]


def test_a_part_of_a_transaction_that_was_logged_and_rolled_back_breaks_its_tables() -> None:
    log = HandMade()
    log.begin()
    log.query("BEGIN")
    log.table(7, "t")
    log.rows(ev.WRITE_ROWS, 7, image(1, "a", 1))
    log.query("ROLLBACK TO `s`")
    log.query("COMMIT")
    rows, done, _ = frame(log)
    assert Op.BREAK in [op for op, _, _ in rows] and len(done) == 1


def test_an_incident_breaks_every_table() -> None:
    log = HandMade()
    log.begin()
    log.event(ev.INCIDENT, b"\1\0")
    rows, done, _ = frame(log)
    assert [op for op, _, _ in rows] == [Op.BREAK]
    assert len(done) == 1


def test_rows_that_do_not_fit_their_table_break_that_table_alone() -> None:
    log = HandMade()
    log.begin()
    log.query("BEGIN")
    log.table(7, "t")
    log.table(8, "u")
    log.rows(ev.WRITE_ROWS, 7, image(1, "abc", 1)[:-3])
    log.rows(ev.WRITE_ROWS, 8, image(2, "abc", 1))
    log.event(ev.XID, bytes(8))
    rows, done, _ = frame(log, followed="t u")
    assert [op for op, _, _ in rows] == [Op.BREAK, Op.INSERT]
    assert [(first, last) for _, _, first, last in done] == [(1, 2)]


# what a table map may hold that nobody here has seen: a type, a length, and an enum in a charset without Python codec
UNREADABLE = {
    "an unknown type": bytes([1, 243, 0, 1]),
    "a length beyond its end": bytes([1, 3, 252]),
    "metadata that is too short": bytes([1, 254, 1, 1]),
    "an impossible length": bytes([1, 3, 0, 1, 1, 255]),
    "a default charset without a collation": bytes([1, 15, 2, 10, 0, 1, 2, 0]),
    "nothing behind its names": b"",
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("table", ["t", "of nobody"])
def test_a_description_that_cannot_be_read_affects_its_table_only(content: bytes, table: str) -> None:
    log = HandMade()
    log.begin()
    log.query("BEGIN")
    name = bytes([len(table)]) + table.encode()
    log.event(ev.TABLE_MAP, (9).to_bytes(6, "little") + b"\1\0\2db\0" + name + b"\0" + content)
    log.rows(ev.WRITE_ROWS, 9, image(1, "lost", 1))
    log.table(8, "u")
    log.rows(ev.WRITE_ROWS, 8, image(2, "abc", 1))
    log.event(ev.XID, bytes(8))
    rows, _, progress = frame(log, followed="t u")
    broken = [Op.BREAK] if table == "t" else []
    assert [op for op, _, _ in rows] == [*broken, Op.INSERT]
    assert progress.position.startswith(f"binlog.000003:{log.offset} ")


def test_every_table_number_may_be_a_tables_and_an_event_without_rows_is_nobodys() -> None:
    for id in (0xFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFF):
        log = HandMade()
        log.begin()
        log.query("BEGIN")
        log.rows(ev.WRITE_ROWS, id, b"")  # ends a statement; no such table was described
        log.table(id, "t")
        log.rows(ev.WRITE_ROWS, id, image(2, "abc", 1))
        log.event(ev.WRITE_ROWS, id.to_bytes(6, "little") + b"\1\0\2\0\1\xff")  # as servers end it: one column, no rows
        log.event(ev.XID, bytes(8))
        assert [(op, payload) for op, _, payload in frame(log)[0]] == [(Op.INSERT, image(2, "abc", 1))]


@pytest.mark.parametrize(
    ("position", "time_us", "kept"),
    [
        ("first", 0, 4),
        ("inside second", 0, 4),
        ("second", 0, 8),
        ("beyond", 0, -1),
        ("", 6, 4),
        ("", 5, 0),
        ("", 7, -1),
    ],
)
def test_an_end_is_found_between_transactions(position: str, time_us: int, kept: int) -> None:
    log, ends = HandMade(), {}
    for name in ("first", "second"):
        log.begin()
        log.query("BEGIN")
        log.rows(ev.WRITE_ROWS, 7, b"")
        log.event(ev.XID, bytes(8))
        ends[name] = 3 << 36 | log.offset
    ends |= {"inside second": ends["first"] + 60, "beyond": ends["second"] + 1, "": 0}
    moment = 1_700_000_000_000_000 + time_us - ev.EPOCH_US if time_us else 0
    assert framing().end(*log.arrays(), False, ends[position], moment) == kept


def test_every_type_has_the_size_that_the_log_gives_it() -> None:
    kinds = [
        (1, b"", (1, 0)), (2, b"", (2, 0)), (9, b"", (3, 0)), (3, b"", (4, 0)), (8, b"", (8, 0)),
        (4, b"\4", (4, 0)), (5, b"\x08", (8, 0)), (13, b"", (1, 0)), (10, b"", (3, 0)), (11, b"", (3, 0)),
        (7, b"", (4, 0)), (12, b"", (8, 0)), (17, b"\0", (4, 0)), (17, b"\6", (7, 0)), (18, b"\3", (7, 0)),
        (19, b"\1", (4, 0)), (15, b"\xff\0", (0, 1)), (15, b"\0\1", (0, 2)), (246, b"\x0a\2", (5, 0)),
        (246, b"\x41\x1e", (30, 0)), (254, b"\xfe\x28", (0, 1)), (254, b"\xee\x2c", (0, 2)), (254, b"\xf7\2", (2, 0)),
        (254, b"\xf8\x08", (8, 0)), (16, b"\0\1", (1, 0)), (16, b"\3\7", (8, 0)), (252, b"\4", (0, 4)),
        (245, b"\4", (0, 4)), (255, b"\4", (0, 4)), (242, b"\4", (0, 4)),
    ]  # fmt: skip
    metadata = b"".join(m for _, m, _ in kinds)
    content = b"\2db\0\1t\0" + bytes([len(kinds), *(t for t, _, _ in kinds), len(metadata)]) + metadata + bytes(4)
    table = parse(content, mariadb=False)
    assert list(table.sizes) == [size for _, _, size in kinds]
    by_place = table.columns
    assert (by_place[22].type_oid, by_place[22].modifier) == (247, 2)
    assert (by_place[21].type_oid, by_place[21].modifier) == (254, 300)


def test_many_tables_and_their_numbers_are_told_apart() -> None:
    seed = 20_26
    print("seed", seed)
    chance = random.Random(seed)
    log, expected = HandMade(), []
    for i in range(4000):
        table, id = chance.choice([("t", 3 * i), ("other", 3 * i + 1)])
        log.begin()
        log.query("BEGIN")
        log.table(id, table)
        log.rows(ev.WRITE_ROWS, id, image(i, "x", None))
        log.event(ev.XID, bytes(8))
        expected += [image(i, "x", None)] if table == "t" else []
    rows, _, _ = frame(log)
    assert [payload for _, _, payload in rows] == expected
