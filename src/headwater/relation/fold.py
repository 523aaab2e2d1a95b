"""The fold: one commit that moves an overlay into the base, at most once.

A large base is changed by a MERGE, at a cost that depends on the overlay. A small one is rewritten where possible,
because a MERGE takes a dozen Spark jobs, and never gets deletion vectors, which force every later read through Delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from delta.tables import DeltaTable
from numpy.typing import NDArray
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headwater.backfill.files import FileWriter
from headwater.decode.values import arrow_schema
from headwater.errors import JobError, Retry
from headwater.model import DataFile, Layout, RelationInfo, Span
from headwater.ownership.permit import Permit
from headwater.relation import base, read
from headwater.relation.keys import in_any, literal, same
from headwater.relation.layers import groups
from headwater.relation.overlay import Overlay
from headwater.relation.schema import GONE, UPSERT, quoted
from headwater.relation.session import reading
from headwater.settings.table import DEFAULTS, Settings
from headwater.source.names import FROM_LAYER, OP
from headwater.storage import Storage

MEASURED_ROWS = 1024  # per batch
MOST_RANGES = 32  # an OR of more ranges costs the planner more than the files it skips


def fold(
    session: SparkSession,
    storage: Storage,
    relation: RelationInfo,
    layout: Layout,
    overlay: Overlay,
    app_id: str,
    version: int,
    permit: Permit,
    conf: Mapping[str, str] | None = None,
    settings: Settings = DEFAULTS,
) -> int:
    """Moves the overlay into the base and returns the Delta version that holds it; once per (app_id, version).

    `conf` configures the session that does it; `permit` covers the files it writes.

    Afterwards the base holds the layout's covered spans as of the overlay's index. The caller must be the base's only
    committer. A base that already has this fold is left alone.
    """
    done = base.transaction_commit(storage, relation.base_path, app_id, version)
    if done is not None or overlay.empty:
        return base.current_version(storage, relation.base_path) if done is None else done
    if overlay.holes.num_rows:
        raise must_scan_again(relation, overlay.holes.num_rows)
    base.ensure_unreached(storage, relation.base_path, app_id, version)
    own = reading(session)  # the transaction's id is a session setting
    transaction = _numbered(app_id, version)
    newest = base.current_version(storage, relation.base_path)
    few = base.few_files(storage, relation.base_path, newest)
    small = few if few is not None and few.bytes < settings.replaced_bytes else None
    if small:
        transaction["spark.databricks.delta.merge.deletionVectors.persistent"] = "false"
    for name, value in {**(conf or {}), **transaction}.items():
        own.conf.set(name, value)
    exact = layout.complete and layout.base_version == newest  # the base holds exactly what the layout shows
    if (
        small
        and exact
        and not small.marked
        and _fits(storage, relation, small, overlay, settings.replaced_memory_bytes)
    ):
        files = _write(own, storage, relation, layout, overlay, permit, fold_label(version))
        return base.replace_files(storage, relation.base_path, newest, files, app_id, version)
    _merge(own, storage, relation, layout, overlay)
    made = base.transaction_commit(storage, relation.base_path, app_id, version)
    if made is not None:
        return made
    # a MERGE that changes nothing makes no commit, and neither does one whose number has been reached
    base.ensure_unreached(storage, relation.base_path, app_id, version)
    return base.current_version(storage, relation.base_path)


def fold_label(version: int) -> str:
    """The prefix of the file names of the fold with this number."""
    return f"fold-{version}"


def _numbered(app_id: str, version: int) -> dict[str, str]:
    """Settings that make Delta number the commits of a session."""
    return {
        "spark.databricks.delta.write.txnAppId": app_id,
        "spark.databricks.delta.write.txnVersion": str(version),
    }


def must_scan_again(relation: RelationInfo, keys: int) -> JobError:
    """The error for a fold that would lose incomplete rows."""
    return JobError(
        "job.failed",
        f"{keys} keys of {relation.name} must be scanned again before it can be folded",
        "Wait until the scan is done; it starts automatically.",
        Retry.AUTO,
    )


def remove(
    session: SparkSession, storage: Storage, relation: RelationInfo, spans: Sequence[Span], app_id: str, version: int
) -> int:
    """Deletes the rows of spans that are being rescanned (all rows, if keys have no order here).

    Runs once per (app_id, version), and never after that number has passed: the new rows may be there by then.
    """
    own = reading(session)
    for name, value in _numbered(app_id, version).items():
        own.conf.set(name, value)
    target = DeltaTable.forPath(own, storage.address(relation.base_path))
    target.delete(in_any(spans, relation.key_columns) if relation.ordered else None)
    return base.current_version(storage, relation.base_path)


def _fits(storage: Storage, relation: RelationInfo, few: base.Few, overlay: Overlay, left: int) -> bool:
    """Whether base and overlay fit into the memory left. File sizes cannot tell: repeated values compress well."""
    for path in (*(f"{relation.base_path}/{path}" for path in few.paths), *(layer.path for layer in overlay.layers)):
        with pq.ParquetFile(storage.open(path)) as file:
            for batch in file.iter_batches(batch_size=MEASURED_ROWS):
                left -= batch.nbytes
                if left < 0:
                    return False
    return True


def _write(
    session: SparkSession,
    storage: Storage,
    relation: RelationInfo,
    layout: Layout,
    overlay: Overlay,
    permit: Permit,
    label: str,
) -> tuple[DataFile, ...]:
    """Writes the relation with its overlay applied to files next to its base."""
    rows = read.dataframe(session, storage, relation, layout, overlay).toArrow()
    schema = arrow_schema(relation.columns)
    with FileWriter(storage, relation.base_path, schema, permit, label, key=relation.key) as writer:
        for batch in rows.cast(schema).to_batches():
            writer.write(batch)
        return writer.close()


def _merge(session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay) -> None:
    source = _source(session, storage, relation, layout, overlay)
    target = DeltaTable.forPath(session, storage.address(relation.base_path)).alias("t")
    matches = [
        same(_of("t", c.name), _of("s", f"{FROM_LAYER}{_ordinal(relation, c.name)}"), c) for c in relation.key_columns
    ]
    ranges = None if overlay.emptied else _touched_ranges(storage, relation, overlay)
    if ranges is not None:
        matches.append(ranges)
    values: dict[str, str | Expression] = {
        quoted(c.name): _of("s", f"{FROM_LAYER}{i}") for i, c in enumerate(relation.columns)
    }
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
    """The overlay's rows with all missing values filled in. Columns are renamed: the target has the same names."""
    stored = read.base_at(session, storage, relation, layout, overlay)
    laid = read.layers(session, storage, relation, overlay)
    rows = reduce(DataFrame.unionAll, read.resolved(relation, stored, laid) or [_no_rows(stored)])
    rows = _without_absent_null(relation, stored, rows)
    names = [fn.col(quoted(c.name)).alias(f"{FROM_LAYER}{i}") for i, c in enumerate(relation.columns)]
    return rows.select(*names, fn.col(OP))


