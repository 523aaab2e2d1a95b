"""Merges a view's runs into fewer, so that a read stacks few layers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.meta import epochs, intents, runs
from headwater.meta.intents import Fold
from headwater.model import RelationInfo, RunInfo
from headwater.ownership.lease import Lease
from headwater.relation.runs import GROWTH, MERGED_BYTES, MERGED_ROWS, folder
from headwater.view.signed import read_change, telescoped, write_change

FEWEST = 4  # runs that are merged at once: fewer would write each row more often than reads gain


def mergeable(chain: Sequence[RunInfo], kept: Collection[int]) -> list[RunInfo]:
    """The newest runs that can become one; empty: not worth it.

    Two runs stay apart while the view is read between them, at a `kept` index. A run that is much larger than
    everything after it stays as it is.
    """
    best: list[RunInfo] = []
    group: list[RunInfo] = []
    rows = size = 0
    for run in reversed(chain):
        apart = bool(group) and any(run.last_index <= index < group[0].last_index for index in kept)
        full = rows + run.rows > MERGED_ROWS or size + run.bytes > MERGED_BYTES
        large = bool(group) and run.rows >= GROWTH * max(1, rows)
        if apart or full or large:
            best = max(best, group, key=len)
            group, rows, size = [], 0, 0
            if full and not apart:
                continue
        group.insert(0, run)
        rows, size = rows + run.rows, size + run.bytes
    best = max(best, group, key=len)
    return best if len(best) >= FEWEST else []


def merge_runs(home: Home, lease: Lease, relation: RelationInfo) -> bool:
    """Merges some of a view's runs if there are enough of them; whether it did."""
    with home.meta.read() as c:
        newest = epochs.newest(c)
        layout = None if newest is None else epochs.layout_at(c, relation.id, newest.id)
        if newest is None or layout is None:
            return False
        live = runs.unfolded(c, relation.id, layout.index_for(relation))
        kept = read_at(c, relation)
    group = mergeable(live, kept)
    if not group:
        return False
    merged = telescoped(relation, [read_change(home.storage, relation, run) for run in group])
    first, last = group[0].first_index, group[-1].last_index
    with lease.under_way.writing(folder(relation.id)):
        label = f"{first:020d}-{last:020d}"
        path, before_path = (
            f"{folder(relation.id)}/{lease.permit.new_file(f'{label}{kind}', 'parquet')}" for kind in ("", "-before")
        )
        write_change(home.storage, merged, path, before_path)
        with home.meta.owned(lease) as c:
            ids = [run.id for run in group]
            still = {run.id for run in runs.unfolded(c, relation.id, 0)}
            if not still.issuperset(ids) or read_between(group, read_at(c, relation)):
                return False  # a fold, a drop or a new reader was faster; the sweep removes the files
            runs.add(
                c,
                relation.id,
                first_index=first,
                last_index=last,
                path=path,
                rows=merged.rows,
                bytes=merged.bytes,
                missing=False,
                schema_version=relation.schema_version,
                base_index=-1,
                replaces=ids,
                before_path=before_path,
            )
    return True


def read_at(c: Connection, relation: RelationInfo) -> set[int]:
    """The indexes at which the view is read, or to which a fold brings its base.

    A fold ends at the view's last version, which is older than the epoch that the fold pins: a run across it would
    count as folded, with the changes after it.
    """
    folding = {i.work.index for i in intents.all(c, relation.id) if isinstance(i.work, Fold)}
    return epochs.pinned_indexes(c, relation) | folding


def read_between(group: Sequence[RunInfo], kept: Collection[int]) -> bool:
    """Whether the view is read at an index between two of the runs."""
    return any(a.last_index <= index < b.last_index for a, b in pairwise(group) for index in kept)
