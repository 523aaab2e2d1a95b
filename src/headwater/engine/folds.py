"""Decides when overlays become runs and when they are folded: within a budget, the most urgent first."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from headwater.config import FOLD_AGE_S, FOLD_BUDGET, OVERLAY_CHANGES
from headwater.engine.committer import Committer
from headwater.engine.home import Home
from headwater.engine.read import Reader
from headwater.errors import DataError, HeadwaterError
from headwater.meta import epochs, relations, segments
from headwater.model import RelationInfo, TableState

log = logging.getLogger(__name__)

UNSETTLED_CHANGES = 200_000  # before a table is settled there are no runs, so its overlay is folded earlier


@dataclass(frozen=True, slots=True)
class Overlay:
    """How much of a relation is not in its base."""

    relation: RelationInfo
    changes: int
    settled: bool
    complete: bool
    folded_at: float

    def urgent(self) -> bool:
        """The overlay is at its cap: it is folded whatever the budget says."""
        return self.changes >= (OVERLAY_CHANGES if self.settled else UNSETTLED_CHANGES)

    def due(self, now: float) -> bool:
        if self.urgent() or (self.complete and not self.settled):
            return True
        return self.changes > 0 and now - self.folded_at >= FOLD_AGE_S


class Folds:
    """One look per tick; at most one fold at a time."""

    def __init__(self, home: Home, committer: Committer, reader: Reader) -> None:
        self._home = home
        self._committer = committer
        self._reader = reader
        self._rest_until = 0.0

    def tick(self) -> None:
        """Makes runs of long tails, then folds the largest overlay that is due, if the budget allows."""
        overlays = self._overlays()
        for overlay in overlays:
            if overlay.settled:
                self._guard(overlay.relation, lambda r=overlay.relation: self._reader.make_run(r))
        due = sorted((o for o in overlays if o.due(time.time())), key=lambda o: -o.changes)
        for overlay in due:
            if overlay.urgent() or time.monotonic() >= self._rest_until:
                self._guard(overlay.relation, lambda r=overlay.relation: self.fold(r.id))
                return

    def fold(self, relation_id: int) -> bool:
        """Folds a relation now; False if there was nothing to fold."""
        began = time.monotonic()
        folded = self._committer.fold(relation_id) is not None
        took = time.monotonic() - began
        self._rest_until = time.monotonic() + took * (1 / FOLD_BUDGET - 1)
        if folded:
            log.info("folded relation=%s seconds=%.2f", relation_id, took)
        return folded

    def _guard(self, relation: RelationInfo, work: object) -> None:
        """A table whose changes cannot be decoded stops; the others go on."""
        try:
            work()  # type: ignore[operator]
        except DataError as e:
            log.error("table failed name=%s code=%s", relation.name, e.code)
            with self._home.meta.write() as c:
                relations.set_state(c, relation.id, TableState.FAILED, e)
        except HeadwaterError:
            raise

    def _overlays(self) -> list[Overlay]:
        found = []
        with self._home.meta.read() as c:
            newest = epochs.newest(c)
            for relation in relations.all(c):
                layout = epochs.layout_at(c, relation.id, newest.id) if newest else None
                if newest is None or layout is None or relation.state is TableState.FAILED:
                    continue
                index = newest.index_of(relation.connection_id)
                changes = segments.count_changes(
                    c, relation.connection_id, relation.upstream_id, layout.log_index, index
                )
                folded_at = relations.folded_at(c, relation.id)
                found.append(Overlay(relation, changes, layout.settled, layout.complete, folded_at))
        return found
