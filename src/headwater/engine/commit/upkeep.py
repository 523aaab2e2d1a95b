"""Online upkeep: merges segments, rewrites bases, removes dead files; one at a time, within a budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from headwater.changelog import merge
from headwater.engine.commit.committer import Committer
from headwater.engine.failures import Who
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.engine.spark import jobs
from headwater.meta import connections, epochs, intents, relations, spans
from headwater.model import RelationInfo, SpanState, TableState
from headwater.ownership.lease import Leases
from headwater.relation import base, commits, rewrite
from headwater.relation.upkeep import Rewrite, checkpoint_due, due, retention_hours, vacuum_due

log = logging.getLogger(__name__)

LOOK_S = 60.0  # between checks of a base whose version has not changed; less if the history is short
LOG_KEPT_S = 24 * 3600.0  # of a base's log; no epoch lives that long, and an untrimmed log grows forever
MERGES = 8  # per connection and tick, so that a backlog does not block the rest


@dataclass(slots=True)
class _Looked:
    """When this process last checked a base, and when to check it next."""

    version: int = -1
    at: float = 0.0
    again_at: float = 0.0  # or as soon as the version changes
    vacuum_at: float = 0.0

    def due(self, version: int, now: float) -> bool:
        return now >= self.again_at or version != self.version


@dataclass(slots=True)
class Upkeep:
    """Call `tick` repeatedly from one thread."""

    home: Home
    leases: Leases
    committer: Committer
    session: Callable[[], SparkSession]
    guard: Guard
    _rest_until: float = 0.0
    _looked: dict[int, _Looked] = field(default_factory=dict)

    def tick(self) -> None:
        """Merges segments, then maintains the base that was checked longest ago, if the budget allows."""
        self.merge_segments()
        if time.monotonic() < self._rest_until:
            return
        with self.home.meta.read() as c:
            found = [r for r in relations.all(c) if r.base_version >= 0 and r.state is not TableState.FAILED]
        for gone in self._looked.keys() - {r.id for r in found}:
            del self._looked[gone]
        for relation in sorted(found, key=lambda r: self._of(r).at):
            looked, now = self._of(relation), time.monotonic()
            if looked.due(relation.base_version, now):
                looked.version, looked.at = relation.base_version, now
                looked.again_at = now + min(LOOK_S, self.home.settings.history_s / 4)
                if self.guard.attempt("upkeep", relation.id, partial(self._maintained, relation), False):
                    return

    def merge_segments(self) -> None:
        """Merges small, old segments of every connection."""
        with self.home.meta.read() as c:
            known = [x.id for x in connections.all(c)]
        for id in known:
            who = Who("merge", connection=id)
            self.home.live.failures.attempt(who, partial(self._merge_some, id), None)

    def _merge_some(self, connection_id: int) -> None:
        for _ in range(MERGES):
            if not self._merged(connection_id):
                return

    def _merged(self, connection_id: int) -> bool:
        new = merge.merge_once(
            self.home.meta,
            self.home.storage,
            connection_id,
            self.leases.server,
            now=time.time(),
            age_s=self.home.settings.segment_age_s,
            most_bytes=self.home.settings.segment_bytes,
        )
        return new is not None

    def maintain(self, relation: RelationInfo) -> bool:
        """Does the first thing that the relation's base needs; False if it needs nothing."""
        storage = self.home.storage
        version, files = rewrite.look(storage, relation)
        # a base that is being filled is not rewritten: spans would wait for it, and one rewrite at the end is enough
        way = None if relation.state is TableState.FILLING else due(files, many=self.home.settings.base_files)
        if way is not None and self._rewritten(relation, way):
            return True
        if checkpoint_due(version, commits.last_checkpoint(storage, relation.base_path)):
            self.committer.upkeep(relation.id, lambda current: rewrite.checkpoint(storage, current), checkpoint=True)
            return True
        return self._vacuumed(relation, sum(f.bytes for f in files))

    def _of(self, relation: RelationInfo) -> _Looked:
        return self._looked.setdefault(relation.id, _Looked())

    def _maintained(self, relation: RelationInfo) -> bool:
        """Maintains one base, and then pauses for a proportional time, even after a failure."""
        began, did = time.monotonic(), True
        try:
            did = self.maintain(relation)
        finally:
            if did:
                took = time.monotonic() - began
                self._rest_until = time.monotonic() + took * (1 / self.home.settings.upkeep_budget - 1)
        if did:
            self._of(relation).again_at = 0.0  # there may be more to do
        return did

    def _rewritten(self, relation: RelationInfo, way: Rewrite) -> bool:
        began = time.monotonic()

        def work(current: RelationInfo) -> None:
            session = self.session()
            log.info("rewriting relation=%s way=%s bytes=%s", relation.id, way.way, way.bytes)
            with jobs.pool(session, "upkeep"):
                rewrite.rewrite(session, self.home.storage, current, way)

        if self.committer.upkeep(relation.id, work) is None:
            return False
        log.info("rewritten relation=%s way=%s seconds=%.2f", relation.id, way.way, time.monotonic() - began)
        return True

    def _vacuumed(self, relation: RelationInfo, live_bytes: int) -> bool:
        """Trims the log, and removes dead files if every live file next to the base belongs to a version in meta.

        Files of uncovered scans belong to no version, so nothing is removed while there are any. A scan that starts
        meanwhile is safe: its files are newer than anything VACUUM removes.
        """
        storage, looked = self.home.storage, self._of(relation)
        if time.monotonic() < looked.vacuum_at:
            return False
        with self.committer.exclusive(relation.id):
            with self.home.meta.read() as c:
                if intents.all(c, relation.id) or _has_loose_files(spans.counts(c, relation.id)):
                    return False
                needed = {relations.get(c, relation.id).base_version, *epochs.base_versions(c, relation.id)}
            commits.trim(storage, relation.base_path, min(needed), time.time() - LOG_KEPT_S)
            newest = base.current_version(storage, relation.base_path)
            at = None if min(needed) >= newest else rewrite.committed_at(storage, relation, min(needed))
            if at is None and min(needed) < newest:
                return False  # so old that its commit is gone: we do not know when its files were removed
            hours = retention_hours(time.time(), self.home.settings.history_s, at)
            dead = rewrite.dead(storage, relation, time.time() - hours * 3600)
            if not vacuum_due(dead.files, dead.bytes, live_bytes, many=self.home.settings.base_files):
                return False
            session = self.session()
            with jobs.pool(session, "upkeep"):
                rewrite.vacuum(session, storage, relation, hours)
        looked.vacuum_at = time.monotonic() + self.home.settings.history_s  # nothing removed since is dead before that
        log.info("vacuumed relation=%s", relation.id)
        return True


def _has_loose_files(counts: dict[SpanState, int]) -> bool:
    """Whether a scan is running, or has written files that are not covered."""
    return bool(counts.get(SpanState.SCANNING) or counts.get(SpanState.SCANNED))
