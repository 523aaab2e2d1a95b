"""How far materialized views are: from meta, plus what only the running server knows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.engine.live import Serving
from headwater.meta import epochs, progress, relations, views
from headwater.meta.progress import Progress
from headwater.meta.views import Barrier, Refresh
from headwater.model import Control, RelationInfo, TableState

UNFINISHED = (TableState.DEFINED, TableState.WAITING, TableState.FILLING)
INPUTS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ViewProgress:
    """Where a view is: the newest epoch at which it is exact, its lag, and what it waits for.

    `epoch` is 0 and `lag_s` None before its first fill ends; `last` is its last refresh. `error` is its own, or that of
    the copy that will replace it.
    """

    epoch: int
    lag_s: float | None
    last: Refresh | None
    waiting_for: str
    error: dict[str, str] | None


def progress_of(c: Connection, found: Sequence[RelationInfo], server: Serving | None) -> dict[int, ViewProgress]:
    """The progress of the views among these relations, by their ids."""
    by_id = {r.id: r for r in found}
    barriers = views.barriers(c)
    beside = {r.replaces: r for r in found if r.replaces and r.view is not None}
    reached = progress.of_all(c) if beside else {}
    return {
        r.id: _progress(c, r, by_id, barriers, server, beside.get(r.id), reached) for r in found if r.view is not None
    }


def _progress(
    c: Connection,
    r: RelationInfo,
    by_id: Mapping[int, RelationInfo],
    barriers: Sequence[Barrier],
    server: Serving | None,
    beside: RelationInfo | None,
    reached: Mapping[int, Progress],
) -> ViewProgress:
    version = views.last_version(c, r.id)
    done = views.refreshes(c, r.id)
    lag_s = _lag(c, version, barriers) if version else None
    waits_for = _waits_for(r, by_id, server, lag_s)
    if beside is not None and not waits_for and beside.error is None:
        waits_for = ": ".join(x for x in ("its refresh from scratch", slices_done(reached[beside.id])) if x)
    error = r.error or (beside.error if beside is not None else None)
    return ViewProgress(version, lag_s, done[0] if done else None, waits_for, error)


def slices_done(p: Progress) -> str:
    """How far a fill is, as text; empty before it begins."""
    return f"{p.scanned} of {p.total} slices are computed" if p.total else ""


def _lag(c: Connection, version: int, barriers: Sequence[Barrier]) -> float:
    """For how long there has been a barrier that the view has not reached."""
    ahead = next((b for b in barriers if b.epoch > version), None)
    epoch = epochs.get(c, ahead.epoch) if ahead is not None else None
    return 0.0 if epoch is None else max(0.0, time.time() - epoch.created_at)


def _waits_for(r: RelationInfo, by_id: Mapping[int, RelationInfo], server: Serving | None, lag_s: float | None) -> str:
    """What a view that is not filled, or falls behind, is waiting for, as text; empty while it makes progress."""
    if r.state is TableState.FAILED or (r.state not in UNFINISHED and not lag_s):
        return ""
    if r.control is Control.PAUSED:
        return f"RESUME MATERIALIZED VIEW {r.name.removeprefix(relations.BESIDE)}"
    if server is None:
        return "a server: start `headwater run`"
    if waits := server.waiting_for(r.id):
        return waits
    assert r.view is not None
    inputs = [by_id[id] for id in r.view.inputs if id in by_id]
    short = [f"{x.name} ({x.shown_state})" for x in inputs if x.shown_state != TableState.LIVE or x.block]
    more = f" and {len(short) - INPUTS_SHOWN} more" if len(short) > INPUTS_SHOWN else ""
    return ", ".join(short[:INPUTS_SHOWN]) + more
