"""Inputs between two epochs, as the algebra reads them: before, after, and the signed change."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headwater.decode.values import arrow_schema
from headwater.engine.query.between import At, Frames, ddl
from headwater.engine.query.deltas import Delta, Deltas, Signed
from headwater.engine.spark.jobs import plan
from headwater.meta import changes as changes_of
from headwater.meta import runs
from headwater.model import CoveredSpan, Layout, Span
from headwater.relation.changes import check_history
from headwater.relation.keys import equal
from headwater.relation.layers import read_layer
from headwater.relation.near import near
from headwater.relation.overlay import Overlay
from headwater.relation.read import layers, resolved
from headwater.relation.schema import UPSERT, overlay_schema, quoted
from headwater.source.names import FROM_KEYS, OP
from headwater.view.images import Went, went
from headwater.view.reading import shown_rows
from headwater.view.shape import WEIGHT
from headwater.view.signed import Change, read_change, signed_rows, telescoped

FEW_ROWS = 200_000  # the signed rows of so many keys fit into memory; more are looked up in the plan that needs them


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
    """A table between two epochs: a layer of its changes over its rows at the first one.

    `columns` are those that anybody needs; None: all.
    """

    frames: Frames
    deltas: Deltas
    before: At
    after: At
    columns: frozenset[str] | None = None
    changed: bool = True
    append_only: bool = False
    rows: int = 0
    _delta: Delta | None = None
    _signed: DataFrame | None = None

    def pre(self) -> DataFrame:
        return self.frames.of(self.before)

    def post(self) -> DataFrame:
        return self.frames.of(self.after)

    def prepare(self) -> None:
        """Finds the signed rows, or lets another view that takes the same step find them."""
        relation = self.before.relation
        step = relation.id, relation.schema_version, self.before.index, self.after.index, self.columns
        self._delta = self.frames.stack.enter_context(self.deltas.use(step, self._find))
        self.rows, self.append_only = self._delta.rows, self._delta.append_only

    def delta(self) -> DataFrame:
        if self._signed is None:
            assert self._delta is not None, "prepared first"
            if self._delta.path:
                self._signed = self.frames.signed(self.before.relation, self._delta.path)
            else:
                assert self._delta.went is not None
                overlay = self.frames.stack.enter_context(self._overlay())
                self._signed = self._looked_up(overlay, self._delta.went)
        return self._signed

    def _find(self) -> Signed:
        """Reads the changes once; removed rows are looked up only where the log lacks them."""
        relation = self.before.relation
        slices = self.deltas.overlays.changes.slices(
            relation, self.before.index, self.after.index, before=True, apart=True
        )
        found = went((s.table for s in slices), relation.columns, relation.key)
        with self.frames.home.meta.read() as c:  # afterwards: changes that exist now existed then
            check_history(c, relation, self.before.index, self.after.index)
        if relation.partial:  # a row may enter it with any change, and leave it with any
            found = Went(found.rows.slice(0, 0), found.touched, found.touched)
        append_only = not found.rows.num_rows and not found.unknown.num_rows
        rows = found.touched.num_rows + found.rows.num_rows + found.unknown.num_rows
        if found.touched.num_rows > FEW_ROWS:
            return Signed(rows, append_only, None, found)
        with self._overlay() as overlay:
            signed = self._logged(overlay, found)
            if signed is None:
                names = [c.name for c in relation.columns if self.columns is None or c.name in self.columns]
                looked_up = self._looked_up(overlay, found).select(*map(quoted, names), WEIGHT)
                schema = arrow_schema([c for c in relation.columns if c.name in names])
                signed = plan(looked_up).toArrow().cast(schema.append(pa.field(WEIGHT, pa.int32())))
        return Signed(rows, append_only, signed)

    def _overlay(self) -> AbstractContextManager[Overlay]:
        """The changes as layers over the table as it was."""
        relation, index = self.before.relation, self.before.index
        over = CoveredSpan(Span(None, None), index, index, (), changes_of.connection_of(relation))
        layout = Layout(relation.id, self.before.layout.base_version, (over,), True, relation.schema_version)
        return self.deltas.overlays.use(relation, layout, self.after.index)

    def _logged(self, overlay: Overlay, found: Went) -> pa.Table | None:
        """The signed rows, if the log alone has them."""
        relation, storage = self.before.relation, self.frames.home.storage
        if found.unknown.num_rows or relation.partial or any(layer.missing for layer in overlay.layers):
            return None
        if len(overlay.layers) > 1:
            return None
        came = [read_layer(storage, relation, layer.path) for layer in overlay.layers]
        layer = came[0] if came else overlay_schema(relation.columns, relation.key).empty_table()
        return signed_rows(relation, Change(layer, found.rows))

    def _looked_up(self, overlay: Overlay, found: Went) -> DataFrame:
        """The signed rows; what the log lacks is taken from the table as it was."""
        relation, session, storage = self.before.relation, self.frames.session, self.frames.home.storage
        columns = [quoted(c.name) for c in relation.columns]
        laid = layers(session, storage, relation, overlay)
        missing = any(layer.missing for layer in overlay.layers)
        old = self._near(found.touched) if missing or found.unknown.num_rows else None
        came = [rows.where(f"{OP} = {UPSERT}") for rows in resolved(relation, old, laid)]
        signed = [rows.selectExpr(*columns, f"1 AS {WEIGHT}") for rows in came]
        signed += [rows.selectExpr(*columns, f"-1 AS {WEIGHT}") for rows in self._went_rows(found, old)]
        if not signed:
            return self.pre().where("FALSE").selectExpr(*columns, f"1 AS {WEIGHT}")
        return reduce(DataFrame.unionAll, signed)

    def _near(self, keys: pa.Table) -> DataFrame:
        """The table as it was, without files that have none of these keys."""
        found = near(self.frames.home.storage, self.before.relation, self.before.layout.base_version, keys)
        return self.pre() if found is None else self.pre().where(found)

    def _went_rows(self, of: Went, old: DataFrame | None) -> list[DataFrame]:
        """The removed rows: from the log where it has them, the others from the relation as it was."""
        found = [self._read(of.rows)] if of.rows.num_rows else []
        if of.unknown.num_rows:
            assert old is not None
            named = [(f"{FROM_KEYS}{i}", c) for i, c in enumerate(self.before.relation.key_columns)]
            keys = self._read(of.unknown).selectExpr(*(f"{quoted(c.name)} AS {name}" for name, c in named))
            matches = " AND ".join(equal(quoted(c.name), name, c) for name, c in named)
            found.append(old.join(fn.broadcast(keys), fn.expr(matches), "left_semi"))
        return found

    def _read(self, rows: pa.Table) -> DataFrame:
        """Rows with some of the table's columns as Spark reads them."""
        (path,) = self.frames.stack.enter_context(self.deltas.overlays.written([rows]))
        return self.frames.read(ddl(self.before.relation), path)


