"""A second reader of binlogs, for tests: plain Python over the server's own files, sharing no code with the first.

It supports only the column types of the tests' tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

MAGIC_BYTES, HEADER_BYTES, CHECKSUM_BYTES = 4, 19, 4
QUERY, FORMAT, XID, TABLE_MAP, GTID, XA_PREPARE, PAYLOAD, MARIA_GTID = 2, 15, 16, 19, 33, 38, 40, 162
PARTIAL = 39  # an update whose JSON values may be diffs; the tests' tables have none
WRITES, UPDATES, DELETES = (23, 30), (24, 31, PARTIAL), (25, 32)
V2 = (30, 31, 32, PARTIAL)
LONG, LONGLONG, VARCHAR, NEWDECIMAL, BLOB = 3, 8, 15, 246, 252
DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)

Rows = list[bytes]


@dataclass
class Group:
    """One transaction of the log: the place where it begins, and its rows, each as one run of bytes."""

    begins: int
    rows: Rows = field(default_factory=list)


@dataclass
class Reader:
    """Reads files in order. `tables` are (schema, name) of those whose rows are wanted."""

    tables: frozenset[tuple[str, str]]
    done: list[tuple[int, Rows]] = field(default_factory=list)
    prepared: dict[str, Rows] = field(default_factory=dict)
    _group: Group | None = None
    _maps: dict[int, tuple[tuple[str, str], list[tuple[int, int]]]] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        data = path.read_bytes()
        number = int(path.suffix[1:])
        at = MAGIC_BYTES
        self._group = None  # a crash may have truncated the last file's last transaction
        while at + HEADER_BYTES <= len(data):
            size = int.from_bytes(data[at + 9 : at + 13], "little")
            if at + size > len(data):
                return
            body = data[at + HEADER_BYTES : at + size - CHECKSUM_BYTES]
            self._event(data[at + 4], body, number << 36 | at)
            at += size

    def _event(self, kind: int, body: bytes, place: int) -> None:
        if kind in (GTID, MARIA_GTID):
            self._group = Group(place)
        elif kind == TABLE_MAP:
            self._map(body)
        elif kind in (*WRITES, *UPDATES, *DELETES):
            self._rows(kind, body)
        elif kind == PAYLOAD:
            for inner, content in unpacked(body):
                self._event(inner, content, place)
        elif kind == QUERY:
            self._statement(body)
        elif kind == XID:
            self._end()
        elif kind == XA_PREPARE:
            length = int.from_bytes(body[5:9], "little")
            assert self._group is not None
            self.prepared[body[13 : 13 + length].hex()] = self._group.rows
            self._group = None

    def _statement(self, body: bytes) -> None:
        schema_size, variables = body[8], int.from_bytes(body[11:13], "little")
        at = 13 + variables
        schema, text = body[at : at + schema_size].decode(), body[at + schema_size + 1 :].decode("utf-8", "replace")
        if found := re.match(r"TRUNCATE (?:TABLE )?`?(\w+)`?", text):
            if (schema, found[1]) in self.tables and self._group is not None:
                self._group.rows.append(b"")
            self._end()
        elif found := re.match(r"XA (COMMIT|ROLLBACK) X'(\w*)'", text):
            rows = self.prepared.pop(found[2], [])
            if found[1] == "COMMIT" and self._group is not None:
                self._group.rows = rows
                self._end()
        elif text == "COMMIT":
            self._end()

    def _end(self) -> None:
        if self._group is not None and self._group.rows:
            self.done.append((self._group.begins, self._group.rows))
        self._group = None

    def _map(self, body: bytes) -> None:
        id = int.from_bytes(body[:6], "little")
        at = 8
        names = []
        for _ in range(2):
            names.append(body[at + 1 : at + 1 + body[at]].decode())
            at += body[at] + 2
        columns, at = body[at], at + 1
        types, at = body[at : at + columns], at + columns + 1
        found = []
        for kind in types:
            width = {VARCHAR: 2, BLOB: 1, NEWDECIMAL: 2}.get(kind, 0)
            found.append((kind, int.from_bytes(body[at : at + width], "little")))
            at += width
        self._maps[id] = ((names[0], names[1]), found)

    def _rows(self, kind: int, body: bytes) -> None:
        table, columns = self._maps[int.from_bytes(body[:6], "little")]
        if table not in self.tables:
            return
        at = 8 + (int.from_bytes(body[8:10], "little") if kind in V2 else 0)
        bitmap = (body[at] + 7) // 8
        at += 1 + bitmap * (2 if kind in UPDATES else 1)
        assert self._group is not None
        while at < len(body):
            end = after_image(body, at, columns)
            row = body[at:end]
            if kind in UPDATES:
                at = end + (kind == PARTIAL)  # a byte of options lies between the images
                end = after_image(body, at, columns)
                row += body[at:end]
            self._group.rows.append(row)
            at = end


def after_image(body: bytes, at: int, columns: Sequence[tuple[int, int]]) -> int:
    """Where the image of a row ends."""
    nulls = int.from_bytes(body[at : at + (len(columns) + 7) // 8], "little")
    at += (len(columns) + 7) // 8
    for i, (kind, meta) in enumerate(columns):
        if nulls >> i & 1:
            continue
        if kind in (LONG, LONGLONG):
            at += 4 if kind == LONG else 8
        elif kind == NEWDECIMAL:
            digits, scale = (meta & 255) - (meta >> 8), meta >> 8
            at += digits // 9 * 4 + DIGIT_BYTES[digits % 9] + scale // 9 * 4 + DIGIT_BYTES[scale % 9]
        else:
            assert kind in (VARCHAR, BLOB), kind
            width = meta if kind == BLOB else 1 + (meta > 255)
            at += width + int.from_bytes(body[at : at + width], "little")
    return at


def unpacked(body: bytes) -> Iterator[tuple[int, bytes]]:
    """The events of a compressed transaction; they have no checksums."""
    size, at = 0, 0
    while True:
        name, at = packed_number(body, at)
        if not name:
            break
        length, at = packed_number(body, at)
        if name == 3:
            size, _ = packed_number(body, at)
        at += length
    data = bytes(pa.Codec("zstd").decompress(body[at:], size))
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at + 9 : at + 13], "little")
        yield data[at + 4], data[at + HEADER_BYTES : at + length]
        at += length


def packed_number(body: bytes, at: int) -> tuple[int, int]:
    """A variable-length number, and where it ends."""
    width = {252: 2, 253: 3, 254: 8}.get(body[at], 0)
    if not width:
        return body[at], at + 1
    return int.from_bytes(body[at + 1 : at + 1 + width], "little"), at + 1 + width
