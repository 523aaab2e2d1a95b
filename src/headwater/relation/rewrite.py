"""Executes upkeep of a base: rewrites that change no row, checkpoints, and VACUUM.

Only the base's committer may call the functions that write (see base.py), and no version that meta still names may
lose files.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from headwater.model import Column, RelationInfo
from headwater.relation import commits
from headwater.relation.base import RANGED, as_numbers, delta_table
from headwater.relation.schema import ordering, quoted
from headwater.relation.session import reading
from headwater.relation.upkeep import SMALL_BYTES, TARGET_BYTES, BaseFile, Rewrite, Way
from headwater.storage import Storage

EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Dead:
    """Files next to a base that its newest version does not need and that are older than the retained history."""

    files: int
    bytes: int


def look(storage: Storage, relation: RelationInfo) -> tuple[int, list[BaseFile]]:
    """The base's newest version and its files."""
    table = delta_table(storage, relation.base_path)
    actions = pa.table(table.get_add_actions(flatten=True))
    deleted = _deleted(table) if relation.options.get("deletion_vectors", "true") == "true" else {}
    first = next(iter(ordering(relation)), None)
    lows, highs = (_ends(actions, end, first) for end in ("min", "max"))
    columns = (actions[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    files = [
        BaseFile(size, rows or 0, deleted.get(path, 0), low, high)
        for path, size, rows, low, high in zip(*columns, lows, highs, strict=True)
    ]
    return int(table.version()), files


def rewrite(session: SparkSession, storage: Storage, relation: RelationInfo, way: Rewrite) -> None:
    """Executes a rewrite in its own session. The newest version holds the same rows as before."""
    own = reading(session)
    path = storage.address(relation.base_path)
    if way.way is Way.COMPACT:
        own.conf.set("spark.databricks.delta.optimize.minFileSize", str(SMALL_BYTES))
        own.conf.set("spark.databricks.delta.optimize.maxFileSize", str(TARGET_BYTES))
        SparkTable.forPath(own, path).optimize().executeCompaction()
    elif way.way is Way.PURGE:
        # rewrite files one by one: combining them would lose their order
        own.conf.set("spark.databricks.delta.optimize.maxFileSize", "1")
        own.sql(f"REORG TABLE delta.{quoted(path)} APPLY (PURGE)")
    else:
        _in_order(own, path, relation, way)


def _in_order(session: SparkSession, path: str, relation: RelationInfo, way: Rewrite) -> None:
    rows = session.read.format("delta").load(path)
    condition = None
    if way.way is Way.RANGE:
        assert way.low is not None and way.high is not None
        condition = _between(relation, way.low, way.high)
        rows = rows.where(condition)
    columns, files = [fn.col(quoted(c.name)) for c in ordering(relation)], max(1, round(way.bytes / TARGET_BYTES))
    parts = rows.repartitionByRange(files, *columns) if columns else rows.repartition(files)
    writer = (parts.sortWithinPartitions(*columns) if columns else parts).write.format("delta").mode("overwrite")
    # Delta allows "no change of data" only where whole files are replaced
    writer = writer.option("dataChange", "false") if condition is None else writer.option("replaceWhere", condition)
    writer.save(path)


def checkpoint(storage: Storage, relation: RelationInfo) -> None:
    """Writes a checkpoint of the base's newest version, so that readers need not replay earlier commits."""
    table = delta_table(storage, relation.base_path)
    table.create_checkpoint()
    commits.make_durable(storage, relation.base_path, int(table.version()), int(table.version()))


def committed_at(storage: Storage, relation: RelationInfo, version: int) -> float | None:
    """When a version was committed; None if its commit is older than the retained log."""
    path = f"{relation.base_path}/_delta_log/{version:020d}.json"
    found = storage.stat(path)
    return None if found is None else found.modified_at


def dead(storage: Storage, relation: RelationInfo, before: float) -> Dead:
    """Approximately what VACUUM would remove: deletion vectors are only counted, not matched to their files."""
    table = delta_table(storage, relation.base_path)
    live = set(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())
    marked = len(_deleted(table))
    files = size = vectors = 0
    for path in storage.list(relation.base_path):
        name = path.removeprefix(f"{relation.base_path}/")
        found = storage.stat(path)
        if name.startswith(("_", ".")) or found is None or found.modified_at >= before:
            continue
        if name.endswith(".bin"):
            vectors += 1
        elif name.endswith(".parquet") and name not in live:
            files += 1
            size += found.size
    return Dead(files + max(0, vectors - marked), size)


def vacuum(session: SparkSession, storage: Storage, relation: RelationInfo, hours: int) -> None:
    """Removes files that no version of the last `hours` hours needs, and files that never belonged to a version.

    Done by Spark because it handles deletion vectors.
    """
    own = session.newSession()
    own.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")  # pins and epochs protect readers
    own.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")  # saves two empty commits
    own.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")  # 10,000 tasks by default: 48 s
    SparkTable.forPath(own, storage.address(relation.base_path)).vacuum(hours)


def _deleted(table: DeltaTable) -> dict[str, int]:
    """File name → how many of its rows are marked as deleted, for files that have such rows."""
    found: dict[str, int] = {}
    for batch in table.deletion_vectors():
        for path, kept in zip(*(pa.array(column) for column in pa.record_batch(batch).columns), strict=True):
            found[path.as_py().rsplit("/", 1)[-1]] = len(kept.values) - (pc.sum(kept.values).as_py() or 0)
    return found


def _ends(actions: pa.Table, end: str, column: Column | None) -> list[int | None]:
    """A column's minimum or maximum in each file as a number; None where unknown."""
    name = "" if column is None else f"{end}.{column.name}"
    if column is None or column.lake_type not in RANGED or name not in actions.column_names:
        return [None] * actions.num_rows
    numbers: list[int | None] = as_numbers(actions[name]).to_pylist()
    return numbers


def _between(relation: RelationInfo, low: int, high: int) -> str:
    """The range as an SQL condition: Delta accepts only text."""
    column = ordering(relation)[0]
    if column.lake_type == "DATE":
        ends = [f"DATE'{(EPOCH + datetime.timedelta(days=n)).isoformat()}'" for n in (low, high)]
    else:
        ends = [f"CAST('{n}' AS {column.lake_type})" for n in (low, high)]
    return f"{quoted(column.name)} >= {ends[0]} AND {quoted(column.name)} <= {ends[1]}"
