"""Removes what nobody needs any more: old segments, retired runs, thinned epochs, files of dropped tables."""

from __future__ import annotations

import time

from sqlalchemy.engine import Connection

from headwater.changelog import retention
from headwater.engine.home import Home
from headwater.meta import connections, epochs, lease, relations, runs
from headwater.meta.lease import Lease
from headwater.model import TableState
from headwater.relation.overlay import Overlays
from headwater.relation.upkeep import orphans

EPOCHS_KEPT_S = 600.0  # epochs of the last ten minutes can be named; older ones only by a pin
RETIRED_KEPT_S = 120.0  # a reader that has chosen a run has opened it by then


def clean(home: Home, held: Lease, overlays: Overlays) -> None:
    """One round. Meta forgets first, then files go: a crash in between leaves only orphans for the next round."""
    with home.meta.write() as c:
        lease.check(c, held)
        oldest = _oldest_epoch(c)
        epochs.thin(c, oldest)
        needed = {x.id: _needed_index(c, x.id, oldest) for x in connections.all(c)}
        kept = {x.id: float(x.options.get("retention.hours", "24")) * 3600 for x in connections.all(c)}
        retired = runs.remove_retired(c, time.time() - RETIRED_KEPT_S) if epochs.oldest_pinned(c) is None else []
    for path in retired:
        home.storage.remove(path)
    for connection_id, index in needed.items():
        retention.expire(home.meta, home.storage, connection_id, needed_after=index, keep_s=kept[connection_id])
    overlays.sweep()
    _remove_dropped(home)


def clean_start(home: Home) -> None:
    """Removes runs that a crash left between their file and their record. Only before anything else runs."""
    found = home.storage.list("runs")
    with home.meta.read() as c:
        known = runs.paths(c)
    for path in orphans(found, known):
        home.storage.remove(path)


def _oldest_epoch(c: Connection) -> int:
    """The oldest epoch that must stay readable."""
    pinned = epochs.oldest_pinned(c)
    recent = [e.id for e in epochs.recent(c, 10_000) if e.created_at > time.time() - EPOCHS_KEPT_S]
    newest = epochs.newest(c)
    candidates = [x for x in (pinned, recent[-1] if recent else None, newest.id if newest else None) if x is not None]
    return min(candidates, default=0)


def _needed_index(c: Connection, connection_id: int, oldest_epoch: int) -> int:
    """The index up to which no relation of a connection needs the changelog."""
    needed = connections.get(c, connection_id).committed_index
    for relation in relations.all(c, connection_id):
        layouts = epochs.needed_layouts(c, relation.id, oldest_epoch)
        complete = bool(layouts) and all(x.complete for x in layouts)
        if relation.state is not TableState.LIVE or not complete:
            needed = min(needed, relation.begin_index)
        needed = min([needed, *(x.log_index for x in layouts if x.spans)])
    return needed


def _remove_dropped(home: Home) -> None:
    """Files of tables that are no more, unless some reader may still be at them."""
    with home.meta.write() as c:
        if epochs.oldest_pinned(c) is not None:
            return
        alive = {str(r.id) for r in relations.all(c)}
    for folder in ("warehouse", "runs"):
        root = home.path / folder
        for child in sorted(root.iterdir()) if root.exists() else ():
            if child.name not in alive:
                home.storage.remove(f"{folder}/{child.name}")
