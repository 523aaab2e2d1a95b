"""The overlay of a relation at an index: netted layers (runs, then the tail) that a read lays over the base."""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy.engine import Connection

from headwater.backfill.rule import Sees
from headwater.config import PIN_S
from headwater.errors import DataError
from headwater.meta import changes as changes_of
from headwater.meta import connections
from headwater.meta import runs as meta_runs
from headwater.meta.store import Meta
from headwater.model import Layout, RelationInfo, RunInfo
from headwater.relation.judge import after_truncate, judge, settled, truncated
from headwater.relation.net import holes, net, touched
from headwater.relation.schema import overlay_schema
from headwater.relation.tail import Report, Tails
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.kinds import kind
from headwater.source.names import MISSING
from headwater.storage import Storage

TAIL_FOLDER = "tmp/tail"
KEPT_OVERLAYS = 64
FRESH_S = 60.0  # an answer is not given again later than this: its runs may have been merged and removed meanwhile


@dataclass(frozen=True, slots=True)
class Layer:
    """One netted Parquet file of an overlay; `__from` in it always names a row of the base."""

    path: str
    rows: int
    missing: bool


@dataclass(frozen=True, slots=True)
class Overlay:
    """What lies over a base at an index. A key's state is in the newest (last) layer that names it.

    `emptied`: ordinals of the layout's spans whose base rows a TRUNCATE has ended. `holes`: keys that no base row and
    no change can complete; a read hides them, and they must be scanned again. `tail` is the newest layer in memory.
    """

    relation_id: int
    index: int
    layers: tuple[Layer, ...]
    emptied: frozenset[int]
    tail: pa.Table
    tail_path: str | None
    holes: pa.Table
    changes: int
    made_at: float = 0.0

    @property
    def empty(self) -> bool:
        """The base alone is the relation."""
        return not self.layers and not self.emptied

    @property
    def rows(self) -> int:
        return sum(layer.rows for layer in self.layers)


class Overlays:
    """Overlays by relation, layout and index. Any number of threads may ask; equal questions share an answer.

    Spark reads the tail from a small file in the home (five times cheaper than an in-memory table), which `use` removes
    when the last user of an old answer is done; `sweep` removes what crashed or forgetful users left.
    """

    def __init__(
        self,
        storage: Storage,
        meta: Meta,
        *,
        sees: Sees | None = None,
        report: Report | None = None,
        settings: Settings = DEFAULTS,
    ) -> None:
        self.tails = Tails(storage, meta, report, settings)
        self._storage = storage
        self._meta = meta
        self._given = sees  # else what the relation's kind of upstream says
        self._kinds: dict[int, Sees] = {}
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Layout, int], Overlay] = OrderedDict()
        self._users: dict[str, int] = {}

    @contextmanager
    def use(self, relation: RelationInfo, layout: Layout, index: int) -> Iterator[Overlay]:
        """The overlay, whose files stay until the block ends."""
        overlay = self.at(relation, layout, index)
        try:
            yield overlay
        finally:
            self.release(overlay)

    def at(self, relation: RelationInfo, layout: Layout, index: int) -> Overlay:
        """The overlay; its files stay until `release`, or until a sweep finds them older than any pin."""
        with self._lock:
            known = self._known.get((layout, index))
            if known is not None and known.made_at > time.time() - FRESH_S:
                self._known.move_to_end((layout, index))
                self._hold(known)
                return known
        made = self._make(relation, layout, index)
        with self._lock:
            replaced = [self._known.pop((layout, index))] if (layout, index) in self._known else []
            self._known[(layout, index)] = made
            self._hold(made)
            old = replaced + [self._known.popitem(last=False)[1] for _ in range(len(self._known) - KEPT_OVERLAYS)]
            dead = self._unused(old) + self._drop(relation.id, made)
        self._storage.remove(dead)
        return made

    def forget(self, relation_id: int) -> None:
        """Drops answers about a relation that has changed its runs or is gone."""
        with self._lock:
            dead = self._drop(relation_id)
        self._storage.remove(dead)

    def release(self, overlay: Overlay) -> None:
        """Says that a user of `at` is done."""
        path = overlay.tail_path
        if path is None:
            return
        with self._lock:
            self._users[path] = left = self._users.get(path, 1) - 1
            if left <= 0:
                del self._users[path]
            unused = left <= 0 and all(o.tail_path != path for o in self._known.values())
        if unused:
            self._storage.remove([path])

    def sweep(self, older_than_s: float = PIN_S) -> None:
        """Removes tail files that nobody can use any more."""
        with self._lock:
            known = {o.tail_path for o in self._known.values()} | set(self._users)
        limit = time.time() - older_than_s
        for path in self._storage.list(TAIL_FOLDER):
            made_at = int(path.rsplit("-", 1)[1].split(".")[0])
            if path not in known and made_at < limit:
                self._storage.remove([path])

    def _drop(self, relation_id: int, keep: Overlay | None = None) -> list[str]:
        """Forgets the relation's answers except one; gives the files that nobody uses."""
        superseded = [k for k, v in self._known.items() if v.relation_id == relation_id and v is not keep]
        return self._unused([self._known.pop(k) for k in superseded])

    def _unused(self, overlays: Sequence[Overlay]) -> list[str]:
        return [o.tail_path for o in overlays if o.tail_path and not self._users.get(o.tail_path)]

    def _hold(self, overlay: Overlay) -> None:
        if overlay.tail_path is not None:
            self._users[overlay.tail_path] = self._users.get(overlay.tail_path, 0) + 1

    def _make(self, relation: RelationInfo, layout: Layout, index: int) -> Overlay:
        start = max(layout.log_index, relation.origin.begin_index)
        with self._meta.read() as c:
            changes = changes_of.count(c, relation, start, index)
            live = meta_runs.live(c, relation.id, start, index) if changes and settled(relation, layout) else []
        if not changes or not layout.spans:
            if layout.spans:
                self._check_history(relation, start, index)
            return _nothing(relation, index)
        chain = usable(live, start)
        after = chain[-1].last_index if chain else start
        tail, emptied = self.net_tail(relation, layout, after, index, chain)
        self._check_history(relation, after, index)
        last_emptied = max((r.truncate_index for r in chain), default=0)
        if last_emptied:
            emptied = np.maximum(emptied, last_emptied)
        # a TRUNCATE in a settled layout ends everything before it, runs too
        everywhere = int(emptied.min()) if layout.settled and len(emptied) else 0
        layers = [Layer(r.path, r.rows, r.missing) for r in chain if r.last_index >= everywhere and r.rows]
        tail_path = None
        if tail.num_rows:
            tail_path = self._write_tail(relation, index, tail)
            layers.append(Layer(tail_path, tail.num_rows, has_missing(tail)))
        return Overlay(
            relation.id,
            index,
            tuple(layers),
            frozenset(np.flatnonzero(emptied).tolist()),
            tail,
            tail_path,
            holes(tail).select(list(relation.key)),
            changes,
            time.time(),
        )

    def _check_history(self, relation: RelationInfo, after: int, index: int) -> None:
        """Asked after the changes were read: what is there now was there then."""
        with self._meta.read() as c:
            check_history(c, relation, after, index)

    def net_tail(
        self, relation: RelationInfo, layout: Layout, after: int, index: int, chain: Sequence[RunInfo]
    ) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """The netted changes in (after, index] over the runs before them, and per span its last TRUNCATE there."""
        changes = self.tails.changes(relation, after, index)
        sees = self._sees(relation)
        emptied = truncated(layout, changes, sees)
        before = []
        if chain and changes[MISSING].null_count < changes.num_rows:  # a missing value may stand in a run
            before = [touched(read_run(self._storage, relation, r), changes, relation.key) for r in chain]
        judgement = judge(relation, layout, changes, sees)
        netted = net([*before, changes], relation.columns, relation.key, judgement)
        return after_truncate(relation, layout, netted, emptied), emptied

    def _sees(self, relation: RelationInfo) -> Sees:
        if self._given is not None:
            return self._given
        known = self._kinds.get(relation.origin.connection_id)
        if known is None:
            with self._meta.read() as c:
                known = kind(connections.get(c, relation.origin.connection_id).type).sees
            self._kinds[relation.origin.connection_id] = known
        return known

    def _write_tail(self, relation: RelationInfo, index: int, tail: pa.Table) -> str:
        path = f"{TAIL_FOLDER}/{relation.id}/{index:020d}-{uuid.uuid4().hex[:12]}-{int(time.time())}.parquet"
        with self._storage.write(path) as f:
            write_layer(f, tail, compression="none")
        return path


