"""Splits what a binlog dump sends into messages, in bulk; values stay raw. No Python runs per event."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.kernel import kernel
from headwater.source.base import Bytes, Longs
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.binlog.groups import number

PACKET_HEADER = 4  # three bytes of length, one of sequence
PIECE = 0xFFFFFF  # a packet of this length continues in the next one
LEAST_EVENT = PACKET_HEADER + 1 + ev.HEADER_BYTES

# why `split` stopped
MORE, SLOW, DAMAGED = 0, 1, 2

# the state of a flow, as kept by `split`
ORDINAL, OFFSET, CHECKSUM, TAKEN, COUNT, SIZE, PACKET, PAYLOAD = range(8)
STATE_LENGTH = 8

_ROTATE, _FORMAT, _PAYLOAD, _HEARTBEAT = ev.ROTATE, ev.FORMAT_DESCRIPTION, ev.TRANSACTION_PAYLOAD, ev.HEARTBEAT
_HEARTBEAT_V2 = ev.HEARTBEAT_V2
_COMPRESSED, _COMPRESSED_LAST = ev.MARIA_START_ENCRYPTION, ev.MARIA_COMPRESSED_LAST
_HEADER, _TYPE, _LOG_POS, _FLAGS, _ARTIFICIAL = ev.HEADER_BYTES, ev.TYPE, ev.LOG_POS, ev.FLAGS, ev.ARTIFICIAL

_BYTE, _8, _16, _24 = np.uint32(0xFF), np.uint32(8), np.uint32(16), np.uint32(24)

Words = np.ndarray[Any, np.dtype[np.uint32]]


def crc_tables() -> Words:
    """The tables of CRC-32 for eight bytes at a time."""
    tables = np.zeros((8, 256), np.uint32)
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ 0xEDB88320 if c & 1 else c >> 1
        tables[0, i] = c
    for t in range(1, 8):
        for i in range(256):
            c = int(tables[t - 1, i])
            tables[t, i] = (c >> 8) ^ int(tables[0, c & 0xFF])
    return tables


@kernel("uint32(uint8[::1], uint64)")
def _word(data: Bytes, at: np.uint64) -> np.uint32:
    """Four bytes as a number."""
    a, b, c, d = data[at], data[at + np.uint64(1)], data[at + np.uint64(2)], data[at + np.uint64(3)]
    return np.uint32(np.uint32(a) | np.uint32(b) << _8 | np.uint32(c) << _16 | np.uint32(d) << _24)


@kernel("int64(uint8[::1], int64, int64, uint32[:, ::1])")
def crc32(data: Bytes, at: int, end: int, tables: Words) -> int:
    """The checksum of a run of bytes, as the binlog computes it."""
    c = np.uint32(0xFFFFFFFF)
    i, last = np.uint64(at), np.uint64(end)  # unsigned indexes need no check for negative values
    eight = np.uint64(8)
    while i + eight <= last:
        low = c ^ _word(data, i)
        high = _word(data, i + np.uint64(4))
        c = (
            tables[7, low & _BYTE]
            ^ tables[6, (low >> np.uint32(8)) & _BYTE]
            ^ tables[5, (low >> np.uint32(16)) & _BYTE]
            ^ tables[4, low >> np.uint32(24)]
            ^ tables[3, high & _BYTE]
            ^ tables[2, (high >> np.uint32(8)) & _BYTE]
            ^ tables[1, (high >> np.uint32(16)) & _BYTE]
            ^ tables[0, high >> np.uint32(24)]
        )
        i += eight
    while i < last:
        c = tables[0, (c ^ np.uint32(data[i])) & _BYTE] ^ (c >> np.uint32(8))
        i += np.uint64(1)
    return int(c ^ np.uint32(0xFFFFFFFF))


@kernel("int64(int64, int64)")
def widen(log_pos: int, offset: int) -> int:
    """The offset whose low 32 bits an event's header has; `offset` is the previous one: a file may exceed 4 GB."""
    wide = (offset >> 32 << 32) | log_pos
    return wide + (1 << 32) if wide + (1 << 31) < offset else wide


