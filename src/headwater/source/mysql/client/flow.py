"""The bytes of a dump: read in large blocks, split into messages by a kernel, rare kinds by hand."""

from __future__ import annotations

import socket
import ssl
import zlib
from collections.abc import Iterator

import numpy as np

from headwater.errors import DataError, SourceError
from headwater.source.base import Bytes, Inbox
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.position import OFFSET_BITS, Position
from headwater.source.mysql.client import packets as p
from headwater.source.mysql.client.unpack import damaged, lenenc, unpack_event, unpack_payload

BUFFER_BYTES = 1 << 20
_ERROR, _END = 0xFF, 0xFE
_END_BYTES = 9  # a shorter packet that begins with 0xFE is an end
_HEARTBEAT_FILE, _HEARTBEAT_OFFSET = 1, 2
_CHECKSUM_BYTES = 4
_CRC_TABLES = p.crc_tables()


class Refused(Exception):
    """The server ended the flow with an error: its number and message; 0: it ended without one."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number
        self.text = text


class Flow:
    """What arrives over a socket on which a dump was started. The socket must be non-blocking.

    `after`: events that end at or before this number are dropped, if the dump had to begin earlier than wanted.
    """

    def __init__(self, sock: socket.socket, place: Position, checksum: bool, after: int = 0) -> None:
        self._sock = sock
        self._place = place
        self._after = after
        self._inflating: Iterator[bytes] = iter(())  # remaining events of a compressed transaction
        self._inflated = b""  # the next of them; empty: none
        self.drained = True  # the buffer holds no whole event
        self._number_bytes = b""
        self._state = np.zeros(p.STATE_LENGTH, np.int64)
        self._state[p.CHECKSUM] = checksum
        self._end = 0
        self._buffer: Bytes = np.empty(0, np.uint8)
        self._make_room(BUFFER_BYTES)

    def fill(self) -> int:
        """Reads what is available into the buffer, until it is full; returns the number of bytes.

        Nothing is read before everything received is drained: while a compressed transaction is inflated, what follows
        it waits in the socket, and the buffer grows only for a larger event.
        """
        if not self.drained:
            return 0
        if self._end == len(self._buffer):
            self._compact()
        before = self._end
        view = self._buffer.data
        while self._end < len(self._buffer):
            try:
                got = self._sock.recv_into(view[self._end :])
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            if not got:
                if self._end > before:
                    break  # what arrived must still be processed: it may say why
                raise Refused(0, "the upstream closed the connection")
            self._end += got
        return self._end - before

    def drain(self, into: Inbox) -> int:
        """Moves whole events from the buffer to the inbox; returns the number of messages.

        A compressed transaction comes in pieces of about a buffer, one per call.
        """
        s, added = self._state, 0
        self.drained = False
        while True:
            if self._inflated:
                return added + self._inflate(into)
            s[p.COUNT] = s[p.SIZE] = 0
            code = p.split(self._buffer, self._end, s, self._out, self._lengths, _CRC_TABLES)
            count = int(s[p.COUNT])
            if count and self._after:
                added += self._add_later(count, into)
            elif count:
                into.data.write(self._out.data[: int(s[p.SIZE])])
                into.lengths.frombytes(self._lengths[:count].tobytes())
                added += count
            if code == p.MORE:
                break
            if code == p.DAMAGED:
                raise DataError(
                    "data.log_damaged",
                    "an event of the binlog has a wrong checksum",
                    "Check the upstream's binlog with mysqlbinlog --verify-binlog-checksum.",
                )
            added += self._take_slowly(p.payload_of(self._buffer, s), into)
            s[p.TAKEN] += s[p.PACKET]
        self.drained = True
        if s[p.TAKEN] == self._end:
            s[p.TAKEN] = self._end = 0
            if len(self._buffer) > BUFFER_BYTES:
                self._make_room(BUFFER_BYTES)
        return added

    def _make_room(self, size: int) -> None:
        """Allocates buffers of a size; the output of one block always fits into the other two."""
        old = self._buffer[: self._end]
        self._buffer = np.empty(size, np.uint8)
        self._buffer[: len(old)] = old
        most = size // p.LEAST_EVENT + 1
        self._out = np.empty(size + ev.NUMBER_BYTES * most, np.uint8)
        self._lengths = np.empty(most, np.int64)

    def _compact(self) -> None:
        """Moves a half-received event to the front; one that fills the buffer gets a larger one, temporarily."""
        taken = int(self._state[p.TAKEN])
        left = self._end - taken
        size = BUFFER_BYTES if left <= BUFFER_BYTES // 2 else 2 * left
        if size == len(self._buffer):
            self._buffer[:left] = self._buffer[taken : self._end].copy()
            self._end = left
        else:
            self._buffer = self._buffer[taken:]
            self._end = left
            self._make_room(size)
        self._state[p.TAKEN] = 0

    def _take_slowly(self, payload: bytes, into: Inbox) -> int:
        if payload[:1] == bytes([_ERROR]):
            text = payload[3:].decode("utf-8", "replace")
            raise Refused(int.from_bytes(payload[1:3], "little"), text[6:] if text.startswith("#") else text)
        if not payload or (payload[0] == _END and len(payload) < _END_BYTES) or payload[0]:
            raise Refused(0, "the upstream ended the flow")
        event = payload[1:]
        kind = event[ev.TYPE]
        if kind == ev.FORMAT_DESCRIPTION:
            self._state[p.CHECKSUM] = event[-_CHECKSUM_BYTES - 1] == 1
            event = event[:-_CHECKSUM_BYTES]
        elif self._state[p.CHECKSUM]:
            event = self._checked(event)
        if kind == ev.ROTATE:
            return self._rotate(event, into)
        if kind == ev.MARIA_START_ENCRYPTION:
            return 0
        number = self._heartbeat(event) if kind == ev.HEARTBEAT_V2 else self._number(event)
        if self._is_early(number):
            return 0
        self._number_bytes = number.to_bytes(ev.NUMBER_BYTES, "little")
        if kind == ev.TRANSACTION_PAYLOAD:
            self._inflating = unpack_payload(event)
            self._inflated = next(self._inflating, b"")
            return 0
        into.add(self._number_bytes + (unpack_event(event) if kind >= ev.MARIA_QUERY_COMPRESSED else event))
        return 1

    def _inflate(self, into: Inbox) -> int:
        """Adds the next events of a compressed transaction; returns their number."""
        size = added = 0
        while self._inflated and size < BUFFER_BYTES:
            into.add(self._number_bytes + self._inflated)
            size += len(self._inflated)
            added += 1
            self._inflated = next(self._inflating, b"")
        return added

    def _add_later(self, count: int, into: Inbox) -> int:
        """Adds the messages that the kernel has split off and that end after `after`; returns their number."""
        at = added = 0
        for length in self._lengths[:count].tolist():
            message = self._out[at : at + length].tobytes()
            if not self._is_early(int.from_bytes(message[: ev.NUMBER_BYTES], "little")):
                into.add(message)
                added += 1
            at += length
        return added

    def _is_early(self, number: int) -> bool:
        """Whether an event ends at or before the place after which the flow is wanted; once False, it stays False."""
        if self._after and number > self._after:
            self._after = 0
        return self._after > 0

    @staticmethod
    def _checked(event: bytes) -> bytes:
        body = event[:-_CHECKSUM_BYTES]
        if zlib.crc32(body) != int.from_bytes(event[-_CHECKSUM_BYTES:], "little"):
            raise damaged("an event has a wrong checksum")
        return body

    def _number(self, event: bytes) -> int:
        """The number of the position after an event; 0 if it is in no file."""
        log_pos = int.from_bytes(event[ev.LOG_POS : ev.LOG_POS + 4], "little")
        if not log_pos:
            return 0
        offset = int(p.widen(log_pos, int(self._state[p.OFFSET])))
        self._state[p.OFFSET] = offset
        return int(self._state[p.ORDINAL]) << OFFSET_BITS | offset

    def _rotate(self, event: bytes, into: Inbox) -> int:
        """Switches to the next file. An artificial event at a dump's start names the current one."""
        offset = int.from_bytes(event[ev.HEADER_BYTES : ev.HEADER_BYTES + 8], "little")
        next_place = Position.of(event[ev.HEADER_BYTES + 8 :].decode(), offset, self._place.shift)
        if next_place.base != self._place.base:
            raise SourceError(
                "source.failed",
                f"the upstream's binlog files were renamed: {next_place.name}",
                "Wait; Headwater reconnects.",
            )
        self._state[p.ORDINAL] = next_place.file + next_place.shift
        self._state[p.OFFSET] = offset
        if not int.from_bytes(event[ev.LOG_POS : ev.LOG_POS + 4], "little") or self._is_early(next_place.number):
            return 0
        into.add(next_place.number.to_bytes(ev.NUMBER_BYTES, "little") + event)
        return 1

    def _heartbeat(self, event: bytes) -> int:
        """A heartbeat that names its file and an offset of any size."""
        at, fields = ev.HEADER_BYTES, dict[int, bytes]()
        while at < len(event):
            kind, at = lenenc(event, at)
            if not kind:
                break
            size, at = lenenc(event, at)
            fields[kind] = event[at : at + size]
            at += size
        if _HEARTBEAT_FILE not in fields or _HEARTBEAT_OFFSET not in fields:
            return 0
        offset = lenenc(fields[_HEARTBEAT_OFFSET], 0)[0]
        return Position.of(fields[_HEARTBEAT_FILE].decode(), offset, self._place.shift).number
