"""MySQL's binary JSON → the text that its SELECT prints."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.decode.column import Decoded
from headwater.decode.mysql import texts
from headwater.decode.mysql.kernels_times import DATETIME
from headwater.errors import DataError
from headwater.source.mysql.binlog import codes

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_LITERALS = ("null", "true", "false")
_NUMBERS = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_INLINE = (_LITERAL, _INT16, _UINT16)
_INLINE_LARGE = (*_INLINE, _INT32, _UINT32)
_DEEPEST = 100  # maximum nesting of documents
_LINE = 76  # base64 characters per line
_LONGEST_LENGTH = 5  # bytes of a variable length
_quote = json.JSONEncoder(ensure_ascii=False).encode


def decode_json(buffer: Any, starts: Any, lengths: Any) -> Decoded:
    """The texts of the documents in `buffer` (uint8) at `starts`; a negative length is a NULL."""
    data = memoryview(buffer)
    shown: list[str | None] = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        shown.append(None if length < 0 else json_text(bytes(data[start : start + length])))
    return Decoded(pa.array(shown, pa.string()), 0, None)


def json_text(document: bytes) -> str:
    """The text of a document; an empty one is what the server stores for the JSON null of an invalid row."""
    if not document:
        return "null"
    out: list[str] = []
    try:
        _value(document[0], document[1:], out, 0)
    except (IndexError, KeyError, struct.error, UnicodeDecodeError, ValueError) as e:
        raise DataError(
            "data.log_damaged",
            "a value of type json has invalid bytes",
            "Report it with the upstream's version; RESYNC TABLE reads the table again.",
        ) from e
    return "".join(out)


def _value(kind: int, data: bytes, out: list[str], depth: int) -> None:
    """Writes the value of this kind that begins with `data`."""
    if kind <= _LARGE_ARRAY:
        _container(kind, data, out, depth + 1)
    elif kind == _LITERAL:
        out.append(_LITERALS[data[0]])
    elif kind in _NUMBERS:
        out.append(str(struct.unpack_from(_NUMBERS[kind], data)[0]))
    elif kind == _DOUBLE:
        out.append(_double(struct.unpack_from("<d", data)[0]))
    elif kind == _STRING:
        length, at = _length(data, 0)
        out.append(_quote(_exactly(data, at, length).decode()))
    elif kind == _OPAQUE:
        length, at = _length(data, 1)
        out.append(_opaque(data[0], _exactly(data, at, length)))
    else:
        raise ValueError(kind)


def _container(kind: int, data: bytes, out: list[str], depth: int) -> None:
    """Writes an object or an array: count, size, key entries, value entries, then what they point to."""
    if depth > _DEEPEST:
        raise ValueError(depth)
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    width, number = (4, "<I") if large else (2, "<H")
    inline = _INLINE_LARGE if large else _INLINE
    count, size = struct.unpack_from("<II" if large else "<HH", data)
    data = _exactly(data, 0, size)
    keys_at = 2 * width
    values_at = keys_at + (count * (width + 2) if is_object else 0)
    out.append("{" if is_object else "[")
    for i in range(count):
        if i:
            out.append(", ")
        if is_object:
            (key_at,) = struct.unpack_from(number, data, keys_at + i * (width + 2))
            (key_length,) = struct.unpack_from("<H", data, keys_at + i * (width + 2) + width)
            out.append(_quote(_exactly(data, key_at, key_length).decode()) + ": ")
        entry = values_at + i * (width + 1)
        if data[entry] in inline:
            _value(data[entry], data[entry + 1 : entry + 1 + width], out, depth)
        else:
            (at,) = struct.unpack_from(number, data, entry + 1)
            _value(data[entry], data[at:], out, depth)
    out.append("}" if is_object else "]")


def _exactly(data: bytes, at: int, size: int) -> bytes:
    piece = data[at : at + size]
    if len(piece) != size:
        raise ValueError(size)
    return piece


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length of seven bits per byte, lowest first, and where it ends."""
    value = 0
    for i in range(_LONGEST_LENGTH):
        value |= (data[at + i] & 0x7F) << (7 * i)
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise ValueError(at)


def _double(number: float) -> str:
    """A double with at least one decimal, unless it has an exponent."""
    text = texts.float_text(number)
    return text if any(c in text for c in ".e") else text + ".0"


def _opaque(code: int, data: bytes) -> str:
    """A value of an SQL type that JSON does not have."""
    if code == codes.DECIMAL:
        places = _place(data[2:])
        return str(texts.decimals(*places, data[0], data[1]).strings().array[0])
    if code == codes.DATE:
        return f'"{_datetime(data)[:10]}"'
    if code in (codes.OLD_DATETIME, codes.OLD_TIMESTAMP):
        return f'"{_datetime(data)}"'
    if code == codes.OLD_TIME:
        packed = struct.unpack("<q", data)[0] + (0x800000 << 24)
        return f'"{texts.times(*_place(packed.to_bytes(6, "big")), False, 6).strings().array[0]}"'
    encoded = base64.b64encode(data).decode()
    lines = "\n".join(encoded[i : i + _LINE] for i in range(0, len(encoded), _LINE))
    return _quote(f"base64:type{code}:{lines}")


def _datetime(data: bytes) -> str:
    """A DATETIME(6) in the column's packed form, without its bias."""
    packed = struct.unpack("<q", data)[0] + (0x8000000000 << 24)
    return str(texts.datetimes(*_place(packed.to_bytes(8, "big")), DATETIME, 6).strings().array[0])


def _place(data: bytes) -> tuple[Any, Any, Any]:
    return np.frombuffer(data, np.uint8), np.zeros(1, np.int64), np.array([len(data)], np.int64)
