"""The base: an ordinary Delta table, created and appended to without a Spark job.

Only the relation's owner may call the functions that write. On a local disk two committers can overwrite each other's
commit; elsewhere Delta refuses the later one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from headwater.errors import base_damaged
from headwater.model import Column, DataFile, RelationInfo
from headwater.relation import birth, commits
from headwater.relation.schema import quoted
from headwater.storage import Storage

FEW_FILES, FEW_BYTES = 4, 32 << 20  # below this, asking Delta takes longer than reading everything
KNOWN_VERSIONS = 4096  # versions whose file lists are cached
KNOWN_RANGES = 256  # versions whose files' ranges are cached
CHECKPOINT_INTERVAL = 20  # commits; a reader replays at most this many small files

# Deletion vectors: a fold marks rows as deleted instead of rewriting their files. The columns with statistics are
# named because a key column may come after the first 32.
_PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # a writer would truncate the log right after writing a checkpoint that is not yet synced; upkeep does it instead
    "delta.enableExpiredLogCleanup": "false",
    "delta.deletedFileRetentionDuration": "interval 1 days",
}
STATISTICS_TYPES = (
    "SMALLINT",
    "INT",
    "BIGINT",
    "DECIMAL",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "STRING",
)  # no floats: NaN is outside every range


RANGED = ("SMALLINT", "INT", "BIGINT", "DATE")  # types whose statistics are exact in every writer, and are numbers


def delta_table(storage: Storage, base_path: str, version: int | None = None) -> DeltaTable:
    """The Delta table of a base, at its newest version or at a given one."""
    return DeltaTable(storage.address(base_path), version=version, storage_options=storage.options or None)


def create(storage: Storage, relation: RelationInfo) -> int:
    """Creates the empty base of a relation, durably, and returns its Delta version; keeps a base that meta knows."""
    if relation.base_version < 0:
        birth.write(storage, relation.base_path, relation.columns, _properties(relation))
    version = current_version(storage, relation.base_path)
    commits.make_durable(storage, relation.base_path, relation.base_version, version)
    return version


def current_version(storage: Storage, base_path: str) -> int:
    """The newest version of the base."""
    return int(_open(storage, base_path).version())


def transaction_commit(storage: Storage, base_path: str, app_id: str, version: int) -> int | None:
    """The Delta version that the transaction committed, or None if the base does not have it.

    A later transaction of the same application does not imply this one: it may never have been committed.
    """
    table = _open(storage, base_path)
    recorded = table.transaction_version(app_id)
    if recorded is None or recorded < version:
        return None
    low, high = 0, int(table.version())  # ids only grow, so binary search finds the commit
    while low < high:
        middle = (low + high) // 2
        at = _recorded_at(storage, base_path, middle, app_id)
        low, high = (low, middle) if at is not None and at >= version else (middle + 1, high)
    return low if _recorded_at(storage, base_path, low, app_id) == version else None


def has_since(storage: Storage, base_path: str, version: int, app_id: str) -> bool:
    """Whether an application has committed to the base after a version, which must still be in use."""
    if not storage.exists(commits.entry(base_path, version + 1)):
        return False
    before = _recorded_at(storage, base_path, version, app_id)
    return bool(_open(storage, base_path).transaction_version(app_id) != before)


def pass_number(storage: Storage, base_path: str, app_id: str, version: int, *, after: int) -> int | None:
    """Makes an empty commit with the number unless the base has reached it; returns the base's Delta version.

    After that no commit with a lower number can succeed, not even one that has already started. None, and no commit, if
    the last one is numbered `after`: it was made after all.
    """
    table = _open(storage, base_path)
    if table.transaction_version(app_id) == after:
        return None
    if _reached(table, app_id, version):
        return int(table.version())
    return _commit(storage, base_path, table, "append", (), app_id, version)


def ensure_unreached(storage: Storage, base_path: str, app_id: str, version: int) -> None:
    """Raises if the base has already reached the number of the next commit: Spark would skip it silently."""
    _ensure_unreached(_open(storage, base_path), base_path, app_id, version)


def files(storage: Storage, base_path: str, version: int) -> set[str]:
    """The names of the files of a version."""
    table = delta_table(storage, base_path, version)
    return set(pa.table(table.get_add_actions(flatten=True))["path"].to_pylist())


def ranges(storage: Storage, base_path: str, column: str) -> pa.Table | None:
    """The column's range (`low`, `high`) in each file of the newest version; None if any file lacks it."""
    return _ranges(_open(storage, base_path), column)


@lru_cache(maxsize=KNOWN_RANGES)
def ranges_at(storage: Storage, base_path: str, column: str, version: int) -> pa.Table | None:
    """Like `ranges`, of the files of one version."""
    return _ranges(delta_table(storage, base_path, version), column)


