"""Deletes strays: files of tasks that outlived their owner or were repeated, and of work that failed halfway.

Files that were ever part of a base are left to VACUUM: other engines may be reading that version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy.engine import Connection

from headwater.backfill.files import scan_label
from headwater.changelog import segment
from headwater.engine.commit import numbers
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.meta import connections, epochs, intents, merged, relations, runs, spans
from headwater.meta.intents import Cover, Fold
from headwater.model import RelationInfo
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.ownership.permit import written
from headwater.ownership.strays import strays
from headwater.relation import base, commits
from headwater.relation.fold import fold_label
from headwater.relation.runs import folder as run_folder

AGAIN_S = 300.0  # until the same folder is checked again: a late task can write at any time
JOB = "sweep"  # the name under which failures are shown
MOST = 100  # relations and connections per round, so that a round does not grow with their number

log = logging.getLogger(__name__)
Recorded = Callable[[Connection], set[str]]


@dataclass(frozen=True, slots=True)
class _Known:
    """Files that are or were part of a base, and the version up to which its log was read for them."""

    files: frozenset[str] = frozenset()
    version: int = -1


@dataclass(slots=True)
class Sweeper:
    """Call `sweep` repeatedly from one thread. It lists files first and reads meta afterwards: see `strays`."""

    home: Home
    leases: Leases
    _looked: dict[Who, float] = field(default_factory=dict)
    _known: dict[int, _Known] = field(default_factory=dict)  # relation → what its base has had

    def sweep(self) -> None:
        """Checks the folders that were checked longest ago. An error affects only its own table or connection."""
        looks = self._looks()
        self._looked = {who: at for who, at in self._looked.items() if who in looks}
        self._known = {id: known for id, known in self._known.items() if Who(JOB, table=id) in looks}
        now, again_s = time.monotonic(), min(AGAIN_S, self.home.settings.history_s)
        due = [who for who in looks if who not in self._looked or now - self._looked[who] >= again_s]
        for who in sorted(due, key=lambda who: self._looked.get(who, 0.0))[:MOST]:
            self._looked[who] = now
            self.home.live.failures.attempt(who, looks[who], None)

    def _looks(self) -> dict[Who, Callable[[], None]]:
        """Everything there is to check."""
        with self.home.meta.read() as c:
            tables, known = relations.all(c), connections.all(c)
        looks: dict[Who, Callable[[], None]] = {}
        for relation in tables:
            looks[Who(JOB, table=relation.id)] = partial(self._relation, relation)
        for connection in known:
            looks[Who(JOB, connection=connection.id)] = partial(self._changelog, connection.id)
        return looks

    def _relation(self, relation: RelationInfo) -> None:
        self._runs(relation.id)
        if relation.base_version >= 0:
            self._base(relation)

    def _changelog(self, connection_id: int) -> None:
        """Checks merged segments. A capture deletes its own strays when it starts."""
        found = [path for path in self.home.storage.list(segment.folder(connection_id)) if segment.is_merged(path)]
        recorded = partial(merged.paths, connection_id=connection_id)
        self._unrecorded(segment.folder(connection_id), found, self.leases.server, recorded)

    def _runs(self, relation_id: int) -> None:
        found = list(self.home.storage.list(run_folder(relation_id)))
        recorded = partial(runs.paths, relation_id=relation_id)
        self._unrecorded(run_folder(relation_id), found, self._lease(relation_id), recorded)

    def _unrecorded(self, folder: str, found: list[str], lease: Lease, recorded: Recorded) -> None:
        """Deletes files that meta does not know, unless this process is writing to the folder."""
        if folder in lease.under_way:
            return
        with self.home.meta.read() as c:
            gone = strays(found, lease.fence, recorded=recorded(c))
        if gone:  # rare. A write transaction waits for a COMMIT whose response was lost and that may record them
            with self.home.meta.owned(lease) as c:
                gone = strays(gone, lease.fence, recorded=recorded(c))
        self._remove(gone)

    def _base(self, relation: RelationInfo) -> None:
        """Checks files of scans and of folds that rewrite a base. (VACUUM handles files that Spark named.)"""
        path = relation.base_path
        found = {p for p in self.home.storage.list(path) if written(p) is not None}
        before = self._known.get(relation.id, _Known())
        had = found & before.files
        if had == found:
            return
        with self.home.meta.read() as c:
            scanned = [f for s in spans.uncovered(c, relation.id) for f in s.files]
            scanning = spans.scanning(c, relation.id)
            decided = intents.all(c, relation.id)
            versions = epochs.base_versions(c, relation.id)
            if relations.get_or_none(c, relation.id) is None:
                return  # dropped meanwhile
        added = [f for i in decided if isinstance(i.work, Cover) for f in i.work.files]
        folding = [numbers.first(i).version for i in decided if isinstance(i.work, Fold)]
        newest = base.current_version(self.home.storage, path)
        had |= found & self._had(path, before.version, newest)
        self._known[relation.id] = _Known(frozenset(had), newest)
        gone = strays(
            found,
            self._lease(relation.id).fence,
            recorded=had | {f"{path}/{f.path}" for f in (*scanned, *added)},
            under_way={scan_label(id) for id in scanning},
            decided={fold_label(version) for version in folding},
        )
        if gone:  # rare. Every version that can be read is checked too, in case its log entries are gone
            readable = {f"{path}/{name}" for v in versions for name in base.files(self.home.storage, path, v)}
            self._remove([p for p in gone if p not in readable])

    def _had(self, path: str, after: int, newest: int) -> set[str]:
        """The files of the newest version, and those that commits after an earlier version removed."""
        storage = self.home.storage
        names = base.files(storage, path, newest) | commits.removed(storage, path, after, newest)
        return {f"{path}/{name}" for name in names}

    def _lease(self, relation_id: int) -> Lease:
        return self.leases.of(Name.relation(relation_id))

    def _remove(self, paths: list[str]) -> None:
        if paths:
            log.info("strays removed count=%s first=%s", len(paths), paths[0])
            self.home.storage.remove(paths)
