"""Two-phase transactions: their rows are in the log when they are prepared, and count when they commit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from headwater.source.base import Bytes, Longs
from headwater.source.frames import Memory
from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.client.unpack import damaged

_XID = re.compile(r"XA\s+(START|END|COMMIT|ROLLBACK)\s+X'([0-9a-f]*)',X'([0-9a-f]*)',(-?\d+)", re.I)
_LENGTH_BYTES = 4
# what may come before a statement's verb and between its words; the contents of /*! … */ are executed
_BLANK = re.compile(r"/\*(?!M?!).*?\*/|--(?=\s).*?$|\#.*?$", re.S | re.M)
_CARRIED_OUT = re.compile(r"/\*M?!\d*|\*/")
_ENDS = re.compile(r"\s*XA\s+(COMMIT|ROLLBACK)\b", re.I)


@dataclass(frozen=True, slots=True)
class Aside:
    """A prepared group while the log writes it: the name it is stored under, and how many parts are stored already."""

    name: str
    parts: int = 0

    def keep(self, messages: list[bytes], memory: Memory) -> Aside:
        """Stores more of its messages durably. The first part is stored even if it is empty, to record the group."""
        if self.parts and not messages:
            return self
        memory.put(self.name, self.parts, pack(messages))
        return replace(self, parts=self.parts + 1)


def name_of_statement(text: str) -> str:
    """The name under which the group of XA START, COMMIT or ROLLBACK is stored."""
    m = _XID.match(text)
    if m is None:
        raise damaged("an XA statement has no transaction id")
    return _name(int(m[4]), bytes.fromhex(m[2]), bytes.fromhex(m[3]))


def ends_prepared(text: str) -> bool:
    """Whether a statement, as a user wrote it, may end a prepared transaction; it may if a comment hides its verb."""
    plain = _CARRIED_OUT.sub(" ", _BLANK.sub(" ", text))
    return bool(_ENDS.match(plain)) or plain.lstrip().startswith("/*")


def name_of_gtid(event: bytes) -> str:
    """The name of the group that a MariaDB GTID event begins."""
    at = ev.HEADER_BYTES + 13
    if event[ev.HEADER_BYTES + 12] & ev.GROUP_COMMIT_ID:
        at += 8
    first, second = event[at + 4], event[at + 5]
    return _name(
        int.from_bytes(event[at : at + 4], "little", signed=True),
        event[at + 6 : at + 6 + first],
        event[at + 6 + first : at + 6 + first + second],
    )


def commits_at_once(event: bytes) -> bool:
    """Whether a prepare event is also the commit (XA COMMIT … ONE PHASE)."""
    return event[ev.HEADER_BYTES] != 0


def pack(messages: list[bytes]) -> bytes:
    """Messages as one run of bytes."""
    return b"".join(len(m).to_bytes(_LENGTH_BYTES, "little") + m for m in messages)


def unpack(kept: bytes) -> tuple[Bytes, Longs]:
    """The stored messages of a group."""
    lengths, messages, at = [], [], 0
    while at < len(kept):
        size = int.from_bytes(kept[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        messages.append(kept[at : at + size])
        lengths.append(size)
        at += size
    return np.frombuffer(bytearray(b"".join(messages)), np.uint8), np.array(lengths, np.int64)


def _name(format: int, gtrid: bytes, bqual: bytes) -> str:
    return f"xa-{format}-{gtrid.hex()}-{bqual.hex()}"
