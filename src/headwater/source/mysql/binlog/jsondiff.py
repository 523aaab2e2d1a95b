"""JSON diffs, as MySQL logs them, applied to the document that they were taken from.

Documents are MySQL's binary JSON, as elsewhere in the log. Scalars are never inspected.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from headwater.source.mysql.client.unpack import damaged, lenenc

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_NUMBER_BYTES = {_LITERAL: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}
_STRING, _OPAQUE = 12, 15
_INLINE, _INLINE_LARGE = (_LITERAL, 5, 6), (_LITERAL, 5, 6, 7, 8)
_SMALL_LIMIT = 0xFFFF
_DEEPEST = 100
_UNESCAPED = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class Scalar:
    """A value that is not a container: its kind and its bytes."""

    kind: int
    data: bytes


@dataclass(slots=True)
class Array:
    elements: list[Node]


@dataclass(slots=True)
class Object:
    """Members in the server's order: by key length, then by key bytes."""

    members: dict[bytes, Node]


Node = Scalar | Array | Object
Leg = bytes | int  # of a path: a key or an array index


def apply_diffs(document: bytes, diffs: bytes) -> bytes:
    """The document after the diffs: replaced, inserted and removed values, each by its path."""
    try:
        root = _read(document[0], document[1:], 0)
        at = 0
        while at < len(diffs):
            kind = diffs[at]
            length, at = lenenc(diffs, at + 1)
            path = _path(diffs[at : at + length].decode())
            at += length
            value: Node | None = None
            if kind != _REMOVE:
                length, at = lenenc(diffs, at)
                value = _read(diffs[at], diffs[at + 1 : at + length], 0)
                at += length
            root = _applied(root, kind, path, value)
    except (IndexError, KeyError, ValueError, struct.error) as e:
        raise damaged("a diff does not fit its JSON document") from e
    found, data = _written(root)
    return bytes([found]) + data


def _applied(root: Node, kind: int, path: list[Leg], value: Node | None) -> Node:
    if not path:
        if kind != _REPLACE or value is None:
            raise ValueError(kind)
        return value
    parent = root
    for leg in path[:-1]:
        parent = _child(parent, leg)
    last = path[-1]
    if isinstance(parent, Array) and isinstance(last, int):
        if kind == _INSERT and value is not None:
            parent.elements.insert(last, value)
        elif kind == _REPLACE and value is not None:
            parent.elements[last] = value
        elif kind == _REMOVE:
            del parent.elements[last]
        else:
            raise ValueError(kind)
    elif isinstance(parent, Object) and isinstance(last, bytes):
        if kind == _REMOVE:
            del parent.members[last]
        elif value is not None and (last in parent.members) == (kind == _REPLACE):
            parent.members[last] = value
        else:
            raise KeyError(kind)
    else:
        raise ValueError(kind)
    return root


def _child(parent: Node, leg: Leg) -> Node:
    if isinstance(parent, Array) and isinstance(leg, int):
        return parent.elements[leg]
    if isinstance(parent, Object) and isinstance(leg, bytes):
        return parent.members[leg]
    raise ValueError(leg)


def _path(text: str) -> list[Leg]:
    """The legs of `$.key."another key"[3]`."""
    if not text.startswith("$"):
        raise ValueError(text)
    legs: list[Leg] = []
    at = 1
    while at < len(text):
        if text[at] == "[":
            end = text.index("]", at)
            legs.append(int(text[at + 1 : end]))
            at = end + 1
        elif text[at : at + 2] == '."':
            key, at = _UNESCAPED(text, at + 1)
            legs.append(key.encode())
        elif text[at] == ".":
            end = min((i for i in (text.find(c, at + 1) for c in ".[") if i > 0), default=len(text))
            legs.append(text[at + 1 : end].encode())
            at = end
        else:
            raise ValueError(text)
    return legs


def _read(kind: int, data: bytes, depth: int) -> Node:
    """The value of this kind that begins with `data`."""
    if kind > _LARGE_ARRAY:
        return Scalar(kind, data[: _scalar_bytes(kind, data)])
    if depth > _DEEPEST:
        raise ValueError(depth)
    large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    width, number = (4, "<I") if large else (2, "<H")
    count, _ = struct.unpack_from("<II" if large else "<HH", data)
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    entries = 2 * width + (count * (width + 2) if is_object else 0)
    values = []
    for i in range(count):
        entry = entries + i * (width + 1)
        if data[entry] in (_INLINE_LARGE if large else _INLINE):
            values.append(_read(data[entry], data[entry + 1 : entry + 1 + width], depth + 1))
        else:
            (at,) = struct.unpack_from(number, data, entry + 1)
            values.append(_read(data[entry], data[at:], depth + 1))
    if not is_object:
        return Array(values)
    keys = []
    for i in range(count):
        (at,) = struct.unpack_from(number, data, 2 * width + i * (width + 2))
        (length,) = struct.unpack_from("<H", data, 3 * width + i * (width + 2))
        keys.append(data[at : at + length])
    return Object(dict(zip(keys, values, strict=True)))


def _scalar_bytes(kind: int, data: bytes) -> int:
    if kind in _NUMBER_BYTES:
        return _NUMBER_BYTES[kind]
    if kind not in (_STRING, _OPAQUE):
        raise ValueError(kind)
    at = int(kind == _OPAQUE)  # an opaque value's own type
    size = shift = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return at + size


def _written(node: Node) -> tuple[int, bytes]:
    """Kind and bytes of a value."""
    if isinstance(node, Scalar):
        return node.kind, node.data
    if isinstance(node, Array):
        keys: list[bytes] = []
        values = node.elements
    else:
        keys = sorted(node.members, key=lambda k: (len(k), k))
        values = [node.members[k] for k in keys]
    parts = [_written(v) for v in values]
    large = False
    data = _container(keys, parts, large)
    if data is None:
        large = True
        data = _container(keys, parts, large)
    assert data is not None, "the large form holds any document"
    return (_SMALL_ARRAY if isinstance(node, Array) else _SMALL_OBJECT) + large, data


def _container(keys: list[bytes], parts: list[tuple[int, bytes]], large: bool) -> bytes | None:
    """An object's or array's bytes; None if they are too many for the small form."""
    width, number = (4, "<I") if large else (2, "<H")
    at = 2 * width + len(keys) * (width + 2) + len(parts) * (width + 1)
    inline = _INLINE_LARGE if large else _INLINE
    whole = at + sum(map(len, keys)) + sum(len(d) for kind, d in parts if kind not in inline)
    if not large and whole > _SMALL_LIMIT:
        return None
    entries, data = [struct.pack(number, len(parts)), struct.pack(number, whole)], []
    for key in keys:
        entries.append(struct.pack(number, at) + struct.pack("<H", len(key)))
        data.append(key)
        at += len(key)
    for kind, piece in parts:
        if kind in inline:
            entries.append(bytes([kind]) + piece.ljust(width, b"\0"))
            continue
        entries.append(bytes([kind]) + struct.pack(number, at))
        data.append(piece)
        at += len(piece)
    return b"".join(entries + data)
