"""Decides when overlays become runs and when they are folded: within a budget, the most urgent first."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial

from headwater.engine.commit.committer import Committer
from headwater.engine.commit.merger import Merger
from headwater.engine.failures import Who
from headwater.engine.fill.holes import scan_again
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.meta import epochs, progress, relations
from headwater.meta.lease import Lease
from headwater.meta.progress import Range
from headwater.model import Layout, RelationInfo, TableState
from headwater.settings.table import DEFAULTS, Settings

log = logging.getLogger(__name__)

HOLES_S = 2.0  # how often the overlay of a table that is being filled is searched for keys to scan again
UNSETTLED_CHANGES = 200_000  # before a table is settled there are no runs, so its overlay is folded earlier
UNSETTLED_SPANS = 1_000  # each is judged by what its own scan saw, and stands in every layout until it is folded


@dataclass(frozen=True, slots=True)
class Unfolded:
    """How much of a relation is not in its base."""

    relation: RelationInfo
    changes: int
    layout: Layout
    index: int
    folded_at: float
    settings: Settings = DEFAULTS

    @property
    def settled(self) -> bool:
        return self.layout.settled

    def urgent(self) -> bool:
        """The overlay is at its cap: it is folded whatever the budget says."""
        return self.changes >= (self.settings.fold_changes if self.settled else UNSETTLED_CHANGES)

    def due(self, now: float) -> bool:
        if self.urgent() or (self.layout.complete and not self.settled):
            return True
        if len(self.layout.spans) >= UNSETTLED_SPANS:
            return True
        return self.changes > 0 and now - self.folded_at >= self.settings.fold_age_s

    def idle(self, now: float) -> bool:
        """Nothing has changed for so long that it should not hold back the changelog of those that do change."""
        behind = self.settled and not self.changes and self.layout.log_index < self.index
        return behind and now - self.folded_at >= self.settings.fold_age_s


class Folds:
    """One look per tick; at most one fold at a time."""

    def __init__(
        self, home: Home, held: Lease, committer: Committer, merger: Merger, reader: Reader, guard: Guard
    ) -> None:
        self._home = home
        self._held = held
        self._committer = committer
        self._merger = merger
        self._reader = reader
        self._guard = guard
        self._rest_until = 0.0
        self._holes_at: dict[int, float] = {}
        self.changes: dict[int, int] = {}  # relation → changes that are not in its base, when last looked at

    def tick(self) -> None:
        """Makes runs of long tails, then folds the largest overlay that is due, if the budget allows."""
        self._put_to_rest()
        overlays = [o for o in self._overlays() if not self._tend(o)]
        if idle := [o.relation.id for o in overlays if o.idle(time.time())]:
            self._committer.advance(idle)
        due = sorted((o for o in overlays if o.due(time.time())), key=lambda o: -o.changes)
        for overlay in due:
            if overlay.urgent() or time.monotonic() >= self._rest_until:
                tried = partial(self._tried, overlay.relation.id)
                if self._guard.attempt("fold", overlay.relation.id, tried, False):
                    return

    def _tried(self, relation_id: int) -> bool:
        """Folds; True also if there was nothing to fold. One that fails or rests lets the next one have its turn."""
        self.fold(relation_id)
        return True

    def _tend(self, o: Unfolded) -> bool:
        """Makes a run of a long tail; has keys scanned again that nothing can complete. True if it did that."""
        if not o.changes:
            return False
        id = o.relation.id
        searched = not o.settled or o.relation.partial
        if searched and self._guard.attempt("scan again", id, partial(self._scan_holes, o), False):
            return True
        if o.settled:
            make = partial(self._merger.make_run, o.relation, o.layout, o.index, self._held)
            self._guard.attempt("run", id, make, False)
        return False

    def _put_to_rest(self) -> None:
        """Tables that have failed are folded up to where they stopped, so that they need no changelog any more."""
        with self._home.meta.read() as c:
            newest = epochs.newest(c)
            failed = [r for r in relations.all(c) if r.state is TableState.FAILED]
            open = [r for r in failed if r.stopped_at is None and not r.history_missing]
            layouts = epochs.layouts_at(c, newest.id) if newest is not None and open else {}
        for relation in open:
            layout = layouts.get(relation.id)
            if newest is not None and layout is not None and layout.complete:
                work = partial(self._fold_to_stop, relation, layout, newest.index_for(relation))
                self._home.live.failures.attempt(Who("fold", table=relation.id), work, None)

    def _fold_to_stop(self, relation: RelationInfo, layout: Layout, index: int) -> None:
        stop = self._reader.last_readable(relation, layout, index)
        if stop < max(s.cover_index for s in layout.spans) and not layout.settled:
            return  # its scans saw more than the log can tell of that moment: its claim lasts until the limit
        if stop > layout.log_index or not layout.settled:
            self._committer.fold(relation.id, upto=stop)
        with self._home.meta.owned(self._held) as c:
            newest = epochs.newest(c)
            folded = None if newest is None else epochs.layout_at(c, relation.id, newest.id)
            if folded is None or not folded.settled:
                return  # dropped meanwhile, or covered past the place where it stopped
            relations.set_stopped(c, relation.id, folded.log_index)
        log.info("failed table put to rest name=%s index=%s", relation.name, folded.log_index)

    def _scan_holes(self, o: Unfolded) -> bool:
        now = time.monotonic()
        if now < self._holes_at.get(o.relation.id, 0.0):
            return False
        self._holes_at[o.relation.id] = now + HOLES_S
        holes = self._reader.holes(o.relation, o.layout, o.index)
        if not holes.num_rows:
            return False
        log.info("keys are scanned again relation=%s keys=%s", o.relation.id, holes.num_rows)
        with self._committer.exclusive(o.relation.id):
            return scan_again(self._home, self._held, o.relation, holes)

    def fold(self, relation_id: int) -> bool:
        """Folds a relation now; False if there was nothing to fold."""
        began = time.monotonic()
        folded = self._committer.fold(relation_id) is not None
        took = time.monotonic() - began
        self._rest_until = time.monotonic() + took * (1 / self._home.settings.fold_budget - 1)
        if folded:
            self._home.live.counters.took("headwater_fold_seconds", took, relation_id)
            log.info("folded relation=%s seconds=%.2f", relation_id, took)
        return folded

    def _overlays(self) -> list[Unfolded]:
        """Every table's overlay at the newest epoch: a few questions to meta however many tables there are."""
        with self._home.meta.read() as c:
            newest = epochs.newest(c)
            if newest is None:
                return []
            known = [r for r in relations.all(c) if r.state is not TableState.FAILED]
            layouts, folded = epochs.layouts_at(c, newest.id), relations.folded_times(c)
            found = [(r, layouts[r.id], newest.index_for(r)) for r in known if r.id in layouts]
            ranges = {
                r.id: Range(r.origin.connection_id, r.origin.upstream_id, layout.log_index, index)
                for r, layout, index in found
                if layout.spans
            }
            self.changes = progress.changes(c, ranges)
        return [
            Unfolded(r, self.changes[r.id], layout, i, folded[r.id], self._home.settings)
            for r, layout, i in found
            if r.id in ranges
        ]