def check_history(c: Connection, relation: RelationInfo, after: int, index: int) -> None:
    """Raises if the changelog no longer holds (after, index]: what is not there must not look like no change."""
    first = changes_of.first_kept(c, relation)
    if after < index and first > after + 1:
        raise DataError(
            "data.history_missing",
            f"{relation.name} needs changes from {after + 1} on, and the changelog begins at {first}",
            f"RESYNC TABLE {relation.name} reads it again.",
        )


def usable(live: Sequence[RunInfo], after: int) -> list[RunInfo]:
    """The runs that follow each other without a gap from `after` on; what straddles it is of no use."""
    chain: list[RunInfo] = []
    for run in live:
        if run.first_index == after + 1:
            chain.append(run)
            after = run.last_index
    return chain


def has_missing(netted: pa.Table) -> bool:
    return bool(netted[MISSING].null_count < netted.num_rows)


def write_layer(file: object, netted: pa.Table, compression: str) -> None:
    """Writes a layer the way Spark reads it fastest."""
    pq.write_table(
        netted,
        file,
        compression=compression,
        write_statistics=False,  # Arrow leaves NaN out of a maximum, and Spark would skip such rows
        use_dictionary=False,
        row_group_size=131_072,
        store_decimal_as_integer=True,
        coerce_timestamps="us",
    )


def read_run(storage: Storage, relation: RelationInfo, run: RunInfo) -> pa.Table:
    """A run's rows."""
    table = pq.read_table(storage.open(run.path))
    return table.cast(overlay_schema(relation.columns, relation.key))


def read_keys(storage: Storage, overlay: Overlay, column: str) -> pa.Array:
    """One key column of all layers."""
    parts = [pq.read_table(storage.open(layer.path), columns=[column]) for layer in overlay.layers]
    return pa.concat_tables(parts)[column].combine_chunks() if parts else overlay.tail[column].combine_chunks()


def _nothing(relation: RelationInfo, index: int) -> Overlay:
    empty = overlay_schema(relation.columns, relation.key).empty_table()
    return Overlay(relation.id, index, (), frozenset(), empty, None, empty.select(list(relation.key)), 0, time.time())