@kernel("int64(uint8[::1], int64, int64, uint8[::1], int64)")
def _copy(buffer: Bytes, at: int, count: int, out: Bytes, to: int) -> int:
    """Copies bytes; returns their end. Unsigned indexes need no check for negative values, so whole words are moved."""
    source, target = np.uint64(at), np.uint64(to)
    for i in range(np.uint64(count)):
        out[target + i] = buffer[source + i]
    return to + count


@kernel("int64(uint8[::1], int64, int64, uint8[::1], int64)")
def _join(buffer: Bytes, at: int, payload: int, out: Bytes, to: int) -> int:
    """Copies an event of several pieces, without its status byte; returns its end."""
    skip, left = 1, payload
    while left > 0:
        size = number(buffer, at, 3)
        to = _copy(buffer, at + PACKET_HEADER + skip, size - skip, out, to)
        left -= size
        at += PACKET_HEADER + size
        skip = 0
    return to


@kernel("int64(uint8[::1], int64, int64[::1], uint8[::1], int64[::1], uint32[:, ::1])")
def split(buffer: Bytes, end: int, state: Longs, out: Bytes, lengths: Longs, tables: Words) -> int:
    """Moves whole packets from the buffer (starting at TAKEN) to `out` as messages.

    Stops at a packet that needs slower code (SLOW: a packet of PACKET bytes on the wire with PAYLOAD bytes in it, still
    at TAKEN), at a wrong checksum (DAMAGED), or when no whole packet is left (MORE).
    """
    at = state[TAKEN]
    while True:
        # the whole packet, which may be several pieces on the wire
        piece, payload = at, 0
        while True:
            if piece + PACKET_HEADER > end:
                return MORE
            size = int(buffer[piece]) | int(buffer[piece + 1]) << 8 | int(buffer[piece + 2]) << 16
            piece += PACKET_HEADER + size
            if piece > end:
                return MORE
            payload += size
            if size < PIECE:
                break
        state[PACKET] = piece - at
        state[PAYLOAD] = payload
        head = at + PACKET_HEADER
        if payload < 1 + _HEADER or buffer[head] != 0:
            return SLOW
        kind = buffer[head + 1 + _TYPE]
        if kind in (_ROTATE, _FORMAT, _PAYLOAD, _HEARTBEAT_V2) or _COMPRESSED <= kind <= _COMPRESSED_LAST:
            return SLOW
        # number and event, without the status byte and the checksum
        start = state[SIZE]
        if payload < PIECE:
            to = _copy(buffer, head + 1, payload - 1, out, start + 8)
        else:
            to = _join(buffer, at, payload, out, start + 8)
        if state[CHECKSUM]:
            to -= 4
            if crc32(out, start + 8, to, tables) != number(out, to, 4):
                return DAMAGED
        log_pos = number(out, start + 8 + _LOG_POS, 4)
        ends_at = 0
        if log_pos > 0:
            offset = widen(log_pos, state[OFFSET])
            if kind != _HEARTBEAT and not (int(out[start + 8 + _FLAGS]) & _ARTIFICIAL):
                state[OFFSET] = offset
            ends_at = state[ORDINAL] << 36 | offset
        for i in range(8):
            out[start + i] = (ends_at >> (8 * i)) & 0xFF
        lengths[state[COUNT]] = to - start
        state[COUNT] += 1
        state[SIZE] = to
        at += state[PACKET]
        state[TAKEN] = at


def payload_of(buffer: Bytes, state: Longs) -> bytes:
    """The packet at which `split` stopped, without its headers on the wire."""
    parts = []
    at, end = int(state[TAKEN]), int(state[TAKEN] + state[PACKET])
    while at < end:
        size = int.from_bytes(buffer[at : at + 3].tobytes(), "little")
        parts.append(buffer[at + PACKET_HEADER : at + PACKET_HEADER + size].tobytes())
        at += PACKET_HEADER + size
    return b"".join(parts)
