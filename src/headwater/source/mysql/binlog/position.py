"""Positions in a MySQL log: a file, an offset, and the transactions up to there; and their numbers."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from headwater.errors import DataError

OFFSET_BITS = 36  # a binlog file may exceed max_binlog_size by one transaction; 64 GB are enough for any
_OFFSET = (1 << OFFSET_BITS) - 1
_TEXT = re.compile(r"(?P<base>.+?)\.(?P<file>\d+):(?P<offset>\d+)(?:@(?P<shift>-?\d+))?(?: (?P<gtids>\S+))?", re.S)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a server's binlog. Text: `FILE:OFFSET[@SHIFT][ GTIDS]`.

    `file` is the number in the file's name, `digits` its width there. `shift` is added to it after a failover, so that
    the numbers of one connection keep growing. `gtids` are the transactions up to here, if the server numbers them.
    """

    base: str
    file: int
    digits: int
    offset: int
    shift: int = 0
    gtids: str = ""

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that `str` wrote."""
        m = _TEXT.fullmatch(text)
        if m is None:
            raise DataError("data.log_damaged", f"{text!r} is not a binlog position", "Write it as FILE:OFFSET.")
        return cls(m["base"], int(m["file"]), len(m["file"]), int(m["offset"]), int(m["shift"] or 0), m["gtids"] or "")

    @classmethod
    def of(cls, name: str, offset: int, shift: int = 0, gtids: str = "") -> Position:
        """A place in a file with the server's name for it."""
        base, _, number = name.rpartition(".")
        return cls(base, int(number), len(number), offset, shift, gtids)

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.base}.{self.file:0{self.digits}d}"

    @property
    def number(self) -> int:
        """The position as one number; later positions of a connection have larger ones."""
        return (self.file + self.shift) << OFFSET_BITS | self.offset

    def at(self, number: int, gtids: str) -> Position:
        """The place with this number in the same server's binlog."""
        return replace(self, file=(number >> OFFSET_BITS) - self.shift, offset=number & _OFFSET, gtids=gtids)

    def __str__(self) -> str:
        shift = f"@{self.shift}" if self.shift else ""
        gtids = f" {self.gtids}" if self.gtids else ""
        return f"{self.name}:{self.offset}{shift}{gtids}"


def table_number(schema: str, name: str) -> int:
    """The upstream id of a table: the log identifies tables by name only."""
    digest = hashlib.blake2b(f"{schema}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & ((1 << 63) - 1)
