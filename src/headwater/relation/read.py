"""A relation at an index as a DataFrame: the base at its pinned version under the overlay.

No Python worker is involved: layers are Parquet files, their keys are broadcast, and the base is read once (plus its
key columns once more, for rows whose missing values it holds). Spark sorts and joins a backlog that is too large to
broadcast, and spills to disk.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from headwater.model import Layout, RelationInfo
from headwater.relation.base import Few, few_files
from headwater.relation.filter import may_be_wanted, wanted
from headwater.relation.keys import equal, in_any, same
from headwater.relation.layers import Layer
from headwater.relation.overlay import Overlay
from headwater.relation.schema import GONE, UPSERT, quoted
from headwater.source.names import FROM, FROM_BASE, FROM_KEYS, INDEX, MISSING, OP, ORDER, TXN
from headwater.storage import Storage

BROADCAST_ROWS = 300_000  # whole rows
BROADCAST_KEYS = 1_000_000  # keys alone; folds keep most overlays below it
STACKED_LAYERS = 8  # each is compared with all newer ones; beyond this all are sorted together
SORTED_ROWS = 500_000  # per task
OPENED = 64  # versions of bases that stay open
ONE_TASK_BYTES = 1 << 20  # a base this small is one task, so it is aggregated and sorted without a shuffle


def dataframe(
    session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay
) -> DataFrame:
    """The rows of the relation's covered spans at the overlay's index."""
    base = base_at(session, storage, relation, layout, overlay)
    if overlay.empty:
        return base
    laid = layers(session, storage, relation, overlay)
    rows = _without(base, relation, laid)
    for row in resolved(relation, base, laid):
        rows = rows.unionAll(row.where(f"{OP} = {UPSERT}").selectExpr(*_columns(relation)))
    return rows


def empty(session: SparkSession, relation: RelationInfo) -> DataFrame:
    """The relation without rows; Spark knows at planning time that it is empty."""
    return session.range(0).select(*(fn.lit(None).cast(c.lake_type).alias(c.name) for c in relation.columns))


def base_at(
    session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay
) -> DataFrame:
    """The base's rows that count: its pinned version, without spans that are not covered or have been truncated."""
    base = _stored(session, storage, relation, layout.base_version)
    # text instead of columns here and below: building them takes some five calls to the JVM each
    shown = [s.span for i, s in enumerate(layout.spans) if i not in overlay.emptied]
    if not shown:
        return base.where("FALSE")
    if not (layout.complete and not overlay.emptied):
        condition = in_any(shown, relation.key_columns)
        base = base if condition is None else base.where(condition)
    own = wanted(relation)
    return base if own is None else base.where(own)


def _stored(session: SparkSession, storage: Storage, relation: RelationInfo, version: int) -> DataFrame:
    """A version of the base as stored. Read through Delta only if a list of files is not enough."""
    few = few_files(storage, relation.base_path, version)
    if few is not None and not few.marked and not few.paths:
        return empty(session, relation)
    columns = tuple((c.name, c.lake_type) for c in relation.columns)
    return _opened(session, storage.address(relation.base_path), version, few, columns)


@lru_cache(maxsize=OPENED)
def _opened(
    session: SparkSession, url: str, version: int, few: Few | None, columns: tuple[tuple[str, str], ...]
) -> DataFrame:
    """Opened once per session: a version's files never change, and Delta takes two jobs to list them."""
    names = [quoted(name) for name, _ in columns]
    if few is None or few.marked:
        return session.read.format("delta").option("versionAsOf", version).load(url).selectExpr(*names)
    ddl = ", ".join(f"{quoted(name)} {type}" for name, type in columns)
    rows = session.read.schema(ddl).parquet(*(escaped(f"{url}/{path}") for path in few.paths))
    return rows.coalesce(1) if few.bytes <= ONE_TASK_BYTES else rows


def resolved(relation: RelationInfo, base: DataFrame | None, laid: Sequence[Laid]) -> list[DataFrame]:
    """The overlay's rows (relation columns and `__op`), each key once, with missing values taken from the base.

    Layers without missing values need no base.
    """
    result, incomplete, count = [], [], 0
    for layer, visible in zip(laid, _visible(relation, laid), strict=True):
        if layer.missing:
            incomplete.append(visible.where(f"{MISSING} IS NOT NULL"))
            visible = visible.where(f"{MISSING} IS NULL")
            count += layer.rows
        result.append(visible.selectExpr(*_columns(relation), OP))
    if incomplete:
        assert base is not None
        # of all layers together, so that the base is searched once
        result.append(_filled(relation, base, reduce(DataFrame.unionAll, incomplete), count))
    own = wanted(relation)
    return result if own is None else [_judged(rows, own) for rows in result]


def lost(relation: RelationInfo, base: DataFrame, laid: Sequence[Laid]) -> DataFrame | None:
    """The keys of rows whose missing values should be in the base but are not: the table never read them."""
    found = [rows for layer, rows in zip(laid, _visible(relation, laid), strict=True) if layer.missing]
    return _unfilled(relation, base, reduce(DataFrame.unionAll, found)) if found else None


def _visible(relation: RelationInfo, laid: Sequence[Laid]) -> list[DataFrame]:
    """For each layer, the rows whose keys no newer layer names."""
    return [_without(layer.table, relation, laid[i + 1 :]) for i, layer in enumerate(laid)]


