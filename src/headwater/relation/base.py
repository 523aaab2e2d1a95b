"""The base: an ordinary Delta table, created and given files without a Spark job.

Only the owner of a relation's commit lease may call what writes here: two committers on one base can overwrite each
other's commit on a local disk.
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
from headwater.relation.delta import delta_table
from headwater.relation.schema import quoted
from headwater.storage import Storage

FEW_FILES, FEW_BYTES = 4, 32 << 20  # below this, asking Delta takes longer than reading everything
KNOWN_VERSIONS = 4096  # whose files are remembered
CHECKPOINT_INTERVAL = 20  # commits; a reader replays at most this many small files

# DV: a fold marks rows as gone instead of writing their files again. Skipping needs statistics on key columns only
# where they are useful; the names are given because a key may stand behind the first 32 columns.
_PROPERTIES = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    # a writer would cut the log as soon as it has written a checkpoint, which nobody has synced by then: upkeep does it
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
)  # NaN has no place in a range


RANGED = ("SMALLINT", "INT", "BIGINT", "DATE")  # whose statistics are exact in every writer, and numbers


def create(storage: Storage, relation: RelationInfo) -> int:
    """Makes the empty base of a relation, durable, and gives its Delta version; one that meta has is left as it is."""
    if relation.base_version < 0:
        storage.remove_folder(relation.base_path)  # what an interrupted creation left may be torn, or no table at all
        birth.write(storage, relation.base_path, relation.columns, _properties(relation))
    version = current_version(storage, relation.base_path)
    commits.make_durable(storage, relation.base_path, relation.base_version, version)
    return version


def current_version(storage: Storage, base_path: str) -> int:
    """The newest version of the base."""
    return int(_open(storage, base_path).version())


def transaction_commit(storage: Storage, base_path: str, app_id: str, version: int) -> int | None:
    """The Delta version that the transaction made, or None if the base does not have it.

    A base that has a later transaction of the same application need not have this one: it may never have been made.
    """
    table = _open(storage, base_path)
    recorded = table.transaction_version(app_id)
    if recorded is None or recorded < version:
        return None
    low, high = 0, int(table.version())  # ids only grow, so the commit can be found by halving
    while low < high:
        middle = (low + high) // 2
        at = _recorded_at(storage, base_path, middle, app_id)
        low, high = (low, middle) if at is not None and at >= version else (middle + 1, high)
    return low if _recorded_at(storage, base_path, low, app_id) == version else None


def has_since(storage: Storage, base_path: str, version: int, app_id: str) -> bool:
    """Whether an application has committed to the base after a version, which is one that is still needed."""
    if not storage.exists(commits.entry(base_path, version + 1)):
        return False
    before = _recorded_at(storage, base_path, version, app_id)
    return bool(_open(storage, base_path).transaction_version(app_id) != before)


def ranges(storage: Storage, base_path: str, column: str) -> pa.Table | None:
    """Per file of the newest version the column's least and greatest value (`low`, `high`); None if a file hides it."""
    actions = pa.table(_open(storage, base_path).get_add_actions(flatten=True))
    names = [f"min.{column}", f"max.{column}"]
    if not set(names) <= set(actions.column_names) or any(actions[n].null_count for n in names):
        return None
    return pa.table([actions[n] for n in names], names=["low", "high"])


def as_numbers(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values of a type in RANGED as 64-bit numbers, a date as its day since 1970."""
    return values.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date(values.type) else values.cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Few:
    """The files of a small version of a base; `marked`: some of their rows do not count, and only Delta knows which."""

    paths: tuple[str, ...]
    bytes: int
    marked: bool = False


def few_files(storage: Storage, base_path: str, version: int) -> Few | None:
    """The files of a version, if it is small; else Delta has to be asked.

    Delta takes two Spark jobs and half a second per table to find them, which a query over many small tables feels.
    """
    few = _few_files(storage, base_path, version)
    for file in few.paths if few else ():
        if not storage.exists(f"{base_path}/{file}"):
            raise base_damaged(f"a file of the base {base_path} is missing: somebody removed it from outside")
    return few


@lru_cache(maxsize=KNOWN_VERSIONS)
def _few_files(storage: Storage, base_path: str, version: int) -> Few | None:
    """A version's files never change, and no other base is made at its place while a home is open."""
    try:
        table = delta_table(storage, base_path, version)
    except DeltaError:  # Delta says what is wrong with it
        return None
    actions = pa.table(table.get_add_actions(flatten=True))
    bytes = sum(actions["size_bytes"].to_pylist())
    if actions.num_rows > FEW_FILES or bytes > FEW_BYTES:
        return None
    marked = any(pa.record_batch(batch).num_rows for batch in table.deletion_vectors())
    return Few(tuple(actions["path"].to_pylist()), bytes, marked)


def add_files(storage: Storage, base_path: str, files: Sequence[DataFile], app_id: str, version: int) -> int:
    """Commits files that lie next to the base, once per (app_id, version); gives the Delta version that has them.

    Versions of one app_id must grow from commit to commit. delta-rs records the id but does not refuse it a second time
    (two adds would double the rows), so it is asked first.
    """
    table = _open(storage, base_path)
    done = transaction_commit(storage, base_path, app_id, version)
    if done is not None:
        return done
    for file in files:
        if not storage.exists(f"{base_path}/{file.path}"):
            raise base_damaged(f"a scanned file is missing next to the base {base_path}")
    return _commit(storage, base_path, table, "append", files, app_id, version)


def replace_files(
    storage: Storage, base_path: str, replaced: int, files: Sequence[DataFile], app_id: str, version: int
) -> int:
    """Commits files in the place of all that a version of the base has; gives the Delta version.

    It fails if there is a later version by now: what that has done is not in the files.
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
        # no second try: who meets another's commit is the owner no more, and must not build on it unseen
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)], max_commit_retries=0),
        # cleaning up is upkeep's
        post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
    )
    return int(_open(storage, base_path).version())


def _open(storage: Storage, base_path: str) -> DeltaTable:
    try:
        return delta_table(storage, base_path)
    except TableNotFoundError as e:
        raise base_damaged(f"there is no base at {base_path}") from e


def _recorded_at(storage: Storage, base_path: str, version: int, app_id: str) -> int | None:
    try:
        return delta_table(storage, base_path, version).transaction_version(app_id)  # type: ignore[no-any-return]
    except DeltaError:  # a version so old that its log is gone: what is searched for is newer
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
