"""A relation with a real Delta base and no Spark: changes come from a hand-made log, folds are delta-rs's MERGE."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from deltalake import CommitProperties, DeltaTable, Transaction

from headwater.backfill.files import FileWriter, scan_label
from headwater.engine.commit import epoch
from headwater.engine.commit.committer import Committer
from headwater.meta import epochs, intents, relations, segments, spans, tables
from headwater.meta.store import Meta
from headwater.model import (
    Bound,
    Column,
    Layout,
    RelationInfo,
    ScanResult,
    Span,
    SpanInfo,
    SpanState,
    TableState,
    UpstreamType,
)
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, inbox, relation, row
from support.owned import serving, taken_over

INT4 = UpstreamType("int4", 23, ordered=True)
SCHEMA = pa.schema([pa.field("id", pa.int32(), False), pa.field("n", pa.int32())])
TABLE = 1  # its number upstream
KEYS = 40
CUTS = (10, 20, 30)
Rows = dict[int, int]


class DeafMeta(Meta):
    """A meta that loses responses: a COMMIT is executed and an error is returned, or it is not executed."""

    def __init__(self, url: str, rng: random.Random) -> None:
        super().__init__(url)
        self._rng = rng
        self.lost = 0.0  # share of the responses
        self.failed = 0.0  # share of the writes that are not executed

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        fate = self._rng.random()
        with super().write() as c:
            yield c
            if fate < self.failed:
                raise _gone()
        if fate < self.failed + self.lost:
            raise _gone()


def _gone() -> sa.exc.OperationalError:
    return sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection unexpectedly"))


def decided_before(meta: Meta) -> None:
    """Simulates a reboot: everything decided before was decided in another life of the storage."""
    with meta.write() as c:
        for left in intents.all(c):
            body = json.dumps({**asdict(left.work), "boot": "before the power was lost"})
            c.execute(sa.update(tables.intent).where(tables.intent.c.id == left.id).values(body=body))


class Based:
    """A table of two columns, its upstream's states by index, and everything in between that works without Spark."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self.log = Log(path)
        self.meta = DeafMeta(self.log.home.meta.url, rng)
        self.home = self.log.home = replace(self.log.home, meta=self.meta)
        self.log.writer = self.log.flow()
        self.states: list[Rows] = [dict.fromkeys(range(0, KEYS, 2), 0)]
        self.sent: list[bytes] = []
        self.fails_after_commit = 0.0
        self.failure: BaseException = RuntimeError("the session ended after the commit")
        self.while_merging: Callable[[], None] = lambda: None
        with self.meta.write() as c:
            self.id = self._define(c)
            self.leases = serving(c)
        self.committer = self.new_committer()

    def _define(self, c: sa.Connection) -> int:
        columns = (Column("id", "INT", INT4, False), Column("n", "INT", INT4))
        id = add_table(c, "t", columns, ("id",), connection_id=self.log.id, upstream_id=TABLE)
        path = relations.get(c, id).base_path
        DeltaTable.create(self.home.storage.address(path), SCHEMA)
        relations.set_base_version(c, id, 0)
        relations.set_state(c, id, TableState.FILLING)
        bounds = [None, *(Bound((str(k),)) for k in CUTS), None]
        spans.add(c, id, [Span(lo, hi) for lo, hi in itertools.pairwise(bounds)], 1)
        relations.set_planned(c, id, True)
        return id

    def new_committer(self) -> Committer:
        return Committer(self.home, self.leases, self)

    @property
    def relation(self) -> RelationInfo:
        with self.meta.read() as c:
            return relations.get(c, self.id)

    @property
    def layout(self) -> Layout | None:
        with self.meta.read() as c:
            newest = epochs.newest(c)
            return None if newest is None else epochs.layout_at(c, self.id, newest.id)

    def batch(self) -> list[bytes]:
        """A transaction of some changes as the upstream sends it; the states include it from now on."""
        first = len(self.states)
        payloads = []
        for _ in range(self.rng.randrange(1, 4)):
            state = dict(self.states[-1])
            key = self.rng.randrange(KEYS)
            if state.pop(key, None) is None or self.rng.random() < 0.7:
                state[key] = len(self.states)
            self.states.append(state)
            payloads.append(b"N\0" + len(self.states).to_bytes(4, "big"))
        self.sent += payloads
        rows = [row("I", TABLE, p) for p in payloads]
        return [begin(100 + first), relation(TABLE, "id", "n"), *rows, commit(1000 * first)]

    def write(self, messages: list[bytes]) -> None:
        self.log.writer.write(*inbox(messages).arrays())

    def fill(self) -> None:
        """Reads and covers the whole table."""
        while self.scan():
            continue
        self.cover()

    def cover(self) -> None:
        """Covers what was read, without waiting between two covers."""
        self.committer._rest_until.clear()
        self.committer.cover(self.id)

    def change(self) -> None:
        """A transaction of the upstream, up to its epoch."""
        self.write(self.batch())
        self.publish()

    def reboot(self) -> None:
        """Simulates a reboot of the machine after everything decided so far."""
        decided_before(self.meta)

    def log_entry(self, version: int) -> Path:
        return self.home.path / self.relation.base_path / "_delta_log" / f"{version:020d}.json"

    def restart_capture(self) -> None:
        """Another capture takes over at meta's position."""
        with self.meta.write() as c:
            self.log.lease = taken_over(c, self.log.lease.name)
        with self.meta.owned(self.log.lease) as c:
            segments.cut_back(c, self.log.id)
        self.log.writer = self.log.flow()

    def scan(self) -> bool:
        """Reads one span as the upstream is at the end of the log; False if all are read."""
        with self.meta.read() as c:
            pending = [s for s in spans.all(c, self.id) if s.state in (SpanState.PENDING, SpanState.SCANNING)]
        if not pending:
            return False
        chosen: SpanInfo = self.rng.choice(pending)
        index = self.log.info().committed_index
        rows = {k: v for k, v in self.states[index].items() if _inside(chosen.span, k)}
        where = self.home.storage, self.relation.base_path, SCHEMA
        with FileWriter(*where, self.leases.server.permit, scan_label(chosen.id), key=("id",)) as files:
            for part in _table(rows).to_batches():
                files.write(part)
            written = files.close()
        with self.meta.owned(self.leases.server) as c:
            spans.scanned(c, chosen.id, ScanResult(f"at {index}", "0/1", written, len(rows)), index, "")
        return True

    def publish(self) -> None:
        epoch.publish_if_moved(self.meta, self.leases.server)

    def remove(self, relation: RelationInfo, spans: list[Span], app_id: str, version: int) -> int:
        raise AssertionError("no span is read again here")

    def fold(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """The fold, by another engine's MERGE."""
        self.while_merging()
        wanted = {k: v for k, v in self.states[index].items() if any(_inside(s.span, k) for s in layout.spans)}
        table = DeltaTable(self.home.storage.address(relation.base_path))
        covered = " OR ".join(_condition(s.span) for s in layout.spans)
        properties = CommitProperties(app_transactions=[Transaction(app_id, version)])
        (
            table.merge(_table(wanted), "t.id = s.id", "s", "t", commit_properties=properties)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete(covered)
            .execute()
        )
        if self.rng.random() < self.fails_after_commit:
            raise self.failure
        return int(DeltaTable(self.home.storage.address(relation.base_path)).version())

    def rewrite(self, relation: RelationInfo) -> None:
        DeltaTable(self.home.storage.address(relation.base_path)).optimize.compact()

    def assert_exact(self, earlier: Layout | None = None) -> None:
        """Every covered span of the newest layout equals the upstream's at its index, from the base alone.

        Or of an earlier layout, as a reader has pinned it.
        """
        layout = earlier or self.layout
        assert layout is not None and (earlier or layout.base_version == self.relation.base_version)
        table = DeltaTable(self.home.storage.address(self.relation.base_path), version=layout.base_version)
        listed = table.to_pyarrow_table().to_pylist()
        for s in layout.spans:
            found = sorted((r["id"], r["n"]) for r in listed if _inside(s.span, r["id"]))
            assert found == sorted((k, v) for k, v in self.states[s.log_index].items() if _inside(s.span, k)), s

    def assert_changelog(self) -> None:
        """The changelog holds every change once, in order, in complete files."""
        found = self.log.read(TABLE)
        assert [r["index"] for r in found] == list(range(1, len(self.states)))
        assert [r["payload"][-4:] for r in found] == [p[-4:] for p in self.sent]

    def intents(self) -> list[intents.Intent]:
        with self.meta.read() as c:
            return intents.all(c)


def _table(rows: Rows) -> pa.Table:
    return pa.table([pa.array(list(rows), pa.int32()), pa.array(list(rows.values()), pa.int32())], schema=SCHEMA)


def _inside(span: Span, key: int) -> bool:
    return (span.lo is None or key > int(span.lo.key[0])) and (span.hi is None or key <= int(span.hi.key[0]))


def _condition(span: Span) -> str:
    low = "true" if span.lo is None else f"t.id > {span.lo.key[0]}"
    high = "true" if span.hi is None else f"t.id <= {span.hi.key[0]}"
    return f"({low} AND {high})"