def _unfilled(relation: RelationInfo, base: DataFrame, visible: DataFrame) -> DataFrame:
    incomplete = visible.where(fn.col(MISSING).isNotNull() & (fn.col(OP) == UPSERT))
    possible = may_be_wanted(relation)
    incomplete = incomplete if possible is None else incomplete.where(possible)
    stored = base.select(*(fn.col(quoted(k)).alias(f"{FROM_BASE}{i}") for i, k in enumerate(relation.key)))
    matches = [same(fn.col(f"{FROM_BASE}{i}"), _base_key(c.name), c) for i, c in enumerate(relation.key_columns)]
    return incomplete.join(stored, _all(matches), "left_anti").select(*(fn.col(quoted(k)) for k in relation.key))


def _judged(rows: DataFrame, condition: Expression) -> DataFrame:
    """The rows, those that the filter excludes marked as gone, whatever happened to them upstream."""
    kept = fn.when(condition, fn.col(OP)).otherwise(fn.lit(GONE).cast("tinyint"))
    return rows.withColumn(OP, kept)


@dataclass(frozen=True, slots=True)
class Laid:
    """One layer, or several combined, as Spark reads it: `table` has each key once, `keys` has all of them."""

    table: DataFrame
    keys: DataFrame
    rows: int
    missing: bool


def layers(session: SparkSession, storage: Storage, relation: RelationInfo, overlay: Overlay) -> list[Laid]:
    """The overlay's layers, oldest first; combined if there are too many or they are too large to compare pairwise."""
    frames = [_layer(session, storage, relation, layer) for layer in overlay.layers]
    if len(frames) <= 1 or (len(frames) <= STACKED_LAYERS and overlay.rows <= BROADCAST_KEYS):
        return [Laid(f, f, x.rows, x.missing) for f, x in zip(frames, overlay.layers, strict=True)]
    keys = [fn.col(quoted(k)) for k in relation.key]
    every = reduce(DataFrame.unionAll, frames)
    newest_first = Window.partitionBy(*keys).orderBy(fn.col(INDEX).desc())
    sorted_apart = every.repartition(max(1, overlay.rows // SORTED_ROWS), *keys)
    numbered = sorted_apart.withColumn(ORDER, fn.row_number().over(newest_first))
    newest = numbered.where(fn.col(ORDER) == 1).drop(ORDER)
    return [Laid(newest, every, overlay.rows, any(layer.missing for layer in overlay.layers))]


def _filled(relation: RelationInfo, base: DataFrame, incomplete: DataFrame, count: int) -> DataFrame:
    """Incomplete rows joined with the base rows that complete them; a row without one is a hole and stays hidden."""
    stored = base.select(*(fn.col(quoted(c.name)).alias(f"{FROM_BASE}{i}") for i, c in enumerate(relation.columns)))
    ordinals = {c.name: i for i, c in enumerate(relation.columns)}
    matches = [same(fn.col(f"{FROM_BASE}{ordinals[c.name]}"), _base_key(c.name), c) for c in relation.key_columns]
    small = fn.broadcast(incomplete) if count <= BROADCAST_ROWS else incomplete
    values = [
        fn.col(quoted(c.name))
        if c.name in relation.key
        else fn.when(fn.array_contains(MISSING, i), fn.col(f"{FROM_BASE}{i}"))
        .otherwise(fn.col(quoted(c.name)))
        .alias(c.name)
        for i, c in enumerate(relation.columns)
    ]
    return stored.join(small, _all(matches), "inner").select(*values, fn.col(OP))


def _base_key(key: str) -> Expression:
    """The key of the base row that has a row's missing values."""
    return fn.when(fn.col(FROM).isNull(), fn.col(quoted(key))).otherwise(fn.col(f"{FROM}.{quoted(key)}"))


def _without(rows: DataFrame, relation: RelationInfo, laid: Sequence[Laid]) -> DataFrame:
    """The rows whose key none of the layers names."""
    if not laid:
        return rows
    names = [f"{FROM_KEYS}{i}" for i in range(len(relation.key))]
    renamed = [f"{quoted(k)} AS {name}" for k, name in zip(relation.key, names, strict=True)]
    keys = reduce(DataFrame.unionAll, (x.keys.selectExpr(*renamed) for x in laid))
    matches = [equal(quoted(c.name), name, c) for c, name in zip(relation.key_columns, names, strict=True)]
    few = sum(x.rows for x in laid) <= BROADCAST_KEYS
    return rows.join(fn.broadcast(keys) if few else keys, fn.expr(" AND ".join(matches)), "left_anti")


def _layer(session: SparkSession, storage: Storage, relation: RelationInfo, layer: Layer) -> DataFrame:
    return session.read.schema(_ddl(relation)).parquet(escaped(storage.address(layer.path)))


def escaped(path: str) -> str:
    """The path with Spark's glob characters escaped: a home may have any name."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _ddl(relation: RelationInfo) -> str:
    own = [f"{quoted(c.name)} {c.lake_type}" for c in relation.columns]
    key = ", ".join(f"{quoted(c.name)}: {c.lake_type}" for c in relation.key_columns)
    return ", ".join(
        [*own, f"{OP} TINYINT", f"{INDEX} BIGINT", f"{TXN} BIGINT", f"{MISSING} ARRAY<INT>", f"{FROM} STRUCT<{key}>"]
    )


def _columns(relation: RelationInfo) -> list[str]:
    return [quoted(c.name) for c in relation.columns]


def _all(conditions: Sequence[Expression]) -> Expression:
    return reduce(lambda a, b: a & b, conditions)
