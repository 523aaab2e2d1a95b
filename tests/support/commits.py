"""A relation whose base, meta and changelog are real and small, for tests of commits to it. No Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction

from headwater.engine.commit import committer, epoch
from headwater.engine.commit.committer import Committer
from headwater.engine.home import Home
from headwater.meta import connections, epochs, intents, relations, segments, spans
from headwater.model import (
    Bound,
    Column,
    DataFile,
    Epoch,
    Layout,
    Part,
    RelationInfo,
    ScanResult,
    Segment,
    Span,
    SpanInfo,
    TableState,
    UpstreamType,
)
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.relation import base
from headwater.source.postgres.client.session import int_to_lsn
from support.defined import add_table
from support.owned import acquired, serving

TABLE = 4711  # the upstream's own id
SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.int32())])
INT = UpstreamType("int4", 23, ordered=True)
TEXT = UpstreamType("text", 25)  # a collation's own order


def bound(key: int | None) -> Bound | None:
    return None if key is None else Bound((str(key),))


def span(lo: int | None, hi: int | None) -> Span:
    """(lo, hi]"""
    return Span(bound(lo), bound(hi))


@dataclass
class Commits:
    """A home with a connection, a table that is being filled, and the committer of its base."""

    home: Home
    leases: Leases
    capture: Lease
    connection_id: int
    relation_id: int
    committer: Committer = field(init=False)
    merging: Callable[[], None] = lambda: None  # runs inside each merge, before it commits
    merged: list[tuple[int, int]] = field(default_factory=list)  # (index, intent) of each merge
    emptied: list[list[Span]] = field(default_factory=list)
    _files: int = 0

    @classmethod
    def make(cls, path: Path, spans_of: list[Span], *, ordered: bool = True, planned: bool = True) -> Self:
        home = Home.open(path)
        with home.meta.write() as c:
            connection_id = _connection(c)
            leases, capture = serving(c), acquired(c, Name.connection(connection_id))
        made = cls(home, leases, capture, connection_id, 0)
        made.relation_id = made.add_relation("t", spans_of, ordered=ordered, planned=planned)
        made.restart()
        return made

    def add_relation(self, name: str, spans_of: list[Span], *, ordered: bool = True, planned: bool = True) -> int:
        columns = (Column("id", "INT", INT if ordered else TEXT, False), Column("v", "INT", INT))
        with self.home.meta.write() as c:
            id = add_table(c, name, columns, ("id",), connection_id=self.connection_id, upstream_id=TABLE)
            relations.set_state(c, id, TableState.FILLING)
            relations.set_planned(c, id, planned)
            spans.add(c, id, spans_of, 0.0)
            path = relations.get(c, id).base_path
        (self.home.path / path).mkdir(parents=True)
        DeltaTable.create(self.home.storage.address(path), Schema.from_arrow(SCHEMA))
        with self.home.meta.write() as c:
            relations.set_base_version(c, id, 0)
        return id

    def restart(self) -> Committer:
        """Another process's committer, which knows what meta knows."""
        self.committer = Committer(self.home, self.leases, self)
        return self.committer

    def cover(self) -> Epoch | None:
        """A cover without the pause after the previous one."""
        self.committer._rest_until.clear()
        return self.committer.cover(self.relation_id)

    def log(self, changes: int, position: int, *, table: int = TABLE, txn: int = 0) -> int:
        """Publishes a segment of changes to a table, up to a position; returns its last index."""
        with self.home.meta.owned(self.capture) as c:
            first = connections.get(c, self.connection_id).last_index + 1
            last = first + changes - 1
            part = Part(table, 1, 0, changes, first, last)
            new = Segment(self.connection_id, first, last, last, f"s{first}", 1, txn or first, txn or last, (part,))
            at = int_to_lsn(position)
            segments.publish(c, new, resume_position=at, position=at, last_txn=last)
        return last

    def idle(self, position: int) -> None:
        with self.home.meta.write() as c:
            connections.advance(c, self.connection_id, int_to_lsn(position))

    def scan(self, which: int, ids: list[int], high: int, *, log_index: int = 0, life: str = "1") -> str:
        """Records that the span of this ordinal was read: these ids, up to a place in the log; returns its file."""
        file = self.file(ids)
        with self.home.meta.write() as c:
            info = spans.all(c, self.relation_id)[which]
            result = ScanResult("5:5:", int_to_lsn(high), (file,), len(ids), {}, None)
            spans.scanned(c, info.id, result, log_index, life)
        return file.path

    def file(self, ids: list[int]) -> DataFile:
        self._files += 1
        name = f"scan-{self._files}.parquet"
        target = self.home.path / self.relation.base_path / name
        pq.write_table(pa.table({"id": ids, "v": ids}, SCHEMA), target)
        return DataFile(name, target.stat().st_size, len(ids), json.dumps({"numRecords": len(ids)}))

    @property
    def relation(self) -> RelationInfo:
        with self.home.meta.read() as c:
            return relations.get(c, self.relation_id)

    @property
    def spans(self) -> list[SpanInfo]:
        with self.home.meta.read() as c:
            return spans.all(c, self.relation_id)

    @property
    def states(self) -> list[str]:
        return [str(s.state) for s in self.spans]

    def epoch(self) -> Epoch | None:
        with self.home.meta.read() as c:
            return epochs.newest(c)

    def layout(self) -> Layout | None:
        newest = self.epoch()
        with self.home.meta.read() as c:
            return None if newest is None else epochs.layout_at(c, self.relation_id, newest.id)

    def publish(self) -> Epoch | None:
        return epoch.publish_if_moved(self.home.meta, self.leases.server)

    def ids(self, version: int | None = None) -> list[int]:
        """The base's contents, at a version or now."""
        table = DeltaTable(self.home.storage.address(self.relation.base_path), version=version)
        return sorted(pa.table(table.to_pyarrow_table())["id"].to_pylist())

    def delta_version(self) -> int:
        return base.current_version(self.home.storage, self.relation.base_path)

    def fold(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """A commit as a fold makes it: with the intent's number."""
        self.merging()
        self.merged.append((index, version))
        return base.add_files(self.home.storage, relation.base_path, [self.file([])], app_id, version)

    def remove(self, relation: RelationInfo, gone: list[Span], app_id: str, version: int) -> int:
        """As Spark does it: once per number, and not once that has been passed."""
        table = DeltaTable(self.home.storage.address(relation.base_path))
        if (table.transaction_version(app_id) or -1) < version:
            self.emptied.append(gone)
            table.delete(commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]))
        return self.delta_version()


def _connection(c: Any) -> int:
    return connections.add(
        c,
        name="shop",
        type="postgres-cdc",
        options={},
        secret="",
        identity={},
        position="0/10",
        txn=1,
        server_life="1",
    )


TWO = [span(None, 10), span(10, None)]


def covered(b: Commits) -> Commits:
    """Both of two spans shown, and changes after them."""
    b.log(3, position=20)
    b.scan(0, [1], high=20, log_index=0)
    b.scan(1, [11], high=20, log_index=2)
    assert b.committer.cover(b.relation_id) is not None
    assert b.states == ["covered", "covered"]
    return b


def intents_of(b: Commits) -> list[type]:
    """The kinds of what was decided and not recorded yet."""
    with b.home.meta.read() as c:
        return [type(i.work) for i in intents.all(c)]


class Dies(BaseException):
    """Stands for kill -9: nothing after the point runs in this process."""


def dying_at(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets whoever comes to a crash point of a commit die there."""

    def here(name: str) -> None:
        if name == point:
            raise Dies

    monkeypatch.setattr(committer.crash, "here", here)


class Held:
    """A step that waits in a thread until it is released."""

    def __init__(self) -> None:
        self.reached, self.free = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.free.wait(60)
