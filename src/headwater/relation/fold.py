"""The fold: one commit that moves an overlay into the base, at most once.

A base of some size is changed by a MERGE, at the cost of the change. A small one is written anew where that can be, as
a MERGE takes a dozen Spark jobs; and never gets deletion vectors, which make every later read ask Delta for its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from delta.tables import DeltaTable
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headwater.backfill.files import FileWriter
from headwater.decode.values import arrow_schema
from headwater.errors import JobError, Retry
from headwater.model import DataFile, Layout, RelationInfo, Span
from headwater.relation import base, read
from headwater.relation.keys import in_any, literal
from headwater.relation.overlay import Overlay, read_keys
from headwater.relation.schema import GONE, UPSERT, quoted
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.names import OP
from headwater.storage import Storage

MEASURED_ROWS = 1024  # at once
MOST_RANGES = 32  # an OR of more ranges costs the planner more than the files it skips


def fold(
    session: SparkSession,
    storage: Storage,
    relation: RelationInfo,
    layout: Layout,
    overlay: Overlay,
    app_id: str,
    version: int,
    conf: Mapping[str, str] | None = None,
    settings: Settings = DEFAULTS,
) -> int:
    """Moves the overlay into the base and gives the Delta version that holds it; once per (app_id, version).

    `conf` is for the session that does it.

    Afterwards the base holds the layout's covered spans as they are at the overlay's index. The caller is the base's
    only committer. A base that already has this fold is left alone.
    """
    done = base.transaction_commit(storage, relation.base_path, app_id, version)
    if done is not None or overlay.empty:
        return base.current_version(storage, relation.base_path) if done is None else done
    if overlay.holes.num_rows:
        raise must_scan_again(relation, overlay.holes.num_rows)
    own = session.newSession()  # the transaction's id is a setting of the session
    transaction = {
        "spark.databricks.delta.write.txnAppId": app_id,
        "spark.databricks.delta.write.txnVersion": str(version),
    }
    newest = base.current_version(storage, relation.base_path)
    few = base.few_files(storage, relation.base_path, newest)
    small = few if few is not None and few.bytes < settings.replaced_bytes else None
    if small:
        transaction["spark.databricks.delta.merge.deletionVectors.persistent"] = "false"
    for name, value in {"spark.sql.session.timeZone": "UTC", **(conf or {}), **transaction}.items():
        own.conf.set(name, value)
    exact = layout.complete and layout.base_version == newest  # the base holds what the layout shows, and nothing else
    if (
        small
        and exact
        and not small.marked
        and _fits(storage, relation, small, overlay, settings.replaced_memory_bytes)
    ):
        files = _write(own, storage, relation, layout, overlay)
        return base.replace_files(storage, relation.base_path, newest, files, app_id, version)
    _merge(own, storage, relation, layout, overlay)
    made = base.transaction_commit(storage, relation.base_path, app_id, version)
    # a MERGE that changes nothing makes no commit: the base is already what the fold would make it
    return base.current_version(storage, relation.base_path) if made is None else made


def must_scan_again(relation: RelationInfo, keys: int) -> JobError:
    """The error for a fold that would lose rows which are not complete."""
    return JobError(
        "job.failed",
        f"{keys} keys of {relation.name} must be scanned again before it can be folded",
        "Wait until the scan is done; it starts by itself.",
        Retry.AUTO,
    )


def remove(session: SparkSession, storage: Storage, relation: RelationInfo, spans: Sequence[Span]) -> int:
    """Deletes the rows of spans that are scanned again (all rows, where keys have no order here); safe to repeat."""
    target = DeltaTable.forPath(session, storage.address(relation.base_path))
    target.delete(in_any(spans, relation.key_columns) if relation.ordered else None)
    return base.current_version(storage, relation.base_path)


def _fits(storage: Storage, relation: RelationInfo, few: base.Few, overlay: Overlay, left: int) -> bool:
    """Whether base and overlay take no more memory than is left: values that repeat take no room in a file."""
    for path in (*(f"{relation.base_path}/{path}" for path in few.paths), *(layer.path for layer in overlay.layers)):
        with pq.ParquetFile(storage.open(path)) as file:
            for batch in file.iter_batches(batch_size=MEASURED_ROWS):
                left -= batch.nbytes
                if left < 0:
                    return False
    return True


def _write(
    session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay
) -> tuple[DataFile, ...]:
    """The relation as the overlay leaves it, in files next to its base."""
    rows = read.dataframe(session, storage, relation, layout, overlay).toArrow()
    schema = arrow_schema(relation.columns)
    with FileWriter(storage, relation.base_path, schema, key=relation.key, label="fold") as writer:
        for batch in rows.cast(schema).to_batches():
            writer.write(batch)
        return writer.close()


def _merge(session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay) -> None:
    source = _source(session, storage, relation, layout, overlay)
    target = DeltaTable.forPath(session, storage.address(relation.base_path)).alias("t")
    matches = [_of("t", k) == _of("s", f"__s{_ordinal(relation, k)}") for k in relation.key]
    ranges = None if overlay.emptied else _touched_ranges(storage, relation, overlay)
    if ranges is not None:
        matches.append(ranges)
    values: dict[str, str | Expression] = {quoted(c.name): _of("s", f"__s{i}") for i, c in enumerate(relation.columns)}
    merge = (
        target.merge(source.alias("s"), reduce(lambda a, b: a & b, matches))
        .whenMatchedDelete(_of("s", OP) == GONE)
        .whenMatchedUpdate(set=values)
        .whenNotMatchedInsert(_of("s", OP) == UPSERT, values=values)
    )
    if overlay.emptied:
        spans = [s.span for i, s in enumerate(layout.spans) if i in overlay.emptied]
        merge = merge.whenNotMatchedBySourceDelete(in_any(spans, relation.key_columns, "t"))
    merge.execute()


def _source(
    session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay
) -> DataFrame:
    """The overlay's rows with every value in place. The columns are renamed: the target has the same names."""
    stored = read.base_at(session, storage, relation, layout, overlay)
    frames = read.layers(session, storage, relation, overlay)
    rows = reduce(DataFrame.unionAll, read.resolved(relation, overlay, stored, frames) or [_no_rows(stored)])
    names = [fn.col(quoted(c.name)).alias(f"__s{i}") for i, c in enumerate(relation.columns)]
    return rows.select(*names, fn.col(OP))


