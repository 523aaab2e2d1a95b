"""Reads at one epoch: the relations that a statement names, their layouts, and a pin while it runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headwater.changelog.envelope import SCHEMA
from headwater.changelog.reader import read_transactions
from headwater.decode.changes import DecodedChanges
from headwater.decode.layout import decodable_until
from headwater.engine.home import Home
from headwater.engine.query.changes import changelog_rows
from headwater.engine.query.freshness import behind
from headwater.engine.query.meet import LOOK_S, MEET_S, Met, check_filled, meet, no_common_version, wait_until_fresh
from headwater.engine.query.net_changes import net_changes
from headwater.engine.results import Behind
from headwater.engine.running import Running
from headwater.engine.spark.jobs import in_parallel, pool
from headwater.engine.spark.sessions import Pooled, Sessions
from headwater.errors import DataError, DefinitionError, unknown_name
from headwater.meta import changes as changes_of
from headwater.meta import epochs, progress, relations, segments
from headwater.model import Epoch, Layout, RelationInfo, TableState
from headwater.ownership.lease import Leases
from headwater.relation.base import few_files
from headwater.relation.overlay import Overlay, Overlays
from headwater.relation.read import base_at, dataframe, empty, escaped, layers, lost
from headwater.view.reading import shown

FEW_CHANGES = 50_000  # of a changelog; more than this are read from files


@dataclass(frozen=True, slots=True)
class Shown:
    """A relation as an epoch shows it; without a layout nothing of it is readable yet."""

    relation: RelationInfo
    layout: Layout | None
    covered: float  # share of its spans
    waits_for: tuple[str, ...] = ()  # tables of its block that are not complete

    def warning(self) -> str:
        """What is missing from its rows, as text; empty if nothing is."""
        if self.relation.state is TableState.FAILED and self.relation.view is not None:
            return f"{self.relation.name}: its last refresh failed: {(self.relation.error or {}).get('message', '')}"
        if self.relation.state is TableState.FAILED:
            return f"{self.relation.name}: stopped: {(self.relation.error or {}).get('message', '')}"
        if self.waits_for:
            return f"{self.relation.name}: becomes readable together with {', '.join(self.waits_for)}"
        if self.layout is not None and self.layout.complete:
            return ""
        waits = "" if self.relation.ordered else " (only the database can order its keys: readable when complete)"
        return f"{self.relation.name}: {self.covered * 100:.0f} % covered{waits}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """An epoch, protected while the block runs, with a session in which its relations are views."""

    pooled: Pooled
    epoch: Epoch
    age_s: float | None  # of an epoch that views determine: for how long there has been a newer one
    seen: tuple[Shown, ...]
    warnings: tuple[str, ...]
    home: Home
    overlays: Overlays
    _until_end: ExitStack

    @property
    def session(self) -> SparkSession:
        return self.pooled.session

    def behind(self, names: Collection[str] = ()) -> list[Behind]:
        """How old the relations are, by connection; `names` are further connections that the statement reads."""
        with self.home.meta.read() as c:
            below = changes_of.connections_of(c, (s.relation for s in self.seen))
            found = behind(c, self.home.live.server, below, names)
        if self.age_s is not None:
            late = ", ".join(s.relation.name for s in self.seen if s.relation.view is not None)
            found.append(Behind(late, self.age_s, "the newest epoch at which these views have a version"))
        return found

    def show_changelog(self, view: str, connection: str, table: str | None, first: int | None, last: int | None) -> str:
        """Creates a view of a connection's changes as Debezium-shaped rows; returns its name."""
        pieces = changelog_rows(self.home, self.overlays.changes, self.epoch, connection, table, first, last)
        few, more = SCHEMA.empty_table(), None
        for more in pieces:
            if few.num_rows + more.num_rows > FEW_CHANGES:
                break
            few, more = pa.concat_tables([few, more]), None
        if more is None:
            rows = few.sort_by("index")
            self.pooled.show(view, object(), lambda: self.session.createDataFrame(rows))
        else:
            paths = self._until_end.enter_context(self.overlays.written(chain([few, more], pieces)))
            addresses = [escaped(self.home.storage.address(path)) for path in paths]
            self.pooled.show(view, object(), lambda: self.session.read.parquet(*addresses))
        return view

    def show_changes(self, view: str, relation: str, first: int | None, last: int | None) -> str:
        """Creates a view of a relation's net change between two epochs; returns its name."""
        with self.home.meta.read() as c:
            found = relations.find(c, relation)
            names = [r.name for r in relations.named(c)]
        if found is None:
            raise unknown_name("table", relation, names)
        rows = net_changes(self.home, self.session, self.overlays, self._until_end, found, self.epoch, first, last)
        self.pooled.show(view, object(), lambda: rows)
        return view


