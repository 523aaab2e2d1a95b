"""One step of one view: from its last version to a barrier, as one run that is published with the new version."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from sqlalchemy.engine import Connection

from headwater import crash, view
from headwater.decode.values import arrow_schema
from headwater.engine.home import Home
from headwater.engine.query.between import At, Frames, at, obstacle
from headwater.engine.query.deltas import Deltas
from headwater.engine.query.moved import MovedTable, MovedView, Unchanged
from headwater.engine.query.read import Reader
from headwater.engine.spark.jobs import plan
from headwater.engine.view import barriers
from headwater.engine.view.definition import Reshaped, Trees
from headwater.engine.view.refusal import is_too_large
from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations, runs, spans, views
from headwater.meta.views import Refresh
from headwater.model import Epoch, RelationInfo, TableState
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.relation.runs import folder
from headwater.view.cost import why_full
from headwater.view.shape import WEIGHT
from headwater.view.signed import Change, change, write_change

POOL = "views"
LARGE_ROWS = 1_000_000  # a larger difference is never collected; a smaller view never gets a new base for its size
OUTGROWN = "so much changed that the view is filled again beside itself"
LARGE_SHARE = 0.2  # of a large view's rows: above that, a new base is written instead of a difference


class Outgrown(Reshaped):
    """So many rows of a view change that it is filled again: a difference would take more memory and time."""

    def __init__(self, found: view.Shape) -> None:
        super().__init__(found)
        self.args = (OUTGROWN,)


@dataclass(frozen=True, slots=True)
class Step:
    """What a refresh is about to do: inputs at both epochs, which of them changed, and why not by their changes."""

    relation: RelationInfo
    last: Epoch
    target: Epoch
    state: At
    before: Mapping[int, At | None]
    after: Mapping[int, At]
    changes: Mapping[int, int]  # input → number of changes, if it has any
    obstacle: str  # why some input's recorded changes do not show what changed; empty: they do
    rows: int  # of all inputs, roughly

    @property
    def quiet(self) -> bool:
        """Whether nothing changed: the view is exact at the target as it is."""
        return not self.changes and not self.obstacle


def plan_step(c: Connection, relation: RelationInfo, last_id: int, target_id: int) -> Step | None:
    """The step from the last version to a barrier's epoch; None if some input is not whole there."""
    assert relation.view is not None
    last, target = epochs.get(c, last_id), epochs.get(c, target_id)
    if last is None or target is None:
        return None
    inputs = [relations.get(c, id) for id in relation.view.inputs]
    after = {r.id: at(c, r, target) for r in inputs}
    state = at(c, relation, last)
    whole = {id: found for id, found in after.items() if found is not None}
    # a table that has failed is not read past the place where it stopped
    failed = any(r.view is None and r.state is TableState.FAILED for r in inputs)
    if state is None or len(whole) < len(inputs) or failed:
        return None
    before = {r.id: at(c, r, last) for r in inputs}
    changes, why = dict[int, int](), "an input was replaced" if views.input_replaced(c, relation.id) else ""
    for r in inputs:
        found = before[r.id]
        count = 0 if found is None else changes_of.count(c, r, found.index, whole[r.id].index)
        replaced = found is None or (found.layout.complete and not count and _reread(c, r, last, target))
        if count or replaced:
            changes[r.id] = count
            why = why or obstacle(c, r, last, target)
    rows = sum(spans.rows(c, r.id) for r in inputs)
    return Step(relation, last, target, state, before, whole, changes, why, rows)


def inputs_whole(c: Connection, relation: RelationInfo, epoch_id: int) -> bool:
    """Whether all inputs of a view can be read at an epoch; a table that was resynced since cannot be."""
    assert relation.view is not None
    epoch = epochs.get(c, epoch_id)
    return epoch is not None and all(at(c, relations.get(c, id), epoch) is not None for id in relation.view.inputs)


def _reread(c: Connection, relation: RelationInfo, last: Epoch, target: Epoch) -> bool:
    """Whether part of a table was scanned again between two epochs, which brings rows without changes."""
    since = [layout for epoch, layout in epochs.layouts_of(c, relation.id) if last.id < epoch <= target.id]
    return not all(layout.complete for layout in since)


def stand_still(home: Home, leases: Leases, steps: Sequence[Step], begun: Mapping[int, int]) -> None:
    """Gives views whose inputs did not change a version at their targets, without a Spark job."""
    with home.meta.owned(leases.server) as c:
        for step in steps:
            relation = step.relation
            pruned = not views.is_barrier(c, step.target.id)
            if not pruned and views.last_version(c, relation.id) == step.last.id:
                views.add_version(c, relation.id, step.target.id)
                if relation.state is TableState.FAILED:  # it is exact again
                    relations.set_state(c, relation.id, TableState.LIVE)
        barriers.prune(c, begun)


