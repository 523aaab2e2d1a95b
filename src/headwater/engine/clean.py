"""Removes what nobody needs any more: old segments, retired files, thinned epochs, files of dropped tables."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sqlalchemy.engine import Connection

from headwater import config
from headwater.changelog import retention, segment
from headwater.engine.home import Home
from headwater.meta import connections, epochs, lease, merged, relations, runs, segments
from headwater.meta.lease import Lease
from headwater.model import TableState
from headwater.relation.overlay import Overlays
from headwater.relation.upkeep import orphans

RETIRED_KEPT_S = 120.0  # a reader that has chosen a file has opened it by then


@dataclass(slots=True)
class Cleaner:
    """One round per call. Meta forgets first, then files go: a crash in between leaves only orphans for a later one."""

    home: Home
    held: Lease
    overlays: Overlays
    _dropped: dict[str, int] = field(default_factory=dict)  # folder of a dropped table → the last pin that may need it

    def clean(self) -> None:
        with self.home.meta.write() as c:
            lease.check(c, self.held)
            epochs.thin(c, time.time() - config.HISTORY_S)
            needed = {x.id: _needed_index(c, x.id, epochs.oldest(c)) for x in connections.all(c)}
            kept = {x.id: float(x.options.get("retention.hours", "24")) * 3600 for x in connections.all(c)}
            before = min(time.time() - min(RETIRED_KEPT_S, config.HISTORY_S), epochs.unread_since(c))
            retired = [*runs.remove_retired(c, before), *merged.remove_retired(c, before)]
        for path in retired:
            self.home.storage.remove(path)
        for connection_id, index in needed.items():
            meta, storage = self.home.meta, self.home.storage
            retention.expire(meta, storage, connection_id, needed_after=index, keep_s=kept[connection_id])
        with self.home.meta.write() as c:
            lease.check(c, self.held)
            segments.remove_schemas(c)
        self.overlays.sweep()
        self._remove_dropped()

    def _remove_dropped(self) -> None:
        """Files of tables that are no more, as soon as no statement runs that began before they were dropped."""
        with self.home.meta.read() as c:
            oldest, newest = epochs.pins(c)
            alive = {str(r.id) for r in relations.all(c)}
        for folder in ("warehouse", "runs"):
            root = self.home.path / folder
            for child in sorted(root.iterdir()) if root.exists() else ():
                path = f"{folder}/{child.name}"
                if child.name in alive:
                    continue
                last = self._dropped.setdefault(path, newest)
                if oldest is None or oldest > last:
                    self.home.storage.remove(path)
                    del self._dropped[path]


def clean_start(home: Home) -> None:
    """Removes what a crash left between a file and its record: runs and merged segments. Before anything else runs.

    Segments of captures are not looked at: a capture that starts removes its own, by their fence (engine/capture.py).
    """
    found = [*home.storage.list("runs"), *(p for p in home.storage.list("changelog") if segment.is_merged(p))]
    with home.meta.read() as c:
        known = runs.paths(c) | merged.paths(c)
    for path in orphans(found, known):
        home.storage.remove(path)


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
