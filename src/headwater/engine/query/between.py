"""Relations between two epochs, as the algebra reads them: before, after, and the signed change."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations, runs, views
from headwater.model import CoveredSpan, Delivery, Epoch, Layout, RelationInfo, Span, TableState
from headwater.relation.keys import same
from headwater.relation.overlay import Overlays
from headwater.relation.read import dataframe, layers, resolved
from headwater.relation.schema import UPSERT, quoted
from headwater.source.names import FROM_KEYS, OP
from headwater.view.images import Went, went
from headwater.view.reading import shown_rows
from headwater.view.shape import WEIGHT
from headwater.view.signed import read_change, signed_rows, telescoped

MOST_CHANGES = 1_000_000  # of an input in one step; beyond it the view is recomputed


@dataclass(frozen=True, slots=True)
class At:
    """A relation at one epoch."""

    relation: RelationInfo
    layout: Layout
    index: int


def at(c: Connection, relation: RelationInfo, epoch: Epoch) -> At | None:
    """The relation at an epoch; None if it is not whole there."""
    layout = epochs.layout_at(c, relation.id, epoch.id)
    if layout is None or not layout.complete or relation.block:
        return None
    if relation.view is not None and epoch.id not in views.versions_of(c, relation.id):
        return None
    return At(relation, layout, epoch.index_for(relation))


def obstacle(c: Connection, relation: RelationInfo, last: Epoch, target: Epoch) -> str:
    """Why the change of a relation between two epochs cannot be told from its changes; empty: it can."""
    if at(c, relation, last) is None:
        return f"{relation.name} was not whole at the last refresh"
    if relation.view is not None:
        if relation.view.limit is not None:
            return f"{relation.name} has a LIMIT"
    else:
        if relation.delivery is not Delivery.EXACTLY_ONCE:
            return f"{relation.name} has at-least-once delivery"
        since = [layout for epoch, layout in epochs.layouts_of(c, relation.id) if last.id < epoch <= target.id]
        if not all(layout.complete for layout in since):
            return f"part of {relation.name} was read again"
        if changes_of.truncates(c, relation, last.index_for(relation), target.index_for(relation)):
            return f"{relation.name} was truncated"
    if changes_of.count(c, relation, last.index_for(relation), target.index_for(relation)) > MOST_CHANGES:
        return f"{relation.name} has more than {MOST_CHANGES:,} changes"
    return ""


def unready(c: Connection, relation: RelationInfo) -> str:
    """What a view that reads the relation must wait for; empty: nothing."""
    newest = epochs.newest(c)
    if relation.state is TableState.FAILED:
        return f"{relation.name}: {(relation.error or {}).get('message', 'it has failed')}"
    layout = None if newest is None else epochs.layout_at(c, relation.id, newest.id)
    if relation.view is not None:
        return "" if views.last_version(c, relation.id) else f"{relation.name} to be filled"
    if relation.block:
        names = ", ".join(r.name for r in relations.in_block(c, relation.block) if r.state is not TableState.LIVE)
        return f"{names or relation.name} to be live"
    return "" if layout is not None and layout.complete else f"{relation.name} to be live"


@dataclass(slots=True)
class Frames:
    """DataFrames of relations in one session; what they need is kept until the block ends."""

    session: SparkSession
    home: Home
    overlays: Overlays
    stack: ExitStack
    _made: dict[tuple[int, Layout, int], DataFrame] = field(default_factory=dict)

    def of(self, at: At) -> DataFrame:
        """The rows that a query over the relation reads; hidden key columns included."""
        what = at.relation.id, at.layout, at.index
        if what not in self._made:
            self._made[what] = shown_rows(at.relation, self.stored(at))
        return self._made[what]

    def stored(self, at: At) -> DataFrame:
        """All stored rows and columns."""
        overlay = self.stack.enter_context(self.overlays.use(at.relation, at.layout, at.index))
        return dataframe(self.session, self.home.storage, at.relation, at.layout, overlay)


@dataclass(slots=True)
class Unchanged:
    """An input without changes between two epochs."""

    frames: Frames
    after: At
    changed: bool = False
    append_only: bool = True
    rows: int = 0

    def pre(self) -> DataFrame:
        return self.post()

    def post(self) -> DataFrame:
        return self.frames.of(self.after)

    def delta(self) -> DataFrame:
        raise AssertionError("an unchanged input has no delta")


@dataclass(slots=True)
class MovedTable:
    """A table between two epochs: a layer of its changes over its rows at the first one."""

    frames: Frames
    deltas: Overlays
    before: At
    after: At
    changed: bool = True
    append_only: bool = False
    rows: int = 0
    _went: Went | None = None
    _signed: DataFrame | None = None

    def pre(self) -> DataFrame:
        return self.frames.of(self.before)

    def post(self) -> DataFrame:
        return self.frames.of(self.after)

    def delta(self) -> DataFrame:
        if self._signed is None:
            self._signed = self._delta()
        return self._signed

    def prepare(self) -> None:
        """Reads the changes once: how many there are, and what the log tells of the rows that went."""
        relation = self.before.relation
        slices = self.deltas.changes.slices(relation, self.before.index, self.after.index, before=True, apart=True)
        found = went((s.table for s in slices), relation.columns, relation.key)
        if relation.partial:  # a row may enter it with any change, and leave it with any
            found = Went(found.rows.slice(0, 0), found.touched, found.touched)
        self._went = found
        self.append_only = not found.rows.num_rows and not found.unknown.num_rows
        self.rows = found.touched.num_rows + found.rows.num_rows + found.unknown.num_rows

    def _delta(self) -> DataFrame:
        relation, session, storage = self.before.relation, self.frames.session, self.frames.home.storage
        over = CoveredSpan(
            Span(None, None), self.before.index, self.before.index, (), changes_of.connection_of(relation)
        )
        layout = Layout(relation.id, self.before.layout.base_version, (over,), True, relation.schema_version)
        overlay = self.frames.stack.enter_context(self.deltas.use(relation, layout, self.after.index))
        columns = [fn.col(quoted(c.name)) for c in relation.columns]
        laid = layers(session, storage, relation, overlay)
        # only rows that lack a value need the rows from before
        old = self.pre() if any(layer.missing for layer in overlay.layers) else None
        came = [rows.where(fn.col(OP) == UPSERT).select(*columns) for rows in resolved(relation, old, laid)]
        signed = [rows.withColumn(WEIGHT, fn.lit(1)) for rows in came]
        signed += [rows.withColumn(WEIGHT, fn.lit(-1)) for rows in self._went_rows()]
        if not signed:
            return self.pre().where(fn.lit(False)).withColumn(WEIGHT, fn.lit(1))
        return reduce(DataFrame.unionAll, signed)

    def _went_rows(self) -> list[DataFrame]:
        """The rows that went: from the log where it has them, the others from the relation as it was."""
        relation, session, storage = self.before.relation, self.frames.session, self.frames.home.storage
        columns = [fn.col(quoted(c.name)) for c in relation.columns]
        found: list[DataFrame] = []
        assert self._went is not None, "prepared first"
        if self._went.rows.num_rows:
            paths = self.frames.stack.enter_context(self.deltas.written([self._went.rows]))
            rows = session.read.schema(_ddl(relation)).parquet(*(storage.address(p) for p in paths))
            found.append(rows.select(*columns))
        if self._went.unknown.num_rows:
            paths = self.frames.stack.enter_context(self.deltas.written([self._went.unknown]))
            keys = session.read.parquet(*(storage.address(p) for p in paths))
            renamed = keys.select(*(fn.col(quoted(k)).alias(f"{FROM_KEYS}{i}") for i, k in enumerate(relation.key)))
            equal = [
                same(fn.col(quoted(c.name)), fn.col(f"{FROM_KEYS}{i}"), c) for i, c in enumerate(relation.key_columns)
            ]
            condition = reduce(lambda a, b: a & b, equal)
            found.append(self.pre().join(fn.broadcast(renamed), condition, "left_semi").select(*columns))
        return found


@dataclass(slots=True)
class MovedView:
    """A view between two of its versions: its runs, which have both images of every changed row."""

    frames: Frames
    deltas: Overlays
    before: At
    after: At
    changed: bool = True
    append_only: bool = False
    rows: int = 0
    _signed: DataFrame | None = None

    def pre(self) -> DataFrame:
        return self.frames.of(self.before)

    def post(self) -> DataFrame:
        return self.frames.of(self.after)

    def prepare(self) -> None:
        """Reads the runs between the two versions."""
        relation, storage = self.before.relation, self.frames.home.storage
        with self.frames.home.meta.read() as c:
            between = runs.ending_in(c, relation.id, self.before.index, self.after.index)
        change = telescoped(relation, [read_change(storage, relation, run) for run in between])
        signed = signed_rows(relation, change)
        self.rows, self.append_only = signed.num_rows, not change.before.num_rows
        paths = self.frames.stack.enter_context(self.deltas.written([signed]))
        ddl = f"{_ddl(relation)}, {WEIGHT} INT"
        rows = self.frames.session.read.schema(ddl).parquet(*(storage.address(p) for p in paths))
        self._signed = shown_rows(relation, rows)

    def delta(self) -> DataFrame:
        assert self._signed is not None
        return self._signed


def _ddl(relation: RelationInfo) -> str:
    return ", ".join(f"{quoted(c.name)} {c.lake_type}" for c in relation.columns)
