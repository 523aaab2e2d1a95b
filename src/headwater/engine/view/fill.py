"""Fills a view from its inputs at one epoch, in slices that each finish for good.

A slice is a span of the view's relation in meta: pending, scanning, scanned, then settled once the committer has added
its files to the base. A crash repeats at most the slices in flight, whatever the parallelism was or will be.

Where aggregates can be added up, the files of slices hold partial rows and never enter the base. One more span, the
last, stands for the step that makes the view of them; like a slice it is done or not, and can be repeated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType
from sqlalchemy.engine import Connection

from headwater import crash
from headwater.backfill.files import FileWriter, scan_label
from headwater.decode.values import arrow_schema, arrow_type
from headwater.engine.home import Home
from headwater.engine.query.between import At, Frames, at, unready
from headwater.engine.query.read import Reader
from headwater.engine.spark.jobs import pool
from headwater.engine.view.anew import begin_again
from headwater.engine.view.definition import Trees
from headwater.engine.view.refusal import refused
from headwater.meta import epochs, intents, relations, spans, views
from headwater.meta.views import Fill
from headwater.model import Bound, DataFile, Epoch, RelationInfo, ScanResult, Span, SpanInfo, SpanState, TableState
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit
from headwater.relation import base
from headwater.relation.keys import literal
from headwater.relation.read import escaped
from headwater.relation.schema import CLUSTER, ordering, quoted
from headwater.storage import Storage
from headwater.view import combined, partial, recompute, shape
from headwater.view.slices import Slices, slice_of, slices

POOL = "fills"
ROWS_PER_SLICE = 5_000_000  # of the largest input: each slice reads the other inputs again
MOST_SLICES = 1_000


def slice_spans(count: int) -> list[Span]:
    """The spans that stand for slices 0 to count - 1, in order and without gaps."""
    bounds = [None, *(Bound((str(i),)) for i in range(1, count)), None]
    return [Span(lo, hi) for lo, hi in pairwise(bounds)]


def slice_number(span: Span) -> int:
    """Which slice a span stands for."""
    return 0 if span.lo is None else int(span.lo.key[0])


def waits_for(c: Connection, relation: RelationInfo) -> str:
    """What a view must wait for before it can be filled; empty: nothing."""
    assert relation.view is not None
    for id in relation.view.inputs:
        found = unready(c, relations.get(c, id))
        if found:
            return found
    return ""


def startable(c: Connection, relation: RelationInfo, most: int) -> list[SpanInfo]:
    """The slices that can be computed now; the step that makes the view of partial rows waits for all of them."""
    fill, counts = views.fill(c, relation.id), spans.counts(c, relation.id)
    left = counts.get(SpanState.PENDING, 0) + counts.get(SpanState.SCANNING, 0)
    found = spans.pending(c, relation.id, most)
    if fill is not None and fill.partial and left > 1:
        return [s for s in found if slice_number(s.span) < fill.slices]
    return found


class Filler:
    """Plans fills and writes slices. Thread-safe for different slices."""

    def __init__(self, home: Home, leases: Leases, reader: Reader, trees: Trees) -> None:
        self._home = home
        self._leases = leases
        self._reader = reader
        self._trees = trees

    def begin(self, relation: RelationInfo) -> str:
        """Fixes epoch and slices, and creates the base; returns what it has to wait for instead, as text."""
        way = slices(self._trees.of(relation))  # analysed first: this may fail
        version = base.create(self._home.storage, relation)
        with self._home.meta.owned(self._lease(relation)) as c:
            now = relations.get_or_none(c, relation.id)
            if now is None:
                return ""  # dropped meanwhile
            relation = now  # RESYNC may have replaced an input meanwhile
            waits = waits_for(c, relation)
            epoch = None if waits else _common_epoch(c, relation)
            if epoch is None:
                return waits or "its inputs to meet at an epoch"
            relations.set_base_version(c, relation.id, version)
            fill = self._cut(c, relation, epoch, way)
            views.set_fill(c, relation.id, fill)
            spans.add(c, relation.id, slice_spans(fill.slices + fill.partial), 0.0)
            relations.set_planned(c, relation.id, True)
            relations.set_state(c, relation.id, TableState.FILLING)
        return ""

    def _cut(self, c: Connection, relation: RelationInfo, epoch: Epoch, way: Slices) -> Fill:
        """How many slices, by the rows of the largest input, and what they are slices of."""
        assert relation.view is not None
        inputs = [relations.get(c, id) for id in relation.view.inputs]
        rows = {r.id: spans.rows(c, r.id) for r in inputs}
        wanted = int(relation.options.get("backfill.rows_per_span", ROWS_PER_SLICE))
        # an input that cannot be cut is read again by each slice, so a large one is no reason for more slices
        cut = [r for r in inputs if not way.inputs or r.name in way.inputs]
        largest = max(cut, key=lambda r: rows[r.id])
        count = max(1, min(MOST_SLICES, math.ceil(rows[largest.id] / wanted)))
        if way.kind == "one" or count == 1:
            return Fill(epoch.id, 1)
        if way.kind == "hash":
            return Fill(epoch.id, count)
        found = at(c, largest, epoch)
        cuts = () if found is None else _cuts(self._home.storage, found, count)
        return Fill(epoch.id, len(cuts) + 1 if cuts else count, largest.id, cuts, way.kind == "merge")

    def write(self, relation: RelationInfo, slice: SpanInfo) -> int:
        """Writes one slice and records it; returns its rows. On an error the slice becomes pending again."""
        lease = self._lease(relation)
        with self._home.meta.owned(lease) as c:
            now = relations.get_or_none(c, relation.id)
            if now is None:
                return 0
            relation = now  # RESYNC may have replaced an input meanwhile
            spans.set_state(c, slice.id, SpanState.SCANNING)
            fill = views.fill(c, relation.id)
            assert fill is not None and relation.view is not None
            epoch = epochs.get(c, fill.epoch)
            assert epoch is not None, "the epoch of a fill is kept"
            inputs = [at(c, relations.get(c, id), epoch) for id in relation.view.inputs]
            whole = [x for x in inputs if x is not None]
            # an input was replaced: the new one has no rows at that epoch, or is not the one that slices are cut by
            if len(whole) < len(inputs) or (fill.input and fill.input not in relation.view.inputs):
                return self._start_over(c, relation)
            parts = spans.uncovered(c, relation.id) if slice_number(slice.span) == fill.slices else []
        try:
            names = [f"{relation.base_path}/{f.path}" for part in parts for f in part.files]
            files = self._written(relation, fill, slice, whole, names, lease)
        except BaseException:
            with self._home.meta.owned(lease) as c:
                spans.give_up(c, slice.id)
            raise
        crash.here("view.slice_written")
        rows = sum(f.rows for f in files)
        with self._home.meta.owned(lease) as c:
            if relations.get_or_none(c, relation.id) is not None:
                spans.scanned(c, slice.id, ScanResult("", "", files, rows), fill.epoch, "")
        crash.here("view.slice_recorded")
        return rows

    def _start_over(self, c: Connection, relation: RelationInfo) -> int:
        """Lets the fill begin again at a newer epoch; with a new base if this one has, or is about to have, slices."""
        if spans.readable(c, relation.id) or intents.all(c, relation.id):
            begin_again(c, relations.get(c, relation.id))
            return 0
        spans.remove_all(c, relation.id)
        views.set_fill(c, relation.id, None)
        relations.set_planned(c, relation.id, False)
        relations.set_state(c, relation.id, TableState.DEFINED)
        return 0

    def _written(
        self, relation: RelationInfo, fill: Fill, slice: SpanInfo, inputs: list[At], parts: list[str], lease: Lease
    ) -> tuple[DataFile, ...]:
        """The files of a slice, or, at the end of a fill by partial aggregates, of the view that these `parts` make."""
        with self._reader.session_for(POOL) as session, ExitStack() as stack, pool(session, POOL):
            frames = Frames(session, self._home, self._reader.overlays, stack)
            tree, number = self._trees.of(relation), slice_number(slice.span)
            last = fill.partial and number == fill.slices
            whole = {x.relation.name: frames.of(x) for x in inputs}
            mine = {x.relation.name: slice_rows(whole[x.relation.name], x.relation, fill, number) for x in inputs}
            if last:
                addresses = [escaped(self._home.storage.address(path)) for path in parts]
                schema = partial(tree, whole).schema
                written = session.read.schema(schema).parquet(*addresses) if parts else _no_rows(session, schema)
                rows = combined(tree, whole, written)
            else:
                rows = (partial if fill.partial else recompute)(tree, mine)
            if fill.slices > 1 and not fill.input:
                rows = slice_of(shape(tree), rows, number, fill.slices)
            loose = fill.partial and not last
            task = _Write(self._home.storage, relation, lease.permit, scan_label(slice.id), loose)
            try:
                return task.over(rows if loose else _sorted(relation, rows))
            except (PySparkException, Py4JError) as e:
                raise refused(relation, e) from e

    def _lease(self, relation: RelationInfo) -> Lease:
        return self._leases.of(Name.relation(relation.id))


def _common_epoch(c: Connection, relation: RelationInfo) -> Epoch | None:
    """The newest barrier at which every input is whole."""
    assert relation.view is not None
    inputs = [relations.get(c, id) for id in relation.view.inputs]
    for barrier in reversed(views.barriers(c)):
        epoch = epochs.get(c, barrier.epoch)
        if epoch is not None and all(at(c, r, epoch) is not None for r in inputs):
            return epoch
    return None


def _cuts(storage: Storage, found: At, count: int) -> tuple[int, ...]:
    """Where ranges of the first key column begin that have about equally many files; empty: it has no ranges."""
    column = found.relation.key_columns[0]
    files = base.ranges(storage, found.relation.base_path, column.name) if column.lake_type in base.RANGED else None
    if files is None or files.num_rows < count:
        return ()
    lows = np.sort(base.as_numbers(files["low"]).to_numpy())
    places = [round(i * len(lows) / count) for i in range(1, count)]
    return tuple(dict.fromkeys(int(lows[i]) for i in places if lows[i] > lows[0]))


def slice_rows(rows: DataFrame, relation: RelationInfo, fill: Fill, number: int) -> DataFrame:
    """What a slice reads of an input: all of it, unless slices are of this input's rows."""
    if relation.id != fill.input or number == fill.slices:
        return rows
    if not fill.cuts:
        digest = fn.xxhash64(*(fn.col(quoted(k)) for k in relation.key))
        return rows.where(fn.pmod(digest, fn.lit(fill.slices)) == number)
    column = relation.key_columns[0]
    own, type = fn.col(quoted(column.name)), arrow_type(column.lake_type)
    bounds = [
        literal(pa.scalar(cut, _NUMBER.get(column.lake_type, type)).cast(type), column.lake_type) for cut in fill.cuts
    ]
    if number == 0:
        return rows.where(own.isNull() | (own < bounds[0]))
    above = own >= bounds[number - 1]
    return rows.where(above if number == len(bounds) else above & (own < bounds[number]))


