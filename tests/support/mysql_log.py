"""Reads a MySQL or MariaDB log like the capture, without a home: rows as values that a test can compare."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwater.errors import DefinitionError
from headwater.model import Column, Op, SchemaVersion
from headwater.source.base import Inbox
from headwater.source.frames import Described, FramedTo, Frames, Taken
from headwater.source.mysql.begin import place_now
from headwater.source.mysql.binlog.position import Position, table_number
from headwater.source.mysql.catalog.catalog import describe_table
from headwater.source.mysql.catalog.types import upstream_type
from headwater.source.mysql.log import MysqlLog, MysqlSource
from support.mysql import MyDatabase

TIMEOUT_S = 30.0
LIMIT_BYTES = 16 << 20


class DictMemory:
    """A home in a dict; removals wait for `published`, like a real one's."""

    def __init__(self, followed: Iterable[int]) -> None:
        self.ids = frozenset(followed)
        self.kept: dict[str, dict[int, bytes]] = {}
        self.versions: dict[int, SchemaVersion] = {}
        self.relations: dict[int, Taken] = {}
        self._doomed: set[str] = set()

    def followed(self) -> frozenset[int]:
        return self.ids

    def taken(self, upstream_id: int) -> tuple[Taken, ...]:
        return (self.relations[upstream_id],) if upstream_id in self.relations else ()

    def version(self, upstream_id: int) -> SchemaVersion | None:
        return self.versions.get(upstream_id)

    def put(self, name: str, part: int, data: bytes) -> None:
        if part == 0:
            self.kept[name] = {}
        self._doomed.discard(name)
        self.kept[name][part] = data

    def get(self, name: str) -> bytes | None:
        return b"".join(v for _, v in sorted(self.kept[name].items())) if name in self.kept else None

    def remove(self, name: str) -> None:
        self._doomed.add(name)

    def published(self, frames: Frames) -> None:
        for r in frames.relations:
            self.versions[r.upstream_id] = SchemaVersion(
                1, r.upstream_id, 0, r.schema, r.table, r.identity, r.columns, r.broken
            )
        for name in self._doomed:
            self.kept.pop(name, None)
        self._doomed.clear()


@dataclass(frozen=True)
class Change:
    """One row of the changelog."""

    op: Op
    table: str
    payload: bytes
    txn: int


@dataclass
class LogReader:
    """A connection's log from now on. Every `read` is its own flow, starting at the last position."""

    database: MyDatabase
    tables: tuple[str, ...]
    server_id: int = 4_000_000_001
    identity: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)  # of the connection, besides its address
    piece_bytes: int = 0  # above 0: frames this much at a time, wherever the log may be split

    def __post_init__(self) -> None:
        self.ids = {table_number(self.database.name, t): t for t in self.tables}
        self.memory = DictMemory(self.ids)
        self.memory.relations = {id: r for id, t in self.ids.items() if (r := taken(self.database, t))}
        self.position = now(self.database)
        self.next_index = 1
        self.last_txn = 0
        self.relations: list[Described] = []
        self.frames: list[Frames] = []

    @property
    def source(self) -> MysqlSource:
        options = {**self.database.options, **self.options, "server.id": str(self.server_id)}
        return MysqlSource.of(options, self.database.server.password)

    @contextmanager
    def flow(self) -> Iterator[MysqlLog]:
        log = self.source.open_log(self.position, self.identity)
        try:
            self.identity = log.standing.identity
            log.begin(self.position)
            yield log
        finally:
            log.close()

    def read(self) -> list[Change]:
        """Everything up to the upstream's current position."""
        with self.flow() as log:
            data, lengths = collect(log)
            return self.frame(log, data, lengths)

    def frame(self, log: MysqlLog, data: Any, lengths: Any) -> list[Change]:
        progress = log.framing.begin(self.position, self.next_index, self.last_txn)
        changes: list[Change] = []
        for piece, of in self._pieces(log, data, lengths):
            frames, progress = self.frame_piece(log, piece, of, progress)
            changes += self.changes(frames)
        assert not progress.open
        self.position, self.next_index, self.last_txn = progress.position, progress.next_index, progress.last_txn
        return changes

    def frame_piece(self, log: MysqlLog, data: Any, lengths: Any, before: FramedTo) -> tuple[Frames, FramedTo]:
        frames, after = log.framing.frame(data, lengths, before, self.memory)
        assert len(frames) or not len(frames.transactions), "a commit came without a row"
        self.memory.published(frames)
        self.relations += frames.relations
        self.frames.append(frames)
        return frames, after

    def _pieces(self, log: MysqlLog, data: Any, lengths: Any) -> Iterator[tuple[Any, Any]]:
        if not self.piece_bytes:
            yield data, lengths
            return
        at, byte, open = 0, 0, False
        while at < len(lengths):
            ends = np.cumsum(lengths[at:])
            upto = int(np.searchsorted(ends, self.piece_bytes)) + 1
            while True:
                part = lengths[at : at + upto]
                cut = log.framing.boundary(data[byte : byte + int(part.sum())], part, open)
                count, size = (cut.whole, cut.whole_bytes) if cut.whole else (cut.piece, cut.piece_bytes)
                if count or at + upto >= len(lengths):
                    break
                upto += 1
            assert count, "the messages end inside a transaction"
            yield data[byte : byte + size], lengths[at : at + count]
            open = not cut.whole
            at, byte = at + count, byte + size

    def changes(self, frames: Frames) -> list[Change]:
        return [
            Change(
                Op(int(frames.op[i])),
                self.ids[int(frames.upstream_id[i])],
                frames.data[frames.start[i] : frames.start[i] + frames.length[i]].tobytes(),
                int(frames.txn[i]),
            )
            for i in range(len(frames))
        ]


def taken(database: MyDatabase, table: str) -> Taken | None:
    """What a relation with all columns follows of a table as it is now; None if there is none."""
    with database.endpoint.connect() as session:
        try:
            found = describe_table(session, database.name, table)
        except DefinitionError:
            return None
    index = found.primary or next((i for i in found.indexes if i.is_whole), None)
    key = tuple(c for c in index.columns if c) if index else ()
    columns = [(c, upstream_type(c.raw, in_key=c.name in key, booleans=True)) for c in found.columns if c.raw.is_known]
    return Taken(tuple(Column(c.name, "STRING", type, not c.not_null) for c, type in columns), key)


def now(database: MyDatabase) -> str:
    """Where a connection that begins now begins."""
    session = database.endpoint.connect()
    try:
        return str(place_now(database.endpoint, session, 0))
    finally:
        session.close()


def collect(log: MysqlLog) -> tuple[Any, Any]:
    """Messages up to the upstream's current position, copied."""
    target = log.framing.number(log.now()[0])
    inbox = Inbox()
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        log.receive(inbox, time.monotonic() + 0.2, 1 << 40)
        data, lengths = inbox.arrays()
        if len(lengths) and log.framing.boundary(data, lengths, False).position >= target:
            return data.copy(), lengths.copy()
        del data, lengths
        assert time.monotonic() < deadline, f"the log did not reach {Position.parse(log.now()[0])}"


def ints(changes: list[Change]) -> list[tuple[str, int]]:
    """(op, key) of rows of a table whose first column is an int key."""
    return [
        (c.op.name.lower(), int.from_bytes(c.payload[1:5], "little", signed=True) if c.payload else 0) for c in changes
    ]
