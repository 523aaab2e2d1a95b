"""Removes what nobody needs any more: old segments, retired files, thinned epochs, files of dropped tables."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial

from headwater.changelog import retention, segment
from headwater.engine.commit import claims
from headwater.engine.commit.claims import Kept
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.meta import connections, epochs, merged, relations, runs, segments
from headwater.meta.lease import Lease
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
        settings = self.home.settings
        with self.home.meta.owned(self.held) as c:
            epochs.thin(c, time.time() - settings.history_s)
            kept = {x.id: claims.enforce(c, x, epochs.oldest(c), settings=settings) for x in connections.all(c)}
            before = min(time.time() - min(RETIRED_KEPT_S, settings.history_s), epochs.unread_since(c))
            retired = [*runs.remove_retired(c, before), *merged.remove_retired(c, before)]
        self.home.storage.remove(retired)
        for connection_id, what in kept.items():
            who = Who("retention", connection=connection_id)
            self.home.live.failures.attempt(who, partial(self._expire, connection_id, what), 0)
        with self.home.meta.owned(self.held) as c:
            segments.remove_schemas(c)
        self.overlays.sweep()
        self._remove_dropped()

    def _expire(self, connection_id: int, kept: Kept) -> int:
        expire = partial(retention.expire, self.home.meta, self.home.storage, connection_id)
        gone = expire(needed_after=kept.needed, keep_s=kept.keep_s)
        return gone + (expire(needed_after=min(kept.needed, kept.over), keep_s=0.0) if kept.over else 0)

    def _remove_dropped(self) -> None:
        """Files of tables that are no more, as soon as no statement runs that began before they were dropped."""
        with self.home.meta.read() as c:
            oldest, newest = epochs.pins(c)
            alive = {str(r.id) for r in relations.all(c)}
        for folder in ("warehouse", "runs"):
            for child in self.home.storage.folders(folder):
                path = f"{folder}/{child}"
                if child in alive:
                    continue
                last = self._dropped.setdefault(path, newest)
                if oldest is None or oldest > last:
                    self.home.storage.remove_folder(path)
                    del self._dropped[path]


def clean_start(home: Home) -> None:
    """Removes what a crash left between a file and its record: runs and merged segments. Before anything else runs.

    Segments of captures are not looked at: a capture that starts removes its own, by their fence (capture/process.py).
    """
    found = [*home.storage.list("runs"), *(p for p in home.storage.list("changelog") if segment.is_merged(p))]
    with home.meta.read() as c:
        known = runs.paths(c) | merged.paths(c)
    home.storage.remove(orphans(found, known))