_NUMBER = {"DATE": pa.int32()}  # days since 1970


def _no_rows(session: SparkSession, schema: StructType) -> DataFrame:
    return session.createDataFrame([], schema)


def _sorted(relation: RelationInfo, rows: DataFrame) -> DataFrame:
    """Ordered within each task, so that files have narrow ranges; with cluster.by the tasks have ranges, too."""
    columns = [fn.col(quoted(c.name)) for c in ordering(relation)]
    if columns and relation.options.get(CLUSTER):
        rows = rows.repartitionByRange(*columns)
    return rows.sortWithinPartitions(*columns) if columns else rows


@dataclass(frozen=True, slots=True)
class _Write:
    """Writes rows to files next to a base, in Spark's tasks; `loose` ones have columns of their own."""

    storage: Storage
    relation: RelationInfo
    permit: Permit
    label: str
    loose: bool

    def over(self, rows: DataFrame) -> tuple[DataFile, ...]:
        """The files that the rows are in."""
        named = rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))  # mapInArrow parses dots and backticks
        found = named.mapInArrow(self._in_task(rows.columns), "file string").collect()
        return tuple(DataFile(**json.loads(row["file"])) for row in found)

    def _in_task(self, names: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        storage, relation, permit, label = self.storage, self.relation, self.permit, self.label
        stored = None if self.loose else arrow_schema(relation.columns)

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            files: tuple[DataFile, ...] = ()
            batches = (b.rename_columns(names) for b in batches)
            first = next(batches, None)
            if first is not None:
                schema = first.schema if stored is None else stored
                key = relation.key if stored is not None else ()
                with FileWriter(storage, relation.base_path, schema, permit, label, key=key) as writer:
                    for batch in chain([first], batches):
                        for part in pa.Table.from_batches([batch]).cast(schema).to_batches():
                            writer.write(part)
                    files = writer.close()
            yield pa.RecordBatch.from_pydict({"file": pa.array([json.dumps(asdict(f)) for f in files], pa.string())})

        return write