@dataclass(slots=True)
class MovedView:
    """A view between two of its versions: its runs, which have both images of every changed row."""

    frames: Frames
    deltas: Deltas
    before: At
    after: At
    changed: bool = True
    append_only: bool = False
    rows: int = 0
    _delta: Delta | None = None
    _signed: DataFrame | None = None

    def pre(self) -> DataFrame:
        return self.frames.of(self.before)

    def post(self) -> DataFrame:
        return self.frames.of(self.after)

    def prepare(self) -> None:
        """Reads the runs between the two versions, or lets another view do it."""
        relation = self.before.relation
        step = relation.id, relation.schema_version, self.before.index, self.after.index
        self._delta = self.frames.stack.enter_context(self.deltas.use(step, self._find))
        self.rows, self.append_only = self._delta.rows, self._delta.append_only

    def delta(self) -> DataFrame:
        if self._signed is None:
            assert self._delta is not None, "prepared first"
            relation = self.before.relation
            self._signed = shown_rows(relation, self.frames.signed(relation, self._delta.path))
        return self._signed

    def _find(self) -> Signed:
        relation, storage = self.before.relation, self.frames.home.storage
        with self.frames.home.meta.read() as c:
            between = runs.live(c, relation.id, self.before.index, self.after.index)
        change = telescoped(relation, [read_change(storage, relation, run) for run in between])
        signed = signed_rows(relation, change)
        return Signed(signed.num_rows, not change.before.num_rows, signed)
