"""Removes what is no longer needed: old segments, retired files, thinned epochs, strays, files of dropped tables."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial

from headwater.changelog import retention
from headwater.engine.commit import claims
from headwater.engine.commit.claims import Kept
from headwater.engine.commit.sweep import Sweeper
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.meta import connections, epochs, merged, relations, runs, segments
from headwater.ownership.lease import Leases
from headwater.relation.overlay import Overlays

RETIRED_KEPT_S = 120.0  # by then every reader that chose a file has opened it
OF_TABLES, OF_CONNECTIONS = ("warehouse", "runs"), ("changelog", "aside")  # one folder in each per id
FOLDERS = (*OF_TABLES, *OF_CONNECTIONS)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Cleaner:
    """One round per call. Meta is updated before files are removed, so a crash leaves orphans for a later round."""

    home: Home
    leases: Leases
    overlays: Overlays
    _sweeper: Sweeper = field(init=False)
    _dropped: dict[str, int] = field(default_factory=dict)  # folder of something dropped → last pin that may need it

    def __post_init__(self) -> None:
        self._sweeper = Sweeper(self.home, self.leases)

    def clean(self) -> None:
        """One round. A step that fails does not keep the others from being taken."""
        for job, step in (
            ("retention", self._forget),
            ("tail", self.overlays.sweep),
            ("sweep", self._sweeper.sweep),
            ("dropped", self._remove_dropped),
        ):
            self.home.live.failures.attempt(Who(job), step, None)

    def _forget(self) -> None:
        """Removes what meta no longer needs, from meta and then from the lake."""
        settings = self.home.settings
        with self.home.meta.owned(self.leases.server) as c:
            epochs.thin(c, time.time() - settings.history_s)
            kept = {x.id: claims.enforce(c, x, settings=settings) for x in connections.all(c)}
            before = min(time.time() - min(RETIRED_KEPT_S, settings.history_s), epochs.unread_since(c))
            retired = [*runs.remove_retired(c, before), *merged.remove_retired(c, before)]
        self.home.storage.remove(retired)
        for connection_id, what in kept.items():
            who = Who("retention", connection=connection_id)
            self.home.live.failures.attempt(who, partial(self._expire, connection_id, what), 0)
        with self.home.meta.owned(self.leases.server) as c:
            segments.remove_schemas(c)

    def _expire(self, connection_id: int, kept: Kept) -> int:
        expire = partial(retention.expire, self.home.meta, self.home.storage, connection_id)
        gone = expire(needed_after=kept.needed, keep_s=kept.keep_s)
        return gone + (expire(needed_after=min(kept.needed, kept.over), keep_s=0.0) if kept.over else 0)

    def _remove_dropped(self) -> None:
        """Deletes files of dropped tables and connections, once no statement runs that started before the drop.

        A late task or capture can create the folder again, and it is deleted again. Ids are never reused.
        """
        found = [(folder, child) for folder in FOLDERS for child in self.home.storage.folders(folder)]
        with self.home.meta.read() as c:  # after listing the folders: a table is known before it has one
            oldest, newest = epochs.pins(c)
            tables, known = {str(id) for id in relations.ids(c)}, {str(x.id) for x in connections.all(c)}
        for folder, child in found:
            if child in (tables if folder in OF_TABLES else known):
                continue
            path = f"{folder}/{child}"
            last = self._dropped.setdefault(path, newest)
            if oldest is None or oldest > last:
                log.info("removing the files of something dropped folder=%s", path)
                self.home.storage.remove_folder(path)
                del self._dropped[path]
                if folder in OF_TABLES:
                    self.overlays.dropped(int(child))
