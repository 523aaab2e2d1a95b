"""Text columns in the servers' own charsets → UTF-8, by the tables of `source.mysql.client.codepoints`.

A byte that is not a character in its charset makes the value unrepresentable (SELECT would print a question mark).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode import kernels_bytes
from headwater.decode.column import Decoded, column, offsets_of
from headwater.decode.kernels import KEPT, NULL, UNREPRESENTABLE
from headwater.decode.mysql import kernels_text
from headwater.errors import DataError
from headwater.source.mysql.client.codepoints import CODECS, SWAPPED, UTF8, is_tabled, points


def decode_charset(buffer: Any, starts: Any, lengths: Any, charset: str) -> Decoded:
    """The strings whose bytes are in `buffer` (uint8) at `starts` (int64); a negative length is a NULL."""
    if charset in UTF8:
        return _utf8(buffer, starts, lengths)
    if is_tabled(charset):
        return _transcoded(buffer, starts, lengths, *points(charset))
    if charset in CODECS:
        return _by_python(buffer, starts, lengths, CODECS[charset], SWAPPED.get(charset))
    raise DataError(
        "data.schema_changed",
        f"text in the charset {charset} cannot be decoded",
        "Convert the column to utf8mb4 upstream, then RESYNC TABLE.",
    )


def _utf8(buffer: Any, starts: Any, lengths: Any) -> Decoded:
    offsets = offsets_of(np.maximum(lengths, 0))
    out = np.empty(int(offsets[-1]), dtype=np.uint8)
    seen = kernels_bytes.gather(buffer, starts, lengths, offsets, out)
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    if seen & 0x80:
        kernels_bytes.mark_utf8(out, offsets, marks)
    return column(pa.string(), marks, offsets, out)


def _transcoded(buffer: Any, starts: Any, lengths: Any, singles: Any, pairs: Any, triples: Any) -> Decoded:
    most = 3 * int(np.maximum(lengths, 0).sum())  # bytes of UTF-8 per byte
    offsets_of(np.array([most]))
    offsets = np.empty(starts.size + 1, dtype=np.int32)
    out = np.empty(most, dtype=np.uint8)
    marks = np.empty(starts.size, dtype=np.uint8)
    size = kernels_text.transcode(buffer, starts, lengths, singles, pairs, triples, offsets, out, marks)
    return column(pa.string(), marks, offsets, out[:size])


def _by_python(buffer: Any, starts: Any, lengths: Any, codec: str, swapped: dict[int, int] | None) -> Decoded:
    bytes_ = memoryview(buffer)
    texts: list[str | None] = [None] * starts.size
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length >= 0:
            try:
                text = str(bytes_[start : start + length], codec)
                texts[i] = text.translate(swapped) if swapped else text
            except UnicodeDecodeError:
                marks[i] = UNREPRESENTABLE
    bad = marks == UNREPRESENTABLE
    unrepresentable = int(bad.sum())
    return Decoded(pa.array(texts, pa.string()), unrepresentable, bad if unrepresentable else None)
