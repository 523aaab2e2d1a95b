"""Sets of transactions as MySQL and MariaDB write them: immutable values."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.errors import DataError

Interval = tuple[int, int]  # both ends inclusive
Run = tuple[bytes, int, int]  # a source as the log writes it, and the first and last of its transactions
UUID_BYTES = 16
_MARIA = re.compile(r"\d+-\d+-\d+(,\d+-\d+-\d+)*")


@dataclass(frozen=True, slots=True)
class MysqlGtids:
    """Transactions by server uuid and tag: `uuid:1-5:7:tag:1-3,…`. A source is the uuid's bytes and the tag."""

    intervals: Mapping[bytes, tuple[Interval, ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> MysqlGtids:
        """The set that the server printed."""
        found: dict[bytes, list[Interval]] = {}
        for part in "".join(text.split()).split(","):
            if not part:
                continue
            head, *words = part.split(":")
            try:
                source = server = uuid.UUID(head).bytes
                for word in words:
                    if word[0].isdigit():
                        first, _, last = word.partition("-")
                        found.setdefault(source, []).append((int(first), int(last or first)))
                    else:
                        source = server + word.lower().encode()
            except (ValueError, IndexError) as e:
                raise DataError("data.log_damaged", f"{text!r} is not a valid GTID set") from e
        return cls({source: _merged(intervals) for source, intervals in found.items()})

    def add(self, runs: Iterable[Run]) -> MysqlGtids:
        """The set with more transactions."""
        found = {source: list(intervals) for source, intervals in self.intervals.items()}
        touched = set()
        for source, first, last in runs:
            found.setdefault(source, []).append((first, last))
            touched.add(source)
        return MysqlGtids({s: _merged(i) if s in touched else self.intervals[s] for s, i in found.items()})

    def union(self, other: MysqlGtids) -> MysqlGtids:
        return self.add((source, *interval) for source, of in other.intervals.items() for interval in of)

    def contains(self, source: bytes, number: int) -> bool:
        return any(first <= number <= last for first, last in self.intervals.get(source, ()))

    def within(self, other: MysqlGtids) -> bool:
        """Whether the other set contains all of this one."""
        return all(
            any(lo <= first and last <= hi for lo, hi in other.intervals.get(source, ()))
            for source, of in self.intervals.items()
            for first, last in of
        )

    def encode(self) -> bytes:
        """The set in the format of COM_BINLOG_DUMP_GTID; the form with tags only if there are any."""
        tagged = any(len(source) > UUID_BYTES for source in self.intervals)
        count = len(self.intervals)
        out = bytearray((1 | count << 8 | 1 << 56 if tagged else count).to_bytes(8, "little"))
        for source, of in sorted(self.intervals.items()):
            out += source[:UUID_BYTES]
            if tagged:
                out += bytes([(len(source) - UUID_BYTES) << 1]) + source[UUID_BYTES:]
            out += len(of).to_bytes(8, "little")
            for first, last in of:
                out += first.to_bytes(8, "little") + (last + 1).to_bytes(8, "little")
        return bytes(out)

    def __str__(self) -> str:
        servers: dict[bytes, list[str]] = {}
        for source, of in sorted(self.intervals.items()):
            words = servers.setdefault(source[:UUID_BYTES], [])
            if len(source) > UUID_BYTES:
                words.append(source[UUID_BYTES:].decode())
            words += [str(first) if first == last else f"{first}-{last}" for first, last in of]
        return ",".join(":".join([str(uuid.UUID(bytes=server)), *words]) for server, words in servers.items())


@dataclass(frozen=True, slots=True)
class MariaGtids:
    """The last transaction of each domain: `domain-server-number,…`. A source is domain and server, 4 bytes each."""

    last: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # domain → server, number

    @classmethod
    def parse(cls, text: str) -> MariaGtids:
        """The position that the server printed; of several servers in a domain the last one counts."""
        last: dict[int, tuple[int, int]] = {}
        for part in filter(None, "".join(text.split()).split(",")):
            try:
                domain, server, number = (int(word) for word in part.split("-"))
            except ValueError as e:
                raise DataError("data.log_damaged", f"{text!r} is not a valid GTID set") from e
            if domain not in last or last[domain][1] < number:
                last[domain] = (server, number)
        return cls(last)

    def add(self, runs: Iterable[Run]) -> MariaGtids:
        """The set after more transactions, in the log's order."""
        last = dict(self.last)
        for source, _first, number in runs:
            last[int.from_bytes(source[:4], "little")] = (int.from_bytes(source[4:8], "little"), number)
        return MariaGtids(last)

    def union(self, other: MariaGtids) -> MariaGtids:
        last = dict(self.last)
        for domain, (server, number) in other.last.items():
            if domain not in last or last[domain][1] < number:
                last[domain] = (server, number)
        return MariaGtids(last)

    def contains(self, source: bytes, number: int) -> bool:
        domain = int.from_bytes(source[:4], "little")
        return domain in self.last and number <= self.last[domain][1]

    def within(self, other: MariaGtids) -> bool:
        """Whether the other set contains all of this one."""
        return all(d in other.last and number <= other.last[d][1] for d, (_server, number) in self.last.items())

    def __str__(self) -> str:
        return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(self.last.items()))


Gtids = MysqlGtids | MariaGtids


def parse(text: str) -> Gtids | None:
    """The set of either dialect; None for an empty text: the server does not number its transactions."""
    if not text:
        return None
    return MariaGtids.parse(text) if _MARIA.fullmatch(text) else MysqlGtids.parse(text)


def _merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)
