"""One step of one view: from its last version to a barrier, as one run that is published with the new version."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy.engine import Connection

from headwater import crash, view
from headwater.decode.values import arrow_schema
from headwater.engine.home import Home
from headwater.engine.query.between import At, Frames, MovedTable, MovedView, Unchanged, at, obstacle
from headwater.engine.query.read import Reader
from headwater.engine.spark.jobs import plan, pool
from headwater.engine.view import barriers
from headwater.engine.view.definition import Trees
from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations, runs, spans, views
from headwater.meta.views import Refresh
from headwater.model import Epoch, RelationInfo, TableState
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.relation.overlay import Overlays
from headwater.relation.runs import folder
from headwater.view.cost import why_full
from headwater.view.shape import WEIGHT
from headwater.view.signed import Change, change, write_change

POOL = "views"


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
    obstacle: str  # why the change of some input cannot be told from its changes
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
    changes, why = dict[int, int](), ""
    for r in inputs:
        found = before[r.id]
        count = 0 if found is None else changes_of.count(c, r, found.index, whole[r.id].index)
        replaced = found is None or (found.layout.complete and not count and _reread(c, r, last, target))
        if count or replaced:
            changes[r.id] = count
            why = why or obstacle(c, r, last, target)
    rows = sum(spans.rows(c, r.id) for r in inputs)
    return Step(relation, last, target, state, before, whole, changes, why, rows)


def _reread(c: Connection, relation: RelationInfo, last: Epoch, target: Epoch) -> bool:
    """Whether part of a table was scanned again between two epochs, which brings rows without changes."""
    since = [layout for epoch, layout in epochs.layouts_of(c, relation.id) if last.id < epoch <= target.id]
    return not all(layout.complete for layout in since)


class Refresher:
    """Moves views. Thread-safe for different views."""

    def __init__(self, home: Home, leases: Leases, reader: Reader, trees: Trees) -> None:
        self._home = home
        self._leases = leases
        self._reader = reader
        self._trees = trees
        # apart from the readers' own cache, whose entries for the same relation it would drop
        self._deltas = Overlays(home.storage, home.meta, changes=reader.overlays.changes, settings=home.settings)

    def refresh(self, step: Step, begun: Mapping[int, int]) -> Refresh:
        """Computes the change and publishes it with the version."""
        began, relation = time.monotonic(), step.relation
        lease = self._leases.of(Name.relation(relation.id))
        with self._home.meta.read() as c:
            past = views.refreshes(c, relation.id)
        signed, strategy, reason = self._computed(step, past)
        found = change(relation, signed, step.target.id)
        read = sum(step.changes.values()) if strategy != "full" else step.rows
        done = Refresh(
            step.last.id, step.target.id, strategy, reason, read, found.rows, (time.monotonic() - began) * 1000
        )
        self._publish(step, found, done, lease, begun)
        return done

    def _computed(self, step: Step, past: Sequence[Refresh]) -> tuple[pa.Table, str, str]:
        """The signed change of the stored rows, how it was computed, and why so."""
        relation = step.relation
        with self._reader.session_for(POOL) as session, ExitStack() as stack, pool(session, POOL):
            frames = Frames(session, self._home, self._reader.overlays, stack)
            tree = self._trees.of(relation)
            why = step.obstacle or _chosen(relation, step, past)
            names = {id: found.relation.name for id, found in step.after.items()}
            state = frames.stored(step.state)
            if why:
                inputs = {names[id]: frames.of(found) for id, found in step.after.items()}
                new = view.recompute(tree, inputs)
                return plan(view.difference(view.shape(tree), state, new)).toArrow(), "full", why
            moved = {names[id]: self._moved(frames, step, id) for id in step.after}
            found = view.refresh(tree, moved, state)
            rows = _none(step.relation) if found.delta is None else plan(found.delta).toArrow()
            return rows, found.strategy, found.reason

    def _moved(self, frames: Frames, step: Step, id: int) -> view.Moved:
        before, after = step.before[id], step.after[id]
        if id not in step.changes:
            return Unchanged(frames, after)
        assert before is not None
        kind = MovedTable if after.relation.view is None else MovedView
        found = kind(frames, self._deltas, before, after)
        found.prepare()
        return found

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
                views.record(c, relation.id, done)
                if relation.state is TableState.FAILED:
                    relations.set_state(c, relation.id, TableState.LIVE)
                barriers.prune(c, begun)
        crash.here("view.published")


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