def _no_rows(stored: DataFrame) -> DataFrame:
    """The source of a fold that only empties spans."""
    return stored.where(fn.lit(False)).withColumn(OP, fn.lit(GONE))


def _touched_ranges(storage: Storage, relation: RelationInfo, overlay: Overlay) -> Expression | None:
    """The first key column's ranges of the files that the overlay touches, so that MERGE skips the others.

    None when that would skip nothing, or when a file does not say its range. A range is what the file's statistics say,
    so a row outside of all ranges cannot have a key of the overlay.
    """
    column = relation.key_columns[0]
    if column.lake_type not in base.RANGED:
        return None
    keys = read_keys(storage, overlay, column.name)
    files = base.ranges(storage, relation.base_path, column.name)
    if files is None or not len(keys) or not files.num_rows:
        return None
    touched = _touched(keys, files)
    if touched.num_rows == files.num_rows:
        return None
    ranges = _merged(touched)
    if not ranges:
        return fn.lit(False)
    if len(ranges) > MOST_RANGES:
        ranges = [(ranges[0][0], ranges[-1][1])]
    of = _of("t", column.name)
    parts = [
        (of >= literal(pa.scalar(low, keys.type), column.lake_type))
        & (of <= literal(pa.scalar(high, keys.type), column.lake_type))
        for low, high in ranges
    ]
    return reduce(lambda a, b: a | b, parts)


def _touched(keys: pa.Array, files: pa.Table) -> pa.Table:
    """The files (low, high) in whose range any of the keys lies."""
    ordered = base.as_numbers(keys)
    sorted_keys = pc.sort_indices(ordered)
    places = ordered.take(sorted_keys).to_numpy()
    low, high = (base.as_numbers(files[name]).to_numpy() for name in ("low", "high"))
    hit = places.searchsorted(low, side="left") < places.searchsorted(high, side="right")
    return files.filter(pa.array(hit))


def _merged(files: pa.Table) -> list[tuple[Any, Any]]:
    """The files' ranges in order, overlapping ones made one."""
    result: list[tuple[Any, Any]] = []
    for low, high in sorted(zip(files["low"].to_pylist(), files["high"].to_pylist(), strict=True)):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def _of(alias: str, name: str) -> Expression:
    return fn.col(f"{alias}.{quoted(name)}")


def _ordinal(relation: RelationInfo, name: str) -> int:
    return next(i for i, c in enumerate(relation.columns) if c.name == name)
