"""MariaDB's COMPRESSED columns: the log has their values as they are stored."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from headwater.errors import DataError

_PLAIN = 0  # first byte: the value follows uncompressed
_ZLIB = 8  # its upper half: the compression method
_RAW_BIT = 8  # its lower half: without zlib's own header and trailer
_SIZE_BITS = 7  # its lower half: the number of size bytes after it


def expand(buffer: Any, starts: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """The same values uncompressed, in a new buffer: buffer, starts, lengths."""
    data = memoryview(buffer)
    values = [
        b"" if length < 0 else _expand(bytes(data[start : start + length]))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    sizes = np.array([len(v) for v in values], dtype=np.int64)
    ends = np.cumsum(sizes)
    return np.frombuffer(b"".join(values), np.uint8), ends - sizes, np.where(lengths < 0, lengths, sizes)


def _expand(value: bytes) -> bytes:
    if not value:
        return value
    head = value[0]
    if head == _PLAIN:
        return value[1:]
    size = head & _SIZE_BITS
    try:
        if head >> 4 != _ZLIB:
            raise ValueError(head)
        plain = zlib.decompress(value[1 + size :], -zlib.MAX_WBITS if head & _RAW_BIT else zlib.MAX_WBITS)
        if len(plain) != int.from_bytes(value[1 : 1 + size], "big"):
            raise ValueError(size)
    except (zlib.error, ValueError) as e:
        raise DataError(
            "data.log_damaged",
            "a value of a COMPRESSED column cannot be decompressed",
            "Report it with the upstream's version; RESYNC TABLE reads the table again.",
        ) from e
    return plain
