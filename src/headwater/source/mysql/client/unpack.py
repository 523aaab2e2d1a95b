"""Compressed events as the plain events they contain."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa

from headwater.errors import DataError
from headwater.source.mysql.binlog import events as ev

_FIELD_END, _FIELD_SIZE, _FIELD_COMPRESSION = 0, 1, 2
_ZSTD, _NONE = 0, 255
_TABLE_ID_BYTES, _FLAG_BYTES = 6, 2


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A length-encoded number, and the offset after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None:
        raise damaged("a length has an impossible first byte")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def damaged(what: str) -> DataError:
    """The error for an event that no server sends."""
    return DataError(
        "data.log_damaged", f"the binlog cannot be read: {what}", "Report this with the server's version and settings."
    )


def unpack_payload(event: bytes) -> Iterator[bytes]:
    """The events of a MySQL transaction that was compressed as a whole, one by one: it may inflate to any size."""
    at, fields = ev.HEADER_BYTES, {}
    while True:
        kind, at = lenenc(event, at)
        if kind == _FIELD_END:
            break
        length, at = lenenc(event, at)
        fields[kind] = lenenc(event, at)[0]
        at += length
    packed = pa.py_buffer(event).slice(at, min(len(event) - at, fields.get(_FIELD_SIZE, len(event))))
    compression = fields.get(_FIELD_COMPRESSION, _NONE)
    if compression not in (_ZSTD, _NONE):
        raise damaged(f"a transaction uses an unknown compression ({compression})")
    plain = pa.BufferReader(packed)
    if compression == _ZSTD:
        plain = pa.CompressedInputStream(plain, "zstd")
    while head := _read(plain, ev.HEADER_BYTES):
        size = int.from_bytes(head[ev.SIZE : ev.SIZE + 4], "little") - ev.HEADER_BYTES
        body = _read(plain, size) if size > 0 else b""
        if len(head) < ev.HEADER_BYTES or size < 0 or len(body) < size:
            raise damaged("a compressed transaction ends inside an event")
        yield head + body


def _read(plain: pa.NativeFile, size: int) -> bytes:
    """The given number of bytes, or what is left of the stream."""
    try:
        return bytes(plain.read(size))
    except OSError as e:
        raise damaged(f"a compressed transaction cannot be inflated ({e})") from e


def unpack_event(event: bytes) -> bytes:
    """The plain event of one that MariaDB compressed."""
    kind = event[ev.TYPE]
    if kind == ev.MARIA_QUERY_COMPRESSED:
        schema = event[ev.HEADER_BYTES + 8]
        variables = int.from_bytes(event[ev.HEADER_BYTES + 11 : ev.HEADER_BYTES + 13], "little")
        at = ev.HEADER_BYTES + 13 + variables + schema + 1
        return _renamed(event[:at] + _inflate(event[at:]), ev.QUERY)
    version2 = kind >= ev.MARIA_ROWS_COMPRESSED
    which = kind - (ev.MARIA_ROWS_COMPRESSED if version2 else ev.MARIA_ROWS_COMPRESSED_V1)
    at = ev.HEADER_BYTES + _TABLE_ID_BYTES + _FLAG_BYTES
    if version2:
        at += int.from_bytes(event[at : at + 2], "little")
    width, at = lenenc(event, at)
    at += (width + 7) // 8 * (2 if which == 1 else 1)
    plain = (ev.WRITE_ROWS if version2 else ev.WRITE_ROWS_V1) + which
    return _renamed(event[:at] + _inflate(event[at:]), plain)


def _inflate(packed: bytes) -> bytes:
    """MariaDB's frame: a byte (mark, algorithm, number of length bytes), the plain length, zlib's stream."""
    head = packed[0]
    if not head & 0x80 or head >> 4 & 7:
        raise damaged("an event uses an unknown compression")
    size = head & 7
    plain = zlib.decompress(packed[1 + size :])
    if len(plain) != int.from_bytes(packed[1 : 1 + size], "big"):
        raise damaged("a compressed event does not have its declared length")
    return plain


def _renamed(event: bytes, kind: int) -> bytes:
    """The event under its plain number. Its size stays that of the log, from which its start is computed."""
    return event[: ev.TYPE] + struct.pack("B", kind) + event[ev.TYPE + 1 :]