class Refresher:
    """Moves views. Thread-safe for different views."""

    def __init__(self, home: Home, leases: Leases, reader: Reader, trees: Trees) -> None:
        self._home = home
        self._leases = leases
        self._reader = reader
        self._trees = trees
        self._deltas = Deltas(home, reader.overlays.changes)

    def refresh(self, step: Step, begun: Mapping[int, int]) -> Refresh:
        """Computes the change and publishes it with the version; `Outgrown` if it is too large for that."""
        began, relation = time.monotonic(), step.relation
        lease = self._leases.of(Name.relation(relation.id))
        with self._home.meta.read() as c:
            past = views.refreshes(c, relation.id)
        signed, strategy, reason = self._bounded(step, past)
        found = None if signed is None else change(relation, signed, step.target.id)
        read = sum(step.changes.values()) if strategy != "full" else step.rows
        ms = (time.monotonic() - began) * 1000
        if found is None or (strategy == "full" and self._changed_much(relation, found.rows)):
            why = f"{reason}; {OUTGROWN}"
            done = Refresh(step.last.id, step.target.id, strategy, why, read, 0 if found is None else found.rows, ms)
            with self._home.meta.owned(lease) as c:
                if relations.get_or_none(c, relation.id) is not None:
                    views.record(c, relation.id, done)
            raise Outgrown(view.shape(self._trees.of(relation)))
        done = Refresh(step.last.id, step.target.id, strategy, reason, read, found.rows, ms)
        self._publish(step, found, done, lease, begun)
        return done

    def _bounded(self, step: Step, past: Sequence[Refresh]) -> tuple[pa.Table | None, str, str]:
        """`_computed`, without rows if Spark refuses to send so many: a few changes can affect any number of rows."""
        try:
            return self._computed(step, past)
        except Exception as e:
            if not is_too_large(e):
                raise
            return None, "full", f"{sum(step.changes.values()):,} changes concern more rows than one process can take"

    def _changed_much(self, relation: RelationInfo, rows: int) -> bool:
        """Whether a new base is better than a difference, which would have to be folded into nearly every file."""
        with self._home.meta.read() as c:
            stored = spans.rows(c, relation.id)
        return stored > LARGE_ROWS and rows > LARGE_SHARE * stored

    def _computed(self, step: Step, past: Sequence[Refresh]) -> tuple[pa.Table | None, str, str]:
        """The signed change of the stored rows (None: too many to collect), how it was computed, and why so."""
        relation, tree = step.relation, self._trees.of(step.relation)
        why = step.obstacle or _chosen(relation, step, past)
        with self._reader.session_for(POOL) as session, ExitStack() as stack:
            frames = Frames(session, self._home, self._reader.overlays, stack)
            names = {id: found.relation.name for id, found in step.after.items()}
            state = frames.stored(step.state)
            if why:
                inputs = {names[id]: frames.of(found) for id, found in step.after.items()}
                new = view.recompute(tree, inputs)
                return _collected(view.difference(view.shape(tree), state, new)), "full", why
            uses = view.shape(tree).inputs
            moved = {names[id]: self._moved(frames, step, id, uses.get(names[id], ())) for id in step.after}
            found = view.refresh(tree, moved, state)
            if found.strategy == "full" and found.delta is not None:
                return _collected(found.delta), "full", found.reason
            rows = _none(step.relation) if found.delta is None else plan(found.delta).toArrow()
            return rows, found.strategy, found.reason

    def _moved(self, frames: Frames, step: Step, id: int, used: Sequence[str]) -> view.Moved:
        before, after = step.before[id], step.after[id]
        if id not in step.changes:
            return Unchanged(frames, after)
        assert before is not None
        if after.relation.view is None:
            found: MovedTable | MovedView = MovedTable(frames, self._deltas, before, after, self._needed(id, used))
        else:
            found = MovedView(frames, self._deltas, before, after)
        found.prepare()
        return found

    def _needed(self, id: int, used: Sequence[str]) -> frozenset[str]:
        """The columns of an input that any view over it uses: then all of them can share its delta."""
        with self._home.meta.read() as c:
            found = [views.uses(c, other).get(id, {}) for other in views.over(c, id)]
        return frozenset(used).union(*found)

    def _publish(
        self,
        step: Step,
        found: Change,
        done: Refresh,
        lease: Lease,
        begun: Mapping[int, int],
    ) -> None:
        relation, path, before_path = step.relation, "", ""
        with lease.under_way.writing(folder(relation.id)):
            if found.rows:
                label = f"{step.last.id + 1:020d}-{step.target.id:020d}"
                path, before_path = (
                    f"{folder(relation.id)}/{lease.permit.new_file(f'{label}{kind}', 'parquet')}"
                    for kind in ("", "-before")
                )
                write_change(self._home.storage, found, path, before_path)
                crash.here("view.run_written")
            with self._home.meta.owned(lease) as c:
                if relations.get_or_none(c, relation.id) is None:
                    return  # dropped meanwhile
                assert views.last_version(c, relation.id) == step.last.id, "only one refresh of a view at a time"
                if not views.is_barrier(c, step.target.id):
                    return  # pruned while this refresh was being planned: the next one goes to a newer barrier
                if found.rows:
                    runs.add(
                        c,
                        relation.id,
                        first_index=step.last.id + 1,
                        last_index=step.target.id,
                        path=path,
                        rows=found.rows,
                        bytes=found.bytes,
                        missing=False,
                        schema_version=relation.schema_version,
                        base_index=-1,
                        before_path=before_path,
                    )
                views.add_version(c, relation.id, step.target.id)
                if step.obstacle:  # recomputed
                    views.followed(c, relation.id, step.after.keys())
                views.record(c, relation.id, done)
                if relation.state is TableState.FAILED:
                    relations.set_state(c, relation.id, TableState.LIVE)
                barriers.prune(c, begun)
        crash.here("view.published")


def _collected(signed: DataFrame) -> pa.Table | None:
    """The signed rows of a difference; None if there are too many for one process."""
    rows = plan(signed.limit(LARGE_ROWS + 1)).toArrow()
    return None if rows.num_rows > LARGE_ROWS else rows


def _none(relation: RelationInfo) -> pa.Table:
    """No signed rows."""
    return arrow_schema(relation.columns).append(pa.field(WEIGHT, pa.int32())).empty_table()


def _chosen(relation: RelationInfo, step: Step, past: Sequence[Refresh]) -> str:
    """Why to recompute although the changes would do; empty: they do."""
    wanted = relation.options.get("refresh", "auto")
    if wanted == "full":
        return "refresh = 'full'"
    if wanted == "incremental":
        return ""
    return why_full(past, sum(step.changes.values()), step.rows)
