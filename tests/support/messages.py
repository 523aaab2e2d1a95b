"""Hand-made log messages, as a PostgreSQL walsender sends them."""

from __future__ import annotations

import struct

from headwater.source.base import Inbox


def data(body: bytes) -> bytes:
    return b"w" + struct.pack("!qqq", 1, 2, 3) + body


def begin(xid: int) -> bytes:
    return data(b"B" + struct.pack("!qqI", 0, 7, xid & 0xFFFFFFFF))


def commit(lsn: int, time_us: int = 7) -> bytes:
    return data(b"C" + struct.pack("!bqqq", 0, lsn - 1, lsn, time_us))


def row(kind: str, oid: int, body: bytes = b"N\0\0") -> bytes:
    return data(kind.encode() + struct.pack("!I", oid) + body)


def truncate(*oids: int) -> bytes:
    return data(b"T" + struct.pack("!IB", len(oids), 0) + b"".join(struct.pack("!I", o) for o in oids))


def keepalive(lsn: int) -> bytes:
    return b"k" + struct.pack("!qqB", lsn, 0, 0)


def relation(oid: int, *columns: str, schema: str = "public", identity: str = "d") -> bytes:
    body = b"R" + struct.pack("!I", oid) + schema.encode() + b"\0t\0" + identity.encode()
    body += struct.pack("!H", len(columns))
    return data(body + b"".join(b"\1" + c.encode() + b"\0" + struct.pack("!Ii", 23, -1) for c in columns))


def inbox(messages: list[bytes]) -> Inbox:
    it = Inbox()
    it.extend(messages)
    return it
