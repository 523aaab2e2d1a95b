"""Rows of a SELECT as they are on the wire: read from the driver's socket in large blocks, one value per row.

The driver does handshake, authentication and TLS, and reads the column descriptions. What follows is one packet
(or more, from 16 MB on) per row: a 3-byte length, a number, and the row's texts, each after its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pymysql import err
from pymysql.connections import MysqlPacket
from pymysql.constants import COMMAND

from headwater.kernel import kernel
from headwater.source.mysql.client.session import Session

BLOCK_BYTES = 1 << 20  # bytes requested from the socket at once
SCHEMA = pa.schema([pa.field("row", pa.binary())])

MORE, END, ERROR = 0, 1, 2  # why the kernel stopped: it needs bytes, or it reached the last packet
SMALLEST = 5  # bytes needed to tell a packet: its header and one byte
_AT, _USED, _ROWS, _LEFT, _LAST = range(5)  # of the kernel's state
_EOF_BELOW = 9  # a longer packet that begins with 0xFE is a row whose first value is large


@kernel("int64(uint8[::1], int64, int64, uint8[::1], int32[::1], int64[::1])")
def split(block: Any, end: Any, limit: Any, out: Any, offsets: Any, state: Any) -> Any:
    """Appends the rows of `block[state[AT]:end]` to `out`, up to `limit` bytes; records where each ends.

    `state`: where to continue in the block, bytes in `out`, whole rows, missing bytes of the packet, and whether the
    packet is its row's last one. The caller makes sure that `out` and `offsets` have room.
    """
    at, used, rows, left, last = state[0], state[1], state[2], state[3], state[4]
    answer = MORE
    while True:
        if left == 0 and last == 1:  # between two rows
            if used >= limit or end - at < SMALLEST:
                break
            length = np.int64(block[at]) | np.int64(block[at + 1]) << 8 | np.int64(block[at + 2]) << 16
            kind = block[at + 4]
            if kind == 0xFF:
                answer = ERROR
                break
            if kind == 0xFE and length < _EOF_BELOW:
                answer = END
                break
            at += 4
            left = length
            last = 1 if length < 0xFFFFFF else 0
        elif left == 0:  # the row continues in the next packet
            if end - at < 4:
                break
            left = np.int64(block[at]) | np.int64(block[at + 1]) << 8 | np.int64(block[at + 2]) << 16
            last = 1 if left < 0xFFFFFF else 0
            at += 4
        here = min(left, end - at)
        out[used : used + here] = block[at : at + here]
        at += here
        used += here
        left -= here
        if left > 0:
            break
        if last == 1:
            rows += 1
            offsets[rows] = used
    state[0], state[1], state[2], state[3], state[4] = at, used, rows, left, last
    return answer


class RowStream:
    """A running SELECT: its rows in batches.

    Driver errors pass through unchanged; the session cannot run anything else before the stream has ended.
    """

    def __init__(self, session: Session, statement: str) -> None:
        self._session = session
        self._ended = False
        session._execute_command(COMMAND.COM_QUERY, statement)
        try:
            columns = session._read_packet().read_length_encoded_integer()
            for _ in range(columns or 0):
                session._read_packet()
            if not session._read_packet().is_eof_packet():
                raise err.InternalError("a SELECT without rows")
        except err.MySQLError:
            self._ended = True
            raise
        self._blocks = _Blocks(session)

    def batches(self, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows in batches of about `batch_bytes`, as they arrive: one value of `row` for each."""
        blocks = self._blocks
        while not self._ended:
            out = np.empty(batch_bytes + BLOCK_BYTES, np.uint8)
            offsets = np.zeros(batch_bytes // SMALLEST + 2, np.int32)
            blocks.begin_batch()
            while True:
                out = _with_room(out, blocks.used + blocks.waiting)
                offsets = _with_room(offsets, blocks.rows + blocks.waiting // SMALLEST + 2)
                answer = blocks.split(batch_bytes, out, offsets)
                if answer != MORE:
                    self._ended = True
                    last = blocks.last_packet()
                    if answer == ERROR:
                        MysqlPacket(last, self._session.encoding).raise_for_error()
                    break
                if blocks.used >= batch_bytes and not blocks.inside:
                    break
                blocks.fill()
            if blocks.rows:
                yield _batch(out[: blocks.used], offsets[: blocks.rows + 1])

    @property
    def ended(self) -> bool:
        """Whether every row was read, or the server has ended the stream."""
        return self._ended

    def drain(self) -> None:
        """Discards the rest; how the server ends it does not matter."""
        try:
            for _ in self.batches(BLOCK_BYTES):
                pass
        except err.MySQLError:
            if not self._ended:
                raise


class _Blocks:
    """What was received from the socket but not split yet, and the state of splitting."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._file = session._rfile
        self._block = np.empty(BLOCK_BYTES, np.uint8)
        self._view = memoryview(self._block)  # type: ignore[arg-type]
        self._begun = False
        self._end = 0
        self._state = np.array([0, 0, 0, 0, 1], np.int64)

    @property
    def used(self) -> int:
        return int(self._state[_USED])

    @property
    def rows(self) -> int:
        return int(self._state[_ROWS])

    @property
    def waiting(self) -> int:
        """Bytes received but not split."""
        return self._end - int(self._state[_AT])

    @property
    def inside(self) -> bool:
        """Whether the last row is incomplete."""
        return bool(self._state[_LEFT] or not self._state[_LAST])

    def begin_batch(self) -> None:
        self._state[_USED] = self._state[_ROWS] = 0

    def split(self, limit: int, out: Any, offsets: Any) -> int:
        return int(split(self._block, self._end, limit, out, offsets, self._state))

    def fill(self) -> None:
        """Reads what the socket has, up to a block; unsplit bytes move to the front."""
        at, waiting = int(self._state[_AT]), self.waiting
        if waiting:
            self._block[:waiting] = self._block[at : self._end].copy()
        self._state[_AT], self._end = 0, waiting
        try:
            count = self._read(waiting)
        except OSError as e:
            raise err.OperationalError(2013, f"Lost connection to MySQL server during query ({e})") from e
        if not count:
            raise err.OperationalError(2013, "Lost connection to MySQL server during query")
        self._end += count

    def _read(self, at: int) -> int:
        """First what the driver has read beyond the column descriptions, then directly from the socket."""
        if not self._begun:
            self._begun = True
            ahead = self._file.read(len(self._file.peek(1)))
            self._block[at : at + len(ahead)] = np.frombuffer(ahead, np.uint8)
            return len(ahead)
        return self._file.raw.readinto(self._view[at:]) or 0

    def last_packet(self) -> bytes:
        """The packet that ends the rows, which is never large."""
        while True:
            at = int(self._state[_AT])
            head = int.from_bytes(self._block[at : at + 3].tobytes(), "little")
            if self.waiting >= 4 + head:
                return self._block[at + 4 : at + 4 + head].tobytes()
            self.fill()


def _with_room(array: Any, size: int) -> Any:
    """The array, or a larger copy of it."""
    if array.size >= size:
        return array
    larger = np.zeros(max(size, 2 * array.size), array.dtype)
    larger[: array.size] = array
    return larger


def _batch(data: Any, offsets: Any) -> pa.RecordBatch:
    rows = pa.Array.from_buffers(pa.binary(), offsets.size - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([rows], schema=SCHEMA)


def texts_of(row: bytes) -> tuple[str, ...]:
    """The values of a row without NULLs, as texts; for the few rows that are handled one by one."""
    texts, at = [], 0
    while at < len(row):
        length, at = _length(row, at)
        texts.append(row[at : at + length].decode(errors="surrogateescape"))
        at += length
    return tuple(texts)


def _length(row: bytes, at: int) -> tuple[int, int]:
    """A length as the protocol packs it, and where the value begins; a NULL has none."""
    first = row[at]
    if first == 0xFB:
        return 0, at + 1
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    at += 1
    return (int.from_bytes(row[at : at + width], "little") if width else first), at + width
