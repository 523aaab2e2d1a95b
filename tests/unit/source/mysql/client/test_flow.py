"""Cutting a dump's bytes into messages: whatever the blocks are that they come in."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.source.base import Inbox
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.position import Position
from headwater.source.mysql.client.flow import BUFFER_BYTES, Flow, Refused
from headwater.source.mysql.client.unpack import unpack_event

PLACE = Position.of("binlog.000007", 4, 2)


class Blocks:
    """A socket that gives its bytes in blocks of given sizes, and says after each that there is nothing now.

    Or it gives them without a pause, and hangs up.
    """

    def __init__(self, data: bytes, sizes: list[int], *, hangs_up: bool = False) -> None:
        self._data = data
        self._sizes = sizes
        self._hangs_up = hangs_up
        self._at = self._turn = 0
        self._pauses = False

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def recv_into(self, view: memoryview) -> int:
        if self._pauses or not (self.left or self._hangs_up):
            self._pauses = False
            raise BlockingIOError
        size = min(len(view), self._sizes[self._turn % len(self._sizes)], self.left)
        self._turn += 1
        view[:size] = self._data[self._at : self._at + size]
        self._at += size
        self._pauses = not self._hangs_up
        return size


def event(kind: int, body: bytes, end: int, *, checksum: bool = True, flags: int = 0) -> bytes:
    size = ev.HEADER_BYTES + len(body) + 4 * checksum
    plain = struct.pack("<IBIIIH", 1_700_000_000, kind, 1, size, end & 0xFFFFFFFF, flags) + body
    return plain + struct.pack("<I", zlib.crc32(plain)) * checksum


def wire(*payloads: bytes) -> bytes:
    out = []
    for payload in payloads:
        while True:
            piece, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
            out += [len(piece).to_bytes(3, "little"), b"\0", piece]
            if len(piece) < 0xFFFFFF:
                break
    return b"".join(out)


def pieces(data: bytes, sizes: list[int], *, checksum: bool = True, after: int = 0) -> Iterator[Inbox]:
    """What each call gives, until there is nothing more."""
    blocks = Blocks(data, sizes)
    flow = Flow(blocks, PLACE, checksum, after)  # type: ignore[arg-type]
    while True:
        held, inbox = not flow.drained or blocks.left, Inbox()
        if not flow.fill() + flow.drain(inbox) and not held:
            return
        yield inbox


def read(data: bytes, sizes: list[int], *, checksum: bool = True, after: int = 0) -> list[tuple[int, bytes]]:
    inbox = Inbox()
    for piece in pieces(data, sizes, checksum=checksum, after=after):
        piece.carry(inbox, 0, 0)
    data_, lengths = inbox.arrays()
    messages, at = [], 0
    for length in lengths.tolist():
        message = data_[at : at + length].tobytes()
        messages.append((int.from_bytes(message[:8], "little"), message[8:]))
        at += length
    return messages


ROTATE = b"\0" + event(ev.ROTATE, (400).to_bytes(8, "little") + b"binlog.000007", 0)


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=40), st.lists(st.integers(1, 700), min_size=1, max_size=9)
)
def test_events_come_whole_whatever_the_blocks(bodies: list[bytes], sizes: list[int]) -> None:
    events = [event(ev.XID, body, 400 + 10 * i) for i, body in enumerate(bodies, 1)]
    messages = read(wire(ROTATE, *(b"\0" + e for e in events)), sizes)
    assert messages == [((7 + 2) << 36 | 400 + 10 * i, e[:-4]) for i, e in enumerate(events, 1)]


@settings(max_examples=5)
@given(st.integers(-30, 30))
def test_an_event_may_be_several_packets(around: int) -> None:
    body = bytes(range(256)) * 65536
    large = event(ev.WRITE_ROWS, body[: 0xFFFFFF - 24 + around], 2_000_000)
    small = event(ev.XID, b"12345678", 3_000_000)
    messages = read(wire(ROTATE, b"\0" + large, b"\0" + small), [BUFFER_BYTES, 77])
    assert [m for _, m in messages] == [large[:-4], small[:-4]]


def test_a_wrong_checksum_is_an_error() -> None:
    damaged = bytearray(event(ev.XID, b"12345678", 500))
    damaged[22] ^= 1
    with pytest.raises(DataError, match="checksum"):
        read(wire(ROTATE, b"\0" + bytes(damaged)), [4096])


def test_the_format_says_whether_checksums_follow() -> None:
    plain = event(ev.FORMAT_DESCRIPTION, b"x" * 60 + b"\0", 0, flags=ev.ARTIFICIAL)
    xid = event(ev.XID, b"12345678", 500, checksum=False)
    messages = read(wire(ROTATE, b"\0" + plain, b"\0" + xid), [4096])
    assert [m for _, m in messages] == [plain[:-4], xid]


def test_offsets_continue_beyond_4_gb() -> None:
    ends = [4_294_967_000, 4_294_967_290, 4_294_967_300, 4_294_968_000]
    messages = read(wire(ROTATE, *(b"\0" + event(ev.XID, b"", end) for end in ends)), [4096])
    assert [number & (1 << 36) - 1 for number, _ in messages] == ends


def test_a_dump_from_the_head_of_its_file_begins_where_it_was_wanted() -> None:
    """MariaDB cannot be asked for an offset beyond 4 GB: our own counting finds it."""
    ends = [4_294_967_000, 4_294_967_290, 4_294_967_300, 4_294_968_000]
    body = zlib.compress(b"SELECT 1")
    compressed = event(ev.MARIA_QUERY_COMPRESSED, bytes(8) + b"\0\0\0\0\0\0" + b"\x81\x08" + body, 4_294_968_900)
    early = event(ev.MARIA_QUERY_COMPRESSED, bytes(8) + b"\0\0\0\0\0\0" + b"\x81\x08" + body, 4_294_966_900)
    data = wire(ROTATE, b"\0" + early, *(b"\0" + event(ev.XID, b"", end) for end in ends), b"\0" + compressed)
    for i, end in enumerate(ends):
        messages = read(data, [4096], after=(7 + 2) << 36 | end)
        assert [number & (1 << 36) - 1 for number, _ in messages] == [*ends[i + 1 :], 4_294_968_900]


def test_a_rotation_leads_to_the_next_file() -> None:
    real = event(ev.ROTATE, (4).to_bytes(8, "little") + b"binlog.000008", 900)
    made_up = event(ev.ROTATE, (4).to_bytes(8, "little") + b"binlog.000008", 0)
    xid = event(ev.XID, b"", 200)
    messages = read(wire(ROTATE, b"\0" + real, b"\0" + made_up, b"\0" + xid), [4096])
    assert [number for number, _ in messages] == [10 << 36 | 4, 10 << 36 | 200]


@pytest.mark.parametrize(
    ("packet", "number", "text"),
    [
        (b"\xff\xd4\x04#HY000purged", 1236, "purged"),
        (b"\xfe\0\0\0\0", 0, "the upstream ended the flow"),
    ],
)
def test_an_end_of_the_flow_says_why(packet: bytes, number: int, text: str) -> None:
    with pytest.raises(Refused) as e:
        read(wire(ROTATE, packet), [4096])
    assert (e.value.number, e.value.text) == (number, text)


def test_a_reason_that_comes_together_with_the_end_is_reported() -> None:
    flow = Flow(Blocks(wire(ROTATE, b"\xff\xd4\x04#HY000purged"), [4096], hangs_up=True), PLACE, True)  # type: ignore[arg-type]
    assert flow.fill()
    with pytest.raises(Refused, match="purged"):
        flow.drain(Inbox())
    with pytest.raises(Refused, match="closed the connection"):
        Flow(Blocks(b"", [1], hangs_up=True), PLACE, True).fill()  # type: ignore[arg-type]


def test_the_room_of_a_large_event_is_given_back() -> None:
    blocks = Blocks(wire(ROTATE, b"\0" + event(ev.WRITE_ROWS, bytes(3 * BUFFER_BYTES), 7000)), [1 << 30])
    flow, sizes = Flow(blocks, PLACE, True), list[int]()  # type: ignore[arg-type]
    while blocks.left:
        flow.fill()
        flow.drain(Inbox())
        sizes.append(len(flow._buffer))
    assert max(sizes) > 3 * BUFFER_BYTES and len(flow._buffer) == BUFFER_BYTES


def test_a_compressed_transaction_becomes_its_events() -> None:
    inner = [event(ev.TABLE_MAP, b"map", 1, checksum=False), event(ev.XID, b"12345678", 2, checksum=False)]
    plain = b"".join(inner)
    packed = pa.Codec("zstd").compress(plain, asbytes=True)
    fields = bytes([2, 1, 0, 3, 1, len(plain), 1, 1, len(packed), 0])
    payload = event(ev.TRANSACTION_PAYLOAD, fields + packed, 5000)
    messages = read(wire(ROTATE, b"\0" + payload), [4096])
    assert messages == [(9 << 36 | 5000, e) for e in inner]


def test_a_compressed_transaction_is_inflated_in_pieces() -> None:
    """A few megabytes on the wire may be gigabytes of rows."""
    inner = [event(ev.WRITE_ROWS, bytes(300_000), i, checksum=False) for i in range(40)]
    plain = b"".join(inner)
    packed = pa.Codec("zstd").compress(plain, asbytes=True)
    fields = bytes([2, 1, 0, 1, 4, 253]) + len(packed).to_bytes(3, "little") + b"\0"
    payload = event(ev.TRANSACTION_PAYLOAD, fields + packed, 5000)
    xid = event(ev.XID, b"", 6000)
    data = wire(ROTATE, b"\0" + payload, b"\0" + xid)
    sizes = [piece.size for piece in pieces(data, [1 << 20])]
    assert max(sizes) <= BUFFER_BYTES + 400_000 and sum(sizes) > len(plain)
    assert read(data, [4096]) == [*((9 << 36 | 5000, e) for e in inner), (9 << 36 | 6000, xid[:-4])]
    with pytest.raises(DataError):
        read(wire(ROTATE, b"\0" + event(ev.TRANSACTION_PAYLOAD, fields + packed[:-9], 5000)), [4096])


def test_no_piece_is_larger_because_compressed_transactions_came_before() -> None:
    """The inbox is cut where it is full: what is drained at once must stay small, whatever mixture comes."""
    plain = event(ev.XID, b"12345678", 2, checksum=False)
    packed = pa.Codec("zstd").compress(plain, asbytes=True)
    fields = bytes([2, 1, 0, 3, 1, len(plain), 1, 1, len(packed), 0])
    payload = event(ev.TRANSACTION_PAYLOAD, fields + packed, 5000)
    rows = event(ev.WRITE_ROWS, bytes(8000), 6000)
    large = event(ev.WRITE_ROWS, bytes(3 * BUFFER_BYTES), 7000)
    before, after = [b"\0" + rows] * 20 + [b"\0" + payload], [b"\0" + rows] * 4000
    data = wire(ROTATE, *(before * 100), *after, b"\0" + large, *after)
    sizes = sorted(piece.size for piece in pieces(data, [1 << 30]))
    assert sum(sizes) > 10_000 * 8000
    *others, largest = sizes
    assert max(others) <= 1.1 * BUFFER_BYTES, "an event of three buffers makes one larger piece, and only one"
    assert largest <= 8 * BUFFER_BYTES


def test_a_compressed_event_becomes_the_plain_one() -> None:
    rows = b"r" * 1000
    frame = bytes([0x80 | 2]) + len(rows).to_bytes(2, "big") + zlib.compress(rows)
    head = b"\x11\0\0\0\0\0\1\0" + bytes([3, 7, 7])  # table, flags, three columns, both bitmaps
    packed = event(ev.MARIA_ROWS_COMPRESSED_V1 + 1, head + frame, 700, checksum=False)
    plain = unpack_event(packed)
    assert plain[ev.TYPE] == ev.UPDATE_ROWS_V1
    assert plain[ev.HEADER_BYTES :] == head + rows
    with pytest.raises(DataError):
        unpack_event(packed[: len(packed) - len(frame)] + b"\x90" + frame[1:])
