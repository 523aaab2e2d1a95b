"""Runs: when a settled relation's tail has grown, its netted form becomes a file that outlives this process.

Runs merge as they multiply: one that is not clearly larger than what follows it is netted together with it, so that
a read meets two or three layers and each change is written a few times at most.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy.engine import Connection

from headwater.meta import changes as changes_of
from headwater.meta import runs as meta_runs
from headwater.meta.store import Meta
from headwater.model import Layout, RelationInfo, RunInfo
from headwater.relation.judge import settled
from headwater.relation.net import net
from headwater.relation.overlay import Overlays, has_missing, read_run, usable, write_layer
from headwater.storage import Storage

GROWTH = 3  # a run stays as it is if it has at least this many times the rows that come after it


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new run is made of: the runs it contains and the changes in (after, upto]."""

    contains: tuple[RunInfo, ...]
    after: int
    upto: int
    first_index: int


def plan(chain: list[RunInfo], start: int, upto: int, changes: int, limit: int) -> Plan | None:
    """The run that is due, or None. `chain` are the usable runs from `start` on, `changes` lie after them."""
    if changes <= limit:
        return None
    after = chain[-1].last_index if chain else start
    kept, rows = list(chain), changes
    while kept and kept[-1].rows < GROWTH * rows:
        rows += kept.pop().rows
    contains = tuple(chain[len(kept) :])
    return Plan(contains, after, upto, kept[-1].last_index + 1 if kept else start + 1)


def write(
    overlays: Overlays,
    storage: Storage,
    meta: Meta,
    relation: RelationInfo,
    layout: Layout,
    index: int,
    *,
    limit: int,
    check: Callable[[Connection], None] | None = None,
) -> RunInfo | None:
    """Turns a tail that has grown past the limit into a run; None if none is due.

    `check` is called in the transaction that publishes the run (the owner's fence).
    """
    if not settled(relation, layout):
        return None  # before that, which changes count depends on the reader's layout
    start = max(layout.log_index, relation.origin.begin_index)
    with meta.read() as c:
        chain = usable(meta_runs.live(c, relation.id, start, index), start)
        after = chain[-1].last_index if chain else start
        changes = changes_of.count(c, relation, after, index)
    due = plan(chain, start, index, changes, limit)
    if due is None:
        return None
    table, truncate_index = _contents(overlays, storage, relation, layout, chain, due)
    path = f"runs/{relation.id}/{due.first_index:020d}-{index:020d}-{uuid.uuid4().hex[:8]}.parquet"
    with storage.create(path) as f:
        write_layer(f, table, compression="lz4")
    size, missing = storage.size(path), has_missing(table)
    with meta.write() as c:
        if check is not None:
            check(c)
        id = meta_runs.add(
            c,
            relation.id,
            first_index=due.first_index,
            last_index=index,
            path=path,
            rows=table.num_rows,
            bytes=size,
            missing=missing,
            truncate_index=truncate_index,
            replaces=[r.id for r in due.contains],
        )
    overlays.forget(relation.id)
    return RunInfo(id, relation.id, due.first_index, index, path, table.num_rows, size, missing, truncate_index)


def _contents(
    overlays: Overlays, storage: Storage, relation: RelationInfo, layout: Layout, chain: list[RunInfo], due: Plan
) -> tuple[pa.Table, int]:
    """The netted rows of the planned run, and its last TRUNCATE (0: none)."""
    tail, emptied = overlays.net_tail(relation, layout, due.after, due.upto, chain)
    truncate_index = max(int(emptied.max(initial=0)), *(r.truncate_index for r in due.contains), 0)
    tables = [read_run(storage, relation, r) for r in due.contains if r.last_index >= truncate_index]
    # `__from` names base rows in every layer (the tail was netted over the runs), so the newest row of a key wins
    return net([*tables, tail], relation.columns, relation.key), truncate_index
