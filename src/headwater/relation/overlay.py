"""The overlay of a relation at an index: netted layers (runs, then the tail) that a read stacks on the base."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.backfill import rule
from headwater.backfill.rule import Sees
from headwater.config import PIN_S
from headwater.errors import DefinitionError
from headwater.meta import changes as changes_of
from headwater.meta import connections, epochs, relations
from headwater.meta import runs as meta_runs
from headwater.meta.store import Meta
from headwater.model import Layout, RelationInfo, RunInfo
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.relation.changes import Changes, LoggedChanges, Report, check_history
from headwater.relation.judge import settled
from headwater.relation.layers import (
    Layer,
    Netting,
    fitting,
    has_missing,
    no_holes,
    read_layer,
    stacked,
    still_holes,
    write_layer,
)
from headwater.relation.runs import RunWriter, layer_of, usable
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.kinds import kind
from headwater.storage import Storage

TAIL_FOLDER = "tmp/tail"
KEPT_OVERLAYS = 64
FRESH_S = 60.0  # a cached overlay expires after this: its runs may have been merged and removed


@dataclass(frozen=True, slots=True)
class Overlay:
    """The layers on top of a base at an index. A key's state is in the newest (last) layer that names it.

    `emptied`: ordinals of the layout's spans whose base rows a TRUNCATE has removed. `holes`: keys that neither a base
    row nor a change can complete; reads hide them, and they must be scanned again. `temporary`: the files of the tail,
    whose layers only this process knows.
    """

    relation_id: int
    index: int
    layers: tuple[Layer, ...]
    emptied: frozenset[int]
    temporary: tuple[str, ...]
    holes: pa.Table
    changes: int
    made_at: float = 0.0

    @property
    def empty(self) -> bool:
        """Whether the base alone is the relation."""
        return not self.layers and not self.emptied

    @property
    def rows(self) -> int:
        return sum(layer.rows for layer in self.layers)


class Overlays:
    """A cache of overlays by relation, layout and index. Thread-safe.

    Spark reads the tail from small files in the home (five times cheaper than an in-memory table). `release` removes
    them after the last user of an evicted overlay; `sweep` removes what crashed or careless users left behind. For an
    owner, who has leases, a long tail becomes runs first, so that later readers need not decode it again.
    """

    def __init__(
        self,
        storage: Storage,
        meta: Meta,
        *,
        leases: Leases | None = None,
        changes: Changes | None = None,
        sees: Sees | None = None,
        report: Report | None = None,
        settings: Settings = DEFAULTS,
    ) -> None:
        self.changes = LoggedChanges(storage, meta, report, settings) if changes is None else changes
        self._runs = RunWriter(storage, meta, self.changes)
        self._leases = leases
        self._settings = settings
        self._storage = storage
        self._meta = meta
        self._given = sees  # overrides the `sees` of the relation's kind of upstream
        self._kinds: dict[int, Sees] = {}
        self._lock = threading.Lock()
        self._long = threading.Lock()
        self._known: OrderedDict[tuple[Layout, int], Overlay] = OrderedDict()
        self._users: dict[str, int] = {}

    @contextmanager
    def use(self, relation: RelationInfo, layout: Layout, index: int) -> Iterator[Overlay]:
        """The overlay; its files are kept until the block ends."""
        overlay = self.at(relation, layout, index)
        try:
            yield overlay
        finally:
            self.release(overlay)

    def at(self, relation: RelationInfo, layout: Layout, index: int) -> Overlay:
        """The overlay; its files are kept until `release`, or until a sweep finds them older than any pin."""
        with self._lock:
            known = self._known.get((layout, index))
            if known is not None and known.made_at > time.time() - FRESH_S:
                self._known.move_to_end((layout, index))
                self._keep(known)
                return known
        made = self._make(relation, layout, index)
        with self._lock:
            replaced = [self._known.pop((layout, index))] if (layout, index) in self._known else []
            self._known[(layout, index)] = made
            self._keep(made)
            old = replaced + [self._known.popitem(last=False)[1] for _ in range(len(self._known) - KEPT_OVERLAYS)]
            dead = self._unused(old) + self._drop(relation.id, made)
        self._storage.remove(dead)
        return made

    def forget(self, relation_id: int) -> None:
        """Drops the cached overlays of a relation whose runs have changed."""
        with self._lock:
            dead = self._drop(relation_id)
        self._storage.remove(dead)

    def dropped(self, relation_id: int) -> None:
        """Drops everything that is cached for a relation that is gone."""
        self.forget(relation_id)
        self.changes.forget(relation_id)

    def release(self, overlay: Overlay) -> None:
        """Ends a use that began with `at`."""
        with self._lock:
            for path in overlay.temporary:
                self._users[path] = left = self._users.get(path, 1) - 1
                if left <= 0:
                    del self._users[path]
            unused = [] if any(o is overlay for o in self._known.values()) else self._unused([overlay])
        self._storage.remove(unused)

    @contextmanager
    def written(self, tables: Iterable[pa.Table]) -> Iterator[list[str]]:
        """Temporary files with the tables' rows, for Spark; removed when the block ends."""
        paths: list[str] = []
        try:
            for table in tables:
                path = f"{TAIL_FOLDER}/rows-{uuid.uuid4().hex[:12]}-{int(time.time())}.parquet"
                with self._storage.write(path) as f:
                    write_layer(f, table, compression="none")
                paths.append(path)
            yield paths
        finally:
            self._storage.remove(paths)

    def sweep(self, older_than_s: float = PIN_S) -> None:
        """Removes tail files that are not in use and older than any reader, and overlays that have expired."""
        with self._lock:
            expired = [k for k, v in self._known.items() if v.made_at <= time.time() - FRESH_S]
            dead = self._unused([self._known.pop(k) for k in expired])
            known = {path for o in self._known.values() for path in o.temporary} | set(self._users)
        self._storage.remove(dead)
        limit = time.time() - older_than_s
        for path in self._storage.list(TAIL_FOLDER):
            if path not in known and _made_at(path) < limit:
                self._storage.remove([path])

    def _drop(self, relation_id: int, keep: Overlay | None = None) -> list[str]:
        """Drops the relation's cached overlays except one; returns the files that are now unused."""
        superseded = [k for k, v in self._known.items() if v.relation_id == relation_id and v is not keep]
        return self._unused([self._known.pop(k) for k in superseded])

    def _unused(self, overlays: Sequence[Overlay]) -> list[str]:
        return [path for o in overlays for path in o.temporary if not self._users.get(path)]

    def _keep(self, overlay: Overlay) -> None:
        for path in overlay.temporary:
            self._users[path] = self._users.get(path, 0) + 1

    def make_runs(
        self, relation: RelationInfo, layout: Layout, index: int, limit: int, most_s: float = math.inf
    ) -> int:
        """Turns a tail of more than `limit` changes into runs, as the owner, and starts none after `most_s`.

        Returns how many changes follow the last run.
        """
        until = time.monotonic() + most_s
        assert self._leases is not None
        lease = self._leases.of(Name.relation(relation.id))
        made = self._runs.write(relation, layout, index, self._sees(relation), lease, limit=limit, until=until)
        if made.runs:
            self.forget(relation.id)
        return made.tail

    def _make(self, relation: RelationInfo, layout: Layout, index: int) -> Overlay:
        start, began = layout.overlay_start(relation), time.time()
        with self._meta.read() as c:
            if relation.view is not None and relations.get_or_none(c, relation.id) is None:  # its runs are gone, too
                raise DefinitionError("name.unknown", f"{relation.name} was just dropped", "Run the statement again.")
            changes = changes_of.count(c, relation, start, index)
        if not changes or not layout.spans:
            if layout.spans:
                self._check_history(relation, start, index)
            return Overlay(relation.id, index, (), frozenset(), (), no_holes(relation), 0, began)
        if relation.view is not None:  # its runs are all there is
            chain = [layer_of(r) for r in self._chain(relation, layout, start, index) if r.rows]
            layers = self._stacked(relation, index, chain)
            temporary = tuple(layer.path for layer in layers if layer not in chain)
            return Overlay(relation.id, index, layers, frozenset(), temporary, no_holes(relation), changes, began)
        # slices are bounded, but several at once would not be: short tails need little, long ones wait for each other
        with self._long if changes > self._settings.tail_changes else nullcontext():
            return self._layered(relation, layout, start, index, changes)

    def _stacked(self, relation: RelationInfo, index: int, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Small layers as a single one: Spark would compare each with all newer ones, in a job of its own."""
        if len(layers) < 2 or sum(layer.rows for layer in layers) > self._settings.tail_changes:
            return tuple(layers)
        found = stacked(relation, [read_layer(self._storage, relation, layer.path) for layer in layers])
        return (Layer(self._write(relation, index, found), found.num_rows, has_missing(found)),)

    def _layered(self, relation: RelationInfo, layout: Layout, start: int, index: int, changes: int) -> Overlay:
        long = changes > self._settings.slice_changes
        if long and self._leases is not None and self._is_newest(layout):  # spares later readers the decoding
            self.make_runs(relation, layout, index, self._settings.slice_changes)
        began = time.time()  # runs of the chain may be removed some time after this
        chain = self._chain(relation, layout, start, index)
        after = chain[-1].last_index if chain else start
        sees = self._sees(relation)
        emptied = rule.truncated(layout, self.changes.truncates(relation, after, index), sees)
        netting = Netting(relation, layout, sees, emptied)
        layers, holes = self._tail(netting, after, index, [layer_of(r) for r in chain])
        temporary = tuple(layer.path for layer in layers)
        self._check_history(relation, after, index)
        last_emptied = max((r.truncate_index for r in chain), default=0)
        if last_emptied:
            emptied = np.maximum(emptied, last_emptied)
        # a TRUNCATE in a settled layout removes everything before it, including runs
        everywhere = int(emptied.min()) if layout.settled and len(emptied) else 0
        runs = [layer_of(r) for r in chain if r.last_index >= everywhere and r.rows]
        ended = frozenset(np.flatnonzero(emptied).tolist())
        return Overlay(relation.id, index, (*runs, *layers), ended, temporary, holes, changes, began)

    def _chain(self, relation: RelationInfo, layout: Layout, start: int, index: int) -> list[RunInfo]:
        """The runs that a read can use."""
        if not settled(relation, layout):
            return []
        with self._meta.read() as c:
            live = meta_runs.live(c, relation.id, start, index)
        return usable(live, start, relation.schema_version, gaps=relation.view is not None)

    def _is_newest(self, layout: Layout) -> bool:
        """Whether this is the newest layout: runs for an older one would overlap with its runs."""
        with self._meta.read() as c:
            newest = epochs.newest(c)
            return newest is not None and epochs.layout_at(c, layout.relation_id, newest.id) == layout

    def _tail(self, netting: Netting, after: int, index: int, runs: Sequence[Layer]) -> tuple[list[Layer], pa.Table]:
        """The changes in (after, index] as layers on top of the runs, and the keys that cannot be completed."""
        relation, made, holes = netting.relation, list[Layer](), no_holes(netting.relation)
        try:
            for part in self.changes.slices(relation, after, index):
                while True:
                    first = fitting(self._storage, relation, [*runs, *made], part)
                    netted = netting.layer(first.part.table, first.older)
                    holes = still_holes(relation, holes, netted)
                    if netted.num_rows:
                        made.append(Layer(self._write(relation, index, netted), netted.num_rows, has_missing(netted)))
                    if first.part is part:
                        break
                    part = part.rest(first.part)
        except BaseException:
            self._storage.remove([layer.path for layer in made])
            raise
        return made, holes

    def _check_history(self, relation: RelationInfo, after: int, index: int) -> None:
        """Called after the changes were read: history that exists now existed then."""
        with self._meta.read() as c:
            check_history(c, relation, after, index)

    def _sees(self, relation: RelationInfo) -> Sees:
        if self._given is not None:
            return self._given
        connection_id = changes_of.connection_of(relation)
        known = self._kinds.get(connection_id)
        if known is None:
            with self._meta.read() as c:
                known = kind(connections.get(c, connection_id).type).sees
            self._kinds[connection_id] = known
        return known

    def _write(self, relation: RelationInfo, index: int, netted: pa.Table) -> str:
        path = f"{TAIL_FOLDER}/{relation.id}/{index:020d}-{uuid.uuid4().hex[:12]}-{int(time.time())}.parquet"
        with self._storage.write(path) as f:
            write_layer(f, netted, compression="none")
        return path


def _made_at(path: str) -> float:
    """When a tail file was written, by its name; 0 for any other file."""
    made_at = path.rpartition("-")[2].partition(".")[0]
    return float(made_at) if made_at.isdecimal() else 0.0
