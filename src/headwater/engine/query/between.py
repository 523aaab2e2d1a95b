"""Relations at an epoch, and whether their recorded changes show how they got from one epoch to another."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations, views
from headwater.model import Delivery, Epoch, Layout, RelationInfo, TableState
from headwater.relation.overlay import Overlays
from headwater.relation.read import dataframe, escaped
from headwater.relation.schema import quoted
from headwater.view.reading import shown_rows
from headwater.view.shape import WEIGHT

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
    if relation.view is not None and not views.is_exact(c, relation.id, epoch.id):
        return None
    return At(relation, layout, epoch.index_for(relation))


def obstacle(c: Connection, relation: RelationInfo, last: Epoch, target: Epoch) -> str:
    """Why a relation's recorded changes do not show how it got from one epoch to another; empty: they do."""
    if at(c, relation, last) is None:
        return f"{relation.name} was not whole at the last refresh"
    if relation.view is not None:
        if relation.view.limit is not None or relation.view.offset:
            return f"{relation.name} has a LIMIT or OFFSET"
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

    def signed(self, relation: RelationInfo, path: str) -> DataFrame:
        """The signed rows in a file; columns that it lacks, because nobody needs them, are NULL."""
        return self.read(f"{ddl(relation)}, {WEIGHT} INT", path)

    def read(self, columns: str, path: str) -> DataFrame:
        """The rows of one of our files."""
        return self.session.read.schema(columns).parquet(escaped(self.home.storage.address(path)))


def ddl(relation: RelationInfo) -> str:
    """A relation's columns as Spark reads them from a file."""
    return ", ".join(f"{quoted(c.name)} {c.lake_type}" for c in relation.columns)
