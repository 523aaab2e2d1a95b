"""The column decoder of the log: places of binary values in a buffer → an Arrow array of lake values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode import kernels_number
from headwater.decode.column import Decoded, check, column, offsets_of
from headwater.decode.kernels import KEPT, NULL, UNREPRESENTABLE
from headwater.decode.mysql import kernels_numbers, kernels_times, texts
from headwater.decode.mysql.charsets import decode_charset
from headwater.decode.mysql.compressed import expand
from headwater.decode.mysql.json import decode_json
from headwater.decode.mysql.types import BINARIES, GEOMETRIES, INTEGERS, TEXTS, decimal_of
from headwater.decode.text import exact_floats
from headwater.decode.values import MAX_PRECISION, arrow_type, decimal_size
from headwater.errors import DataError
from headwater.model import UpstreamType
from headwater.source.mysql.binlog import codes
from headwater.source.mysql.client.codepoints import REPLACEMENT, is_tabled

_INTEGERS = {"TINYINT": np.int8, "SMALLINT": np.int16, "INT": np.int32, "BIGINT": np.int64}
_MOMENTS = {
    codes.DATETIME: kernels_times.DATETIME,
    codes.TIMESTAMP: kernels_times.TIMESTAMP,
    codes.OLD_DATETIME: kernels_times.OLD_DATETIME,
    codes.OLD_TIMESTAMP: kernels_times.OLD_TIMESTAMP,
}
_WORD_DIGITS = 18  # 64 bits may be too few for numbers with this many digits
_SRID_BYTES = 4  # before a geometry's WKB
_COMPRESSED = (codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED)


def decode_logged(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    """The values whose bytes are in `buffer` (uint8) at `starts` (int64); a negative length is a NULL.

    `upstream` is what `evolve.as_written` returned. Invalid bytes raise DataError data.log_damaged.
    """
    if upstream.oid in _COMPRESSED:
        buffer, starts, lengths = expand(buffer, starts, lengths)
    return _DECODERS[upstream.name](buffer, starts, lengths, upstream, lake_type)


def _integers(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    marks = np.empty(starts.size, dtype=np.uint8)
    width = codes.INTEGER_BYTES[upstream.oid]
    places = (buffer, starts, lengths, width, upstream.unsigned)
    if lake_type in _INTEGERS:
        out = np.empty(starts.size, dtype=_INTEGERS[lake_type])
        limits = np.iinfo(out.dtype)
        kernels_numbers.read_integers(*places, limits.min, limits.max, out, marks)
        return column(arrow_type(lake_type), marks, out)
    if lake_type == "BOOLEAN":
        flags = np.empty(starts.size, dtype=np.int8)
        kernels_numbers.read_integers(*places, 0, 1, flags, marks)
        return column(pa.bool_(), marks, np.packbits(flags == 1, bitorder="little"))
    words = np.empty(starts.size, dtype=np.uint64)
    kernels_numbers.read_words(buffer, starts, lengths, words, marks)
    if not upstream.unsigned:
        unused = np.uint64(64 - 8 * width)
        words = ((words << unused).view(np.int64) >> unused.view(np.int64)).view(np.uint64)
    numbers = words if upstream.unsigned else words.view(np.int64)
    if lake_type in ("FLOAT", "DOUBLE"):
        floats: Any = numbers.astype(np.float32 if lake_type == "FLOAT" else np.float64)
        back = np.where(floats < 2.0 ** (63 + upstream.unsigned), floats, 0).astype(numbers.dtype)
        marks[(marks == KEPT) & (back != numbers)] = UNREPRESENTABLE
        return column(arrow_type(lake_type), marks, floats)
    size = decimal_size(lake_type)
    if size is None:
        type_ = pa.uint64() if upstream.unsigned else pa.int64()
        return Decoded(column(type_, marks, numbers).array.cast(pa.string()), 0, None)
    whole = size[0] - size[1]
    if whole <= _WORD_DIGITS:
        limit = 10**whole
        beyond = numbers >= limit if upstream.unsigned else (numbers >= limit) | (numbers <= -limit)
        marks[(marks == KEPT) & beyond] = UNREPRESENTABLE
    out_words = np.empty((starts.size, 2), dtype=np.uint64)
    kernels_numbers.widen_integers(words, upstream.unsigned, size[1], out_words)
    return column(arrow_type(lake_type), marks, out_words)


def _decimals(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    precision, scale = decimal_of(upstream)
    marks = np.empty(starts.size, dtype=np.uint8)
    size = decimal_size(lake_type)
    if size is None:
        return texts.decimals(buffer, starts, lengths, precision, scale).strings()
    out = np.empty((starts.size, 2), dtype=np.uint64)
    padding = size[1] - scale
    if precision <= MAX_PRECISION and padding >= 0 and size[0] - size[1] >= precision - scale:
        check(kernels_numbers.read_decimals(buffer, starts, lengths, precision, scale, padding, out, marks), "decimal")
    else:
        written = texts.decimals(buffer, starts, lengths, precision, scale)
        limit = 10 ** size[0]
        answer = kernels_number.parse_decimals(
            *(written.bytes, written.starts, written.lengths, size[1]),
            *(np.uint64(limit >> 64), np.uint64(limit & (2**64 - 1)), out, marks),
        )
        check(answer, "decimal")
    return column(arrow_type(lake_type), marks, out)


def _floats(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    marks = np.empty(starts.size, dtype=np.uint8)
    words = np.empty(starts.size, dtype=np.uint64)
    kernels_numbers.read_words(buffer, starts, lengths, words, marks)
    single = upstream.oid == codes.FLOAT
    own = words.astype(np.uint32).view(np.float32) if single else words.view(np.float64)
    if lake_type == "STRING":
        return texts.floats(own.astype(np.float64), marks)
    values = column(pa.float32() if single else pa.float64(), marks, own).array
    target = arrow_type(lake_type)
    if values.type == target:
        return Decoded(values, 0, None)
    cast = values.cast(target, safe=False)
    return Decoded(cast, 0, None) if single else exact_floats(values, cast)


def _years(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    marks = np.empty(starts.size, dtype=np.uint8)
    words = np.empty(starts.size, dtype=np.uint64)
    kernels_numbers.read_words(buffer, starts, lengths, words, marks)
    years = np.where(words > 0, words + np.uint64(1900), np.uint64(0)).astype(np.int32)
    if lake_type == "STRING":
        labels = pa.array([f"{y:04}" for y in range(2156)])
        return Decoded(labels.take(column(pa.int32(), marks, years).array), 0, None)
    return Decoded(column(pa.int32(), marks, years).array.cast(arrow_type(lake_type)), 0, None)


def _dates(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    if lake_type == "STRING":
        return texts.dates(buffer, starts, lengths).strings()
    marks = np.empty(starts.size, dtype=np.uint8)
    out = np.empty(starts.size, dtype=np.int32)
    kernels_times.read_dates(buffer, starts, lengths, out, marks)
    return column(arrow_type(lake_type), marks, out)


def _moments(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    kind, digits = _MOMENTS[upstream.oid], upstream.scale or 0
    if lake_type == "STRING" and upstream.name == "datetime":
        return texts.datetimes(buffer, starts, lengths, kind, digits).strings()
    marks = np.empty(starts.size, dtype=np.uint8)
    out = np.empty(starts.size, dtype=np.int64)
    kernels_times.read_moments(buffer, starts, lengths, kind, digits, out, marks)
    return texts.timestamps(out, marks, digits) if lake_type == "STRING" else column(arrow_type(lake_type), marks, out)


def _times(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    return texts.times(buffer, starts, lengths, upstream.oid == codes.OLD_TIME, upstream.scale or 0).strings()


def _bits(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    if lake_type != "BOOLEAN":
        return texts.binaries(buffer, starts, lengths, lake_type)
    last = buffer[np.maximum(starts + lengths - 1, 0)] if buffer.size else np.zeros(starts.size, np.uint8)
    marks = np.where(lengths < 0, NULL, np.where(last > 1, UNREPRESENTABLE, KEPT)).astype(np.uint8)
    return column(pa.bool_(), marks, np.packbits(last == 1, bitorder="little"))


def _texts(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    return decode_charset(buffer, starts, lengths, upstream.charset)


def _binaries(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    # for a column that is still BINARY(n) the log omits trailing zero bytes, as it does CHAR's blanks
    pad_to = upstream.modifier if upstream.oid == codes.STRING else 0
    return texts.binaries(buffer, starts, lengths, lake_type, pad_to)


def _geometries(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    if lake_type == "STRING":
        return texts.binaries(buffer, starts, lengths, lake_type)
    _require(not ((lengths >= 0) & (lengths < _SRID_BYTES)).any(), upstream)
    skipped = np.where(lengths < 0, lengths, lengths - _SRID_BYTES)
    return texts.binaries(buffer, starts + _SRID_BYTES, skipped, lake_type)


def _vectors(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    if lake_type == "STRING":
        return texts.binaries(buffer, starts, lengths, lake_type)
    _require(not (lengths[lengths >= 0] % 4).any(), upstream)
    packed = texts.binaries(buffer, starts, lengths, "BINARY").array
    bytes_ = packed.buffers()[2]
    floats = pa.array(np.frombuffer(bytes_, dtype="<f4") if bytes_ else np.zeros(0, np.float32))
    offsets = offsets_of(np.maximum(lengths, 0) // 4)
    marks = np.where(lengths < 0, np.uint8(NULL), np.uint8(KEPT))
    element = arrow_type(lake_type).value_type
    return column(arrow_type(lake_type), marks, offsets, children=[floats.cast(element)])


def _enums(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    marks = np.empty(starts.size, dtype=np.uint8)
    words = np.empty(starts.size, dtype=np.uint64)
    kernels_numbers.read_words(buffer, starts, lengths, words, marks)
    _require(not (words > len(upstream.labels)).any(), upstream)
    # 0 is what a server stores for an unknown label
    return _labelled(["", *upstream.labels], words, marks, upstream)


def _sets(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    marks = np.empty(starts.size, dtype=np.uint8)
    words = np.empty(starts.size, dtype=np.uint64)
    kernels_numbers.read_words(buffer, starts, lengths, words, marks)
    found, which = np.unique(words, return_inverse=True)
    _require(not found.size or int(found[-1]) >> len(upstream.labels) == 0, upstream)
    named = [",".join(m for bit, m in enumerate(upstream.labels) if int(w) >> bit & 1) for w in found]
    return _labelled(named, which, marks, upstream)


def _labelled(named: list[str], which: Any, marks: Any, upstream: UpstreamType) -> Decoded:
    """One of the texts for each value; a text with bytes that are not a character is unrepresentable, as in a scan."""
    if is_tabled(upstream.charset):
        bad = np.array([REPLACEMENT in text for text in named], dtype=np.bool_)
        marks[(marks == KEPT) & bad[which.astype(np.int64)]] = UNREPRESENTABLE
    chosen = column(pa.int32(), marks, which.astype(np.int32))
    return Decoded(pa.array(named, pa.string()).take(chosen.array), chosen.unrepresentable, chosen.bad)


def _json(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    return decode_json(buffer, starts, lengths)


def _addresses(buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
    return texts.addresses(buffer, starts, lengths, upstream.name)


def _require(well_formed: bool, upstream: UpstreamType) -> None:
    if not well_formed:
        raise DataError(
            "data.log_damaged",
            f"a value of type {upstream.name} has invalid bytes",
            "Report it with the type and the upstream's version; RESYNC TABLE reads the table again.",
        )


_Decoder = Callable[[Any, Any, Any, UpstreamType, str], Decoded]
_DECODERS: dict[str, _Decoder] = {
    **dict.fromkeys(INTEGERS, _integers),
    "decimal": _decimals,
    **dict.fromkeys(("float", "double"), _floats),
    "bit": _bits,
    "year": _years,
    "date": _dates,
    **dict.fromkeys(("datetime", "timestamp"), _moments),
    "time": _times,
    **dict.fromkeys(TEXTS, _texts),
    **dict.fromkeys(BINARIES, _binaries),
    **dict.fromkeys(GEOMETRIES, _geometries),
    "vector": _vectors,
    "enum": _enums,
    "set": _sets,
    "json": _json,
    **dict.fromkeys(("uuid", "inet4", "inet6"), _addresses),
}
