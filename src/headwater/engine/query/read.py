"""Reads at one epoch: which relations a statement may mean, at which layout, pinned while it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy.engine import Connection

from headwater import crash
from headwater.changelog.reader import read_transactions
from headwater.decode.changes import Changes
from headwater.decode.layout import decodable_until
from headwater.engine.home import Home
from headwater.engine.query.changes import changelog_rows
from headwater.engine.query.queries import Running
from headwater.engine.results import Behind
from headwater.engine.spark.jobs import in_parallel, pool, share, task_settings
from headwater.engine.spark.sessions import Pooled, Sessions
from headwater.engine.status.freshness import behind
from headwater.errors import DataError, DefinitionError, unknown_name
from headwater.meta import epochs, lease, progress, relations, segments
from headwater.meta.lease import Lease
from headwater.model import Epoch, Layout, RelationInfo, Span, TableState
from headwater.relation import fold, runs
from headwater.relation.base import few_files
from headwater.relation.overlay import Overlay, Overlays
from headwater.relation.read import base_at, dataframe, empty, layers, lost

UNFOLLOWABLE = ("data.schema_changed", "data.rewritten")  # from some change on; what lies before it can be read


@dataclass(frozen=True, slots=True)
class Seen:
    """A relation as an epoch shows it; without a layout nothing of it may be read yet."""

    relation: RelationInfo
    layout: Layout | None
    covered: float  # share of its spans
    waits_for: tuple[str, ...] = ()  # tables of its block that are not complete

    def warning(self) -> str:
        """What its rows do not hold yet, in words; empty when they are all there."""
        if self.relation.state is TableState.FAILED:
            return f"{self.relation.name}: stopped: {(self.relation.error or {}).get('message', '')}"
        if self.waits_for:
            return f"{self.relation.name}: readable together with {', '.join(self.waits_for)}"
        if self.layout is not None and self.layout.complete:
            return ""
        waits = "" if self.relation.ordered else " (its keys compare only in the database: readable when complete)"
        return f"{self.relation.name}: {self.covered * 100:.0f} % covered{waits}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """An epoch that is protected while the block runs, with a session in which its relations are views."""

    pooled: Pooled
    epoch: Epoch
    seen: tuple[Seen, ...]
    warnings: tuple[str, ...]
    home: Home

    @property
    def session(self) -> SparkSession:
        return self.pooled.session

    def behind(self, names: Collection[str] = ()) -> list[Behind]:
        """How old the relations are, by connection; `names` are connections that are read beside them."""
        with self.home.meta.read() as c:
            return behind(c, self.home.live.server, {s.relation.connection_id for s in self.seen}, names)

    def show_changelog(self, view: str, connection: str, table: str | None, first: int | None, last: int | None) -> str:
        """Makes a connection's changes a view of Debezium-shaped rows; returns the view's name."""
        rows = changelog_rows(self.home, self.epoch, connection, table, first, last)
        self.pooled.show(view, object(), lambda: self.session.createDataFrame(rows))
        return view


class Reader:
    """The way to read a home. `session` gives Spark, at the first read that needs it."""

    def __init__(self, home: Home, session: Callable[[], SparkSession]) -> None:
        self._home = home
        self._root = session
        self._sessions: Sessions | None = None
        self._lock = threading.Lock()
        self._held = ExitStack()
        self.overlays = Overlays(home.storage, home.meta, report=self._report, settings=home.settings)

    @contextmanager
    def pinned(
        self, names: Collection[str], *, require_complete: bool = False, query: Running | None = None
    ) -> Iterator[Pinned]:
        """A session whose temp views are the relations among `names` (lower case), all at the newest epoch.

        What is done in the session ends when the `query` is cancelled.
        """
        timed, sessions = self._home.live.counters.time("headwater_read_seconds"), self._pool()
        with timed, self.at_epoch(names) as (epoch, meant), sessions.use(query) as pooled, ExitStack() as overlays:
            warnings = tuple(w for w in (s.warning() for s in meant) if w)
            if require_complete and warnings:
                raise _incomplete(warnings)
            shown = {s.relation.name for s in meant}
            pooled.only(shown)  # a name that is none of ours any more must not be found

            def show(s: Seen) -> str:
                overlay, stopped = self._overlay(s, epoch, overlays)
                frame = partial(self._frame, pooled.session, s, overlay)
                pooled.show(s.relation.name, self._what_is_shown(s, overlay), frame)
                return stopped

            warnings += tuple(stopped for stopped in in_parallel(pooled.session, show, meant) if stopped)
            if require_complete and warnings:
                raise _incomplete(warnings)
            yield Pinned(pooled, epoch, meant, warnings, self._home)
            pooled.only(shown)  # the changes of a changelog are not kept

    def names(self) -> list[str]:
        """The tables that there are."""
        with self._home.meta.read() as c:
            return [r.name for r in relations.named(c)]

    def frame(self, name: str) -> tuple[DataFrame, list[Behind], list[str]]:
        """One relation at the newest epoch, how old that is, and what is not shown of it, in words.

        What it needs is kept until `close()` or an hour.
        """
        epoch, seen = self._held.enter_context(self._pin("frame"))
        found = [s for s in seen if s.relation.name.lower() == name.lower()]
        if not found:
            raise unknown_name("table", name, self.names())
        with self._home.meta.read() as c:
            old = behind(c, self._home.live.server, {found[0].relation.connection_id})
        overlay, stopped = self._overlay(found[0], epoch, self._held)
        missing = [told for told in (found[0].warning(), stopped) if told]
        return self._frame(self._root(), found[0], overlay), old, missing

    @contextmanager
    def at_epoch(self, names: Collection[str]) -> Iterator[tuple[Epoch, tuple[Seen, ...]]]:
        """The newest epoch, pinned, and the relations among `names` (lower case) as it shows them."""
        with self._pin("reader") as (epoch, seen):
            yield epoch, tuple(s for s in seen if s.relation.name.lower() in names)

    @contextmanager
    def at(self, relation: RelationInfo, layout: Layout, index: int) -> Iterator[DataFrame]:
        """A relation with a given layout at a given index, for a caller who has pinned both."""
        with self._pool().use() as pooled, self.overlays.use(relation, layout, index) as overlay:
            yield dataframe(pooled.session, self._home.storage, relation, layout, overlay)

    @contextmanager
    def _pin(self, owner: str) -> Iterator[tuple[Epoch, tuple[Seen, ...]]]:
        """The newest epoch with every relation's layout, read in the transaction that pins it."""
        with self._home.meta.write() as c:
            epoch = epochs.newest(c) or Epoch(0, 0.0, ())
            pin = epochs.take_pin(c, epoch.id, f"{owner}:{os.getpid()}")
            seen, found = [], progress.of_all(c)
            for relation in relations.named(c):
                # Tables of one block are shown from the same epoch on: until then none of them has a layout here.
                layout = None if relation.block else epochs.layout_at(c, relation.id, epoch.id)
                others = [r for r in relations.in_block(c, relation.block) if r.state is not TableState.LIVE]
                waits_for = tuple(r.name for r in others) if relation.state is TableState.LIVE else ()
                seen.append(Seen(relation, layout, found[relation.id].share, waits_for))
        try:
            yield epoch, tuple(seen)
        finally:
            with self._home.meta.write() as c:
                epochs.release_pin(c, pin)

    def _overlay(self, s: Seen, epoch: Epoch, overlays: ExitStack) -> tuple[Overlay | None, str]:
        """What lies over the base at an epoch, and what is not shown of it, in words; None: nothing of it is."""
        relation, layout, stopped = s.relation, s.layout, ""
        if layout is None or not layout.spans:
            return None, ""
        index = epoch.index_of(relation.connection_id)
        if relation.state is TableState.FAILED:  # its warning says so
            index = self._last_shown(relation, layout, index)
        try:
            overlay = overlays.enter_context(self.overlays.use(relation, layout, index))
        except DataError as e:
            if e.code not in UNFOLLOWABLE:
                raise
            stopped = f"{relation.name}: stopped: {e.message}"  # nobody has judged it yet
            index = self._last_shown(relation, layout, index)
            overlay = overlays.enter_context(self.overlays.use(relation, layout, index))
        holes = overlay.holes.num_rows
        if not holes:
            return overlay, stopped
        hidden = "it is" if not relation.ordered else f"{holes} of its rows are"
        told = f"{relation.name}: {hidden} hidden until read again"
        return (overlay if relation.ordered else None), stopped or told

    def _frame(self, session: SparkSession, s: Seen, overlay: Overlay | None) -> DataFrame:
        if overlay is None or s.layout is None:
            return empty(session, s.relation)
        return dataframe(session, self._home.storage, s.relation, s.layout, overlay)

    def _what_is_shown(self, s: Seen, overlay: Overlay | None) -> object:
        """Equal answers mean the same rows from the same files, and that these are there."""
        if overlay is None or s.layout is None:
            return s.relation.columns
        files = few_files(self._home.storage, s.relation.base_path, s.layout.base_version)
        return s.relation, s.layout, overlay.layers, overlay.emptied, files

    def _last_shown(self, relation: RelationInfo, layout: Layout, index: int) -> int:
        """Where a table that has stopped is read; an error if its spans are of different moments there."""
        last = self.last_readable(relation, layout, index)
        if not layout.settled and last < max(s.cover_index for s in layout.spans):
            raise DataError(
                "data.history_missing",
                f"{relation.name} stopped before what was read of it could be brought to one moment",
                f"RESYNC TABLE {relation.name} reads it anew.",
            )
        return last

    def last_readable(self, relation: RelationInfo, layout: Layout, index: int) -> int:
        """A table that has stopped stays readable as it was when it could last be followed, at whole transactions."""
        if relation.stopped_at is not None:
            return relation.stopped_at
        start = max(layout.log_index, relation.begin_index)
        with self._home.meta.read() as c:
            versions = segments.schemas(c, relation.connection_id, relation.upstream_id)
        last = decodable_until(versions, relation.columns, relation.key, start, index)
        if last < index:
            last = max(start, self._before_transaction(relation.connection_id, last + 1, index))
        try:
            with self.overlays.use(relation, layout, last):
                return last
        except DataError as e:  # a change cannot be kept, or is no longer there: the base is what there is
            if e.code == "data.history_missing" and not layout.settled:
                raise  # its spans are of different moments, and only the changelog could tell what lies between
            return layout.log_index

    def _before_transaction(self, connection_id: int, index: int, upto: int) -> int:
        """The last index before the transaction that holds `index` and ends at or before `upto`."""
        with self._home.meta.read() as c:
            around = segments.in_range(c, connection_id, index - 1, upto)
        for segment in around:  # it is told by the segment that completes it
            found = read_transactions(self._home.storage, [segment.path])
            holding = pc.and_(pc.less_equal(found["first_index"], index), pc.greater_equal(found["last_index"], index))
            for first in found.filter(holding)["first_index"].to_pylist():
                return int(first) - 1
        return index - 1

    def merge(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """Folds the overlay at `index` into the base; returns the Delta version that holds it."""
        with self.overlays.use(relation, layout, index) as overlay:
            self._refuse_lost(relation, layout, overlay)
            session, settings = self._root(), self._home.settings
            conf = task_settings(max(1, share(session) // 2))
            with pool(session, "folds"):
                return fold.fold(
                    session, self._home.storage, relation, layout, overlay, app_id, version, conf, settings
                )

    def remove(self, relation: RelationInfo, spans: list[Span]) -> int:
        """Takes the rows of spans that are read again out of the base; returns the Delta version."""
        return fold.remove(self._root(), self._home.storage, relation, spans)

    def make_run(self, relation: RelationInfo, layout: Layout, index: int, held: Lease) -> bool:
        """Makes a run of a settled relation's tail if it has grown long; True if it did."""
        meta, storage = self._home.meta, self._home.storage

        def check(c: Connection) -> None:
            crash.here("run.written")
            lease.check(c, held)

        limit = self._home.settings.tail_changes
        return runs.write(self.overlays, storage, meta, relation, layout, index, limit=limit, check=check) is not None

    def holes(self, relation: RelationInfo, layout: Layout, index: int) -> pa.Table:
        """The keys of rows that neither a change nor the base can complete: they must be scanned again."""
        with self.overlays.use(relation, layout, index) as overlay:
            lost = self._lost(relation, layout, overlay)
            return overlay.holes if lost is None else pa.concat_tables([overlay.holes, lost.cast(overlay.holes.schema)])

    def _lost(self, relation: RelationInfo, layout: Layout, overlay: Overlay) -> pa.Table | None:
        """Keys of rows that a change has brought in without all of their values, and that were never read."""
        if not relation.partial or not any(layer.missing for layer in overlay.layers):
            return None
        with self._pool().use() as pooled:
            base = base_at(pooled.session, self._home.storage, relation, layout, overlay)
            keys = lost(relation, overlay, base, layers(pooled.session, self._home.storage, relation, overlay))
            return None if keys is None else keys.toArrow()

    def _refuse_lost(self, relation: RelationInfo, layout: Layout, overlay: Overlay) -> None:
        """A fold would lose such rows for good."""
        found = self._lost(relation, layout, overlay)
        if found is not None and found.num_rows:
            raise fold.must_scan_again(relation, found.num_rows)

    def close(self) -> None:
        """Releases what frames have held."""
        self._held.close()

    def _pool(self) -> Sessions:
        root = self._root()
        with self._lock:
            if self._sessions is None or self._sessions.root is not root:  # Spark may have been started again
                self._sessions = Sessions(root)
            return self._sessions

    def _report(self, relation: RelationInfo, changes: Changes, before: int, upto: int) -> None:
        """Counts values that could not be kept, and notes columns that the upstream has added; each change once."""
        with self._home.meta.write() as c:
            if not relations.count_to(c, relation.id, before, upto):
                return  # another reader was first
            for column, count in changes.unkept.items():
                text = f"column {column}: values that the lake cannot keep are NULL"
                relations.note(c, relation.id, "value.unkept", text, count)
            for text in changes.notices:
                relations.note(c, relation.id, "table.notice", text)


def _incomplete(warnings: tuple[str, ...]) -> DefinitionError:
    return DefinitionError(
        "table.incomplete",
        "; ".join(warnings),
        "Wait until `headwater status` shows it live, then ask again.",
    )