def _ranges(table: DeltaTable, column: str) -> pa.Table | None:
    actions = pa.table(table.get_add_actions(flatten=True))
    names = [f"min.{column}", f"max.{column}"]
    if not set(names) <= set(actions.column_names) or any(actions[n].null_count for n in names):
        return None
    return pa.table([actions[n] for n in names], names=["low", "high"])


def as_numbers(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values of a type in RANGED as 64-bit numbers; a date is its number of days since 1970."""
    return values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date(values.type) else values.cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Few:
    """The files of a small version of a base; `marked`: some of their rows are deleted, and only Delta knows which."""

    paths: tuple[str, ...]
    bytes: int
    marked: bool = False


def few_files(storage: Storage, base_path: str, version: int) -> Few | None:
    """The files of a version if it is small; None means ask Delta.

    Delta takes two Spark jobs and half a second per table to list them: too much in a query over many small tables.
    """
    few = _few_files(storage, base_path, version)
    for file in few.paths if few else ():
        if not storage.exists(f"{base_path}/{file}"):
            raise base_damaged(f"a file of the base {base_path} is missing: it was removed by something else")
    return few


@lru_cache(maxsize=KNOWN_VERSIONS)
def _few_files(storage: Storage, base_path: str, version: int) -> Few | None:
    """Cached: a version's files never change, and no other base takes its path while a home is open."""
    try:
        table = delta_table(storage, base_path, version)
    except DeltaError:  # let the read through Delta report what is wrong
        return None
    actions = pa.table(table.get_add_actions(flatten=True))
    bytes = sum(actions["size_bytes"].to_pylist())
    if actions.num_rows > FEW_FILES or bytes > FEW_BYTES:
        return None
    marked = any(pa.record_batch(batch).num_rows for batch in table.deletion_vectors())
    return Few(tuple(actions["path"].to_pylist()), bytes, marked)


def add_files(storage: Storage, base_path: str, files: Sequence[DataFile], app_id: str, version: int) -> int:
    """Commits files already written next to the base, once per (app_id, version); returns their Delta version.

    Versions of one app_id must increase. delta-rs records the id but accepts it a second time (which would double the
    rows), and even a lower one, so this checks first.
    """
    table = _open(storage, base_path)
    done = transaction_commit(storage, base_path, app_id, version)
    if done is not None:
        return done
    _ensure_unreached(table, base_path, app_id, version)
    for file in files:
        if not storage.exists(f"{base_path}/{file.path}"):
            raise base_damaged(f"a scanned file is missing next to the base {base_path}")
    return _commit(storage, base_path, table, "append", files, app_id, version)


def replace_files(
    storage: Storage, base_path: str, replaced: int, files: Sequence[DataFile], app_id: str, version: int
) -> int:
    """Replaces all files of a version of the base in one commit; returns the new Delta version.

    Fails if there is a later version by now, because the files lack its changes.
    """
    table = delta_table(storage, base_path, replaced)
    return _commit(storage, base_path, table, "overwrite", files, app_id, version)


def _commit(
    storage: Storage, base_path: str, table: DeltaTable, mode: str, files: Sequence[DataFile], app_id: str, version: int
) -> int:
    now = int(time.time() * 1000)
    table.create_write_transaction(
        [AddAction(f.path, f.bytes, {}, now, True, f.stats) for f in files],
        mode=mode,
        schema=table.schema(),
        # no retries: a conflicting commit means we are no longer the owner, and must not build on it blindly
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)], max_commit_retries=0),
        # upkeep does the cleaning
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    )
    return int(_open(storage, base_path).version())


def _ensure_unreached(table: DeltaTable, base_path: str, app_id: str, version: int) -> None:
    if _reached(table, app_id, version):
        raise base_damaged(f"the base {base_path} has a later commit than meta has recorded: another server made it")


def _reached(table: DeltaTable, app_id: str, version: int) -> bool:
    recorded = table.transaction_version(app_id)
    return recorded is not None and recorded >= version


def _open(storage: Storage, base_path: str) -> DeltaTable:
    try:
        return delta_table(storage, base_path)
    except TableNotFoundError as e:
        raise base_damaged(f"there is no base at {base_path}") from e


def _recorded_at(storage: Storage, base_path: str, version: int, app_id: str) -> int | None:
    try:
        return delta_table(storage, base_path, version).transaction_version(app_id)  # type: ignore[no-any-return]
    except DeltaError:  # a version so old that its log is gone: the one we look for is newer
        return None


def _properties(relation: RelationInfo) -> Mapping[str, str]:
    vectors = relation.options.get("deletion_vectors", "true")
    return {
        **_PROPERTIES,
        "delta.enableDeletionVectors": vectors,
        "delta.dataSkippingStatsColumns": ",".join(quoted(c.name) for c in relation.columns if _has_statistics(c)),
    }


def _has_statistics(column: Column) -> bool:
    return column.lake_type.split("(")[0] in STATISTICS_TYPES