class Reader:
    """Reads a home. `session` provides Spark at the first read that needs it; an owner (`leases`) also makes runs."""

    def __init__(self, home: Home, session: Callable[[], SparkSession], leases: Leases | None = None) -> None:
        self._home = home
        self._root = session
        self._sessions: Sessions | None = None
        self._lock = threading.Lock()
        self._in_use = ExitStack()
        self.overlays = Overlays(home.storage, home.meta, leases=leases, report=self._report, settings=home.settings)

    @contextmanager
    def pinned(
        self,
        names: Collection[str],
        *,
        require_complete: bool = False,
        query: Running | None = None,
        fresh: bool = False,
    ) -> Iterator[Pinned]:
        """A session whose temp views are the relations among `names` (lower case), all at one epoch.

        That is the newest one, or the newest at which all views among them have a version; with `fresh` it waits until
        these hold what was published before. Work in the session is cancelled with the `query`.
        """
        timed, sessions = self._home.live.counters.time("headwater_read_seconds"), self._pool()
        if fresh:
            wait_until_fresh(self._home.meta, names, self._home.live.server is not None)
        with timed, self._pin("reader", names) as (met, seen), sessions.use(query) as pooled, ExitStack() as overlays:
            epoch, meant = met.epoch, seen
            warnings = tuple(w for w in (s.warning() for s in meant) if w)
            if require_complete and warnings:
                raise _incomplete(warnings)
            names_shown = {s.relation.name for s in meant}
            pooled.only(names_shown)  # a dropped table's name must not be found

            def show(s: Shown) -> str:
                overlay, stopped = self._overlay(s, epoch, overlays)
                frame = partial(self._frame, pooled.session, s, overlay)
                pooled.show(s.relation.name, self._what_is_shown(s, overlay), frame)
                return stopped

            warnings += tuple(stopped for stopped in in_parallel(pooled.session, show, meant) if stopped)
            if require_complete and warnings:
                raise _incomplete(warnings)
            yield Pinned(pooled, epoch, met.age_s, meant, warnings, self._home, self.overlays, overlays)
            pooled.only(names_shown)  # views of changelogs are not kept

    def names(self) -> list[str]:
        """The names of all tables and materialized views."""
        with self._home.meta.read() as c:
            return [r.name for r in relations.named(c)]

    def rows(self, name: str) -> tuple[DataFrame, list[Behind], list[str]]:
        """One relation at the newest epoch that has it, how old it is, and what is missing from it, as text.

        Its files are kept until `close()`, for an hour at most.
        """
        met, found = self._in_use.enter_context(self._pin("frame", {name.lower()}))
        if not found:
            raise unknown_name("table", name, self.names())
        with self._home.meta.read() as c:
            old = behind(c, self._home.live.server, changes_of.connections_of(c, [found[0].relation]))
        overlay, stopped = self._overlay(found[0], met.epoch, self._in_use)
        missing = [text for text in (found[0].warning(), stopped) if text]
        return self._frame(self._root(), found[0], overlay), old, missing

    @contextmanager
    def at_epoch(self, names: Collection[str]) -> Iterator[tuple[Epoch, tuple[Shown, ...]]]:
        """The epoch of `pinned`, and the relations among `names` (lower case) as it shows them."""
        with self._pin("reader", names) as (met, seen):
            yield met.epoch, seen

    @contextmanager
    def session_for(self, job: str) -> Iterator[SparkSession]:
        """A session for a job of the server, in the scheduler pool of its name."""
        with self._pool().use() as pooled, pool(pooled.session, job):
            yield pooled.session

    @contextmanager
    def at(self, relation: RelationInfo, layout: Layout, index: int) -> Iterator[DataFrame]:
        """A relation with a given layout at a given index, for a caller that has pinned both."""
        with self._pool().use() as pooled, self.overlays.use(relation, layout, index) as overlay:
            yield dataframe(pooled.session, self._home.storage, relation, layout, overlay)

    @contextmanager
    def _pin(self, owner: str, names: Collection[str]) -> Iterator[tuple[Met, tuple[Shown, ...]]]:
        """The epoch at which the names are read, with their layouts, read in the transaction that pins it."""
        deadline = time.monotonic() + MEET_S
        while (taken := self._take_pin(owner, names)) is None:
            if self._home.live.server is None or time.monotonic() > deadline:
                with self._home.meta.read() as c:
                    raise no_common_version(relations.named(c), names)
            time.sleep(LOOK_S)  # a view was just replaced, and those over it will follow
        pin, met, seen = taken
        try:
            yield met, seen
        finally:
            with self._home.meta.write() as c:
                epochs.release_pin(c, pin)

    def _take_pin(self, owner: str, names: Collection[str]) -> tuple[int, Met, tuple[Shown, ...]] | None:
        with self._home.meta.write() as c:
            known = relations.named(c)
            check_filled(c, known, names)
            met = meet(c, known, names)
            if met is None:
                return None
            epoch = met.epoch
            pin = epochs.take_pin(c, epoch.id, f"{owner}:{os.getpid()}")
            # only what the statement names: a home may have thousands of tables, and this holds meta's write lock
            seen, meant = list[Shown](), [met.instead.get(r.id, r) for r in known if r.name.lower() in names]
            found = progress.of_all(c) if meant else {}
            for relation in meant:
                # Tables of a block become visible at the same epoch: until then none of them has a layout here.
                layout = None if relation.block else epochs.layout_at(c, relation.id, epoch.id)
                others = [r for r in relations.in_block(c, relation.block) if r.state is not TableState.LIVE]
                waits_for = tuple(r.name for r in others) if relation.state is TableState.LIVE else ()
                seen.append(Shown(relation, layout, found[relation.id].share, waits_for))
        return pin, met, tuple(seen)

    def _overlay(self, s: Shown, epoch: Epoch, overlays: ExitStack) -> tuple[Overlay | None, str]:
        """The overlay at an epoch (None: nothing is readable), and what is missing from the table, as text."""
        relation, layout, stopped = s.relation, s.layout, ""
        if layout is None or not layout.spans:
            return None, ""
        index = epoch.index_for(relation)
        if relation.state is TableState.FAILED and relation.view is None:  # reported by `warning`
            index = self._last_shown(relation, layout, index)
        try:
            overlay = overlays.enter_context(self.overlays.use(relation, layout, index))
        except DataError as e:
            if not e.readable_before:
                raise
            stopped = f"{relation.name}: stopped: {e.message}"  # its state is not FAILED yet
            index = self._last_shown(relation, layout, index)
            overlay = overlays.enter_context(self.overlays.use(relation, layout, index))
        holes = overlay.holes.num_rows
        if not holes:
            return overlay, stopped
        hidden = "it is" if not relation.ordered else f"{holes} of its rows are"
        text = f"{relation.name}: {hidden} hidden until scanned again"
        return (overlay if relation.ordered else None), stopped or text

    def _frame(self, session: SparkSession, s: Shown, overlay: Overlay | None) -> DataFrame:
        if overlay is None or s.layout is None:
            return shown(s.relation, empty(session, s.relation))
        return shown(s.relation, dataframe(session, self._home.storage, s.relation, s.layout, overlay))

    def _what_is_shown(self, s: Shown, overlay: Overlay | None) -> object:
        """A value that is equal for the same rows from the same files; checks that these exist."""
        if overlay is None or s.layout is None:
            return s.relation.columns
        files = few_files(self._home.storage, s.relation.base_path, s.layout.base_version)
        return s.relation, s.layout, overlay.layers, overlay.emptied, files

    def _last_shown(self, relation: RelationInfo, layout: Layout, index: int) -> int:
        """The index at which a stopped table is read; raises if its spans are not consistent there."""
        last = self.last_readable(relation, layout, index)
        if not layout.settled and last < max(s.cover_index for s in layout.spans):
            raise DataError(
                "data.history_missing",
                f"{relation.name} stopped before its scans could be made consistent",
                f"RESYNC TABLE {relation.name} reads it again.",
            )
        return last

    def last_readable(self, relation: RelationInfo, layout: Layout, index: int) -> int:
        """The last index, at a transaction boundary, at which a stopped table is readable."""
        if relation.stopped_at is not None:
            return relation.stopped_at
        start = layout.overlay_start(relation)
        with self._home.meta.read() as c:
            versions = changes_of.schemas(c, relation)
        last = decodable_until(versions, relation.columns, relation.key, start, index)
        if last < index:
            last = max(start, self._before_transaction(changes_of.connection_of(relation), last + 1, index))
        try:
            with self.overlays.use(relation, layout, last):
                return last
        except DataError as e:  # a change is unrepresentable, or no longer there: only the base is left
            if e.needs_resync and not layout.settled:
                raise  # its spans were scanned at different times, and only the changelog could reconcile them
            return layout.index_for(relation)

    def _before_transaction(self, connection_id: int, index: int, upto: int) -> int:
        """The last index before the transaction that holds `index` and ends at or before `upto`."""
        with self._home.meta.read() as c:
            around = segments.in_range(c, connection_id, index - 1, upto)
        for segment in around:  # the segment that completes a transaction lists it
            found = read_transactions(self._home.storage, [segment.path])
            holding = pc.and_(pc.less_equal(found["first_index"], index), pc.greater_equal(found["last_index"], index))
            for first in found.filter(holding)["first_index"].to_pylist():
                return int(first) - 1
        return index - 1

    def holes(self, relation: RelationInfo, layout: Layout, index: int) -> pa.Table:
        """The keys of rows that neither a change nor the base can complete: they must be scanned again."""
        with self.overlays.use(relation, layout, index) as overlay:
            lost = self.lost_rows(relation, layout, overlay)
            return overlay.holes if lost is None else pa.concat_tables([overlay.holes, lost.cast(overlay.holes.schema)])

    def lost_rows(self, relation: RelationInfo, layout: Layout, overlay: Overlay) -> pa.Table | None:
        """Keys of rows that only a change without all values brought in, and no scan has read."""
        if not relation.partial or not any(layer.missing for layer in overlay.layers):
            return None
        with self._pool().use() as pooled:
            base = base_at(pooled.session, self._home.storage, relation, layout, overlay)
            keys = lost(relation, base, layers(pooled.session, self._home.storage, relation, overlay))
            return None if keys is None else keys.toArrow()

    def close(self) -> None:
        """Releases everything that frames hold."""
        self._in_use.close()

    def _pool(self) -> Sessions:
        root = self._root()
        with self._lock:
            if self._sessions is None or self._sessions.root is not root:  # Spark may have been restarted
                self._sessions = Sessions(root)
            return self._sessions

    def _report(self, relation: RelationInfo, changes: DecodedChanges, before: int, upto: int) -> None:
        """Counts unrepresentable values, and notes columns that the upstream has added; once per change."""
        with self._home.meta.write() as c:
            if not relations.count_to(c, relation.id, before, upto):
                return  # another reader was first
            for column, count in changes.unrepresentable.items():
                text = f"column {column}: values that the lake cannot represent are NULL"
                relations.note(c, relation.id, "value.unrepresentable", text, count)
            for text in changes.notices:
                relations.note(c, relation.id, "table.notice", text)


def _incomplete(warnings: tuple[str, ...]) -> DefinitionError:
    return DefinitionError(
        "table.incomplete",
        "; ".join(warnings),
        "Wait until `headwater status` shows it live, then retry.",
    )