def _without_absent_null(relation: RelationInfo, stored: DataFrame, rows: DataFrame) -> DataFrame:
    """The rows without the end of a key that is NULL in all columns, if the base has no such row.

    Where a MERGE uses deletion vectors, it takes such a row for matched, by the NULLs of the outer join, and then
    fails because there is no row to delete.
    """
    if not all(c.nullable for c in relation.key_columns):
        return rows
    null = reduce(lambda a, b: a & b, (fn.col(quoted(k)).isNull() for k in relation.key))
    return rows.where(~(null & (fn.col(OP) == GONE))) if stored.where(null).isEmpty() else rows


def _no_rows(stored: DataFrame) -> DataFrame:
    """The source of a fold that only empties spans."""
    return stored.where(fn.lit(False)).withColumn(OP, fn.lit(GONE))


def _touched_ranges(storage: Storage, relation: RelationInfo, overlay: Overlay) -> Expression | None:
    """A condition on the first key column that limits MERGE to the files that the overlay touches.

    None when that would skip nothing, or when a file has no range. Ranges come from the files' statistics, so a row
    outside all of them cannot have a key of the overlay, unless that is NULL, which no range contains.
    """
    column = relation.key_columns[0]
    if column.lake_type not in base.RANGED:
        return None
    files = base.ranges(storage, relation.base_path, column.name)
    if files is None or not overlay.rows or not files.num_rows:
        return None
    touched = files.filter(pa.array(_touched(_keys(storage, overlay, column.name), files)))
    if touched.num_rows == files.num_rows:
        return None
    ranges = _merged(touched)
    if len(ranges) > MOST_RANGES:
        ranges = [(ranges[0][0], ranges[-1][1])]
    of, type = _of("t", column.name), files["low"].type
    parts = [of.isNull()] if column.nullable else []
    parts += [
        (of >= literal(pa.scalar(low, type), column.lake_type))
        & (of <= literal(pa.scalar(high, type), column.lake_type))
        for low, high in ranges
    ]
    return reduce(lambda a, b: a | b, parts) if parts else fn.lit(False)  # no constant among ranges: files are skipped


def _keys(storage: Storage, overlay: Overlay, column: str) -> Iterator[pa.Array]:
    """One key column of all layers, one row group at a time."""
    for layer in overlay.layers:
        for group in groups(storage, layer.path):
            yield group.read([column])[column].combine_chunks()


def _touched(keys: Iterable[pa.Array], files: pa.Table) -> NDArray[np.bool_]:
    """For each file (low, high), whether any of the keys is in its range."""
    low, high = (base.as_numbers(files[name]).to_numpy() for name in ("low", "high"))
    hit = np.zeros(files.num_rows, np.bool_)
    for part in keys:
        places = np.sort(base.as_numbers(part.drop_null()).to_numpy())
        hit |= places.searchsorted(low, side="left") < places.searchsorted(high, side="right")
        if hit.all():
            break
    return hit


def _merged(files: pa.Table) -> list[tuple[Any, Any]]:
    """The files' ranges in order, with overlapping ones merged."""
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
