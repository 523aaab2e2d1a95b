"""Decides when overlays become runs and when they are folded: within a budget, most urgent first."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from functools import partial

from headwater.engine.commit.ahead import ahead_bytes
from headwater.engine.commit.base_writer import BaseWriter
from headwater.engine.commit.committer import Committer
from headwater.engine.commit.holes import scan_again
from headwater.engine.failures import Who
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations
from headwater.model import Layout, RelationInfo, TableState
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.settings.table import DEFAULTS, Settings

log = logging.getLogger(__name__)

HOLES_S = 2.0  # how often the overlay of a table that is being filled is searched for keys to scan again
PRESSING = 0.5  # of changelog.ahead_bytes
UNSETTLED_CHANGES = 200_000  # an unsettled table has no runs, so its overlay is folded earlier
UNSETTLED_SPANS = 1_000  # each is judged by its own scan's snapshot, and is part of every layout until it is folded


@dataclass(frozen=True, slots=True)
class Unfolded:
    """How much of a relation is not in its base."""

    relation: RelationInfo
    changes: int
    layout: Layout
    index: int
    folded_at: float
    settings: Settings = DEFAULTS
    pressing: bool = False  # its changelog is far ahead, and may soon pause its capture

    @property
    def settled(self) -> bool:
        return self.layout.settled

    def urgent(self) -> bool:
        """Whether the overlay is at its cap and must be folded regardless of the budget."""
        return self.changes >= (self.settings.fold_changes if self.settled else UNSETTLED_CHANGES)

    def due(self, now: float) -> bool:
        if self.urgent() or (self.layout.complete and not self.settled):
            return True
        if len(self.layout.spans) >= UNSETTLED_SPANS:
            return True
        return self.changes > 0 and self._waited(now)

    def idle(self, now: float) -> bool:
        """Whether it has not changed for so long that it should stop holding back the changelog of others."""
        behind = self.settled and not self.changes and self.layout.index_for(self.relation) < self.index
        return behind and self._waited(now)

    def order(self) -> tuple[bool, int]:
        """Where the changelog is far ahead, the table that holds it back comes first; otherwise the largest overlay."""
        if self.pressing:
            return False, self.layout.index_for(self.relation)
        return True, -self.changes

    def _waited(self, now: float) -> bool:
        return self.pressing or now - self.folded_at >= self.settings.fold_age_s


class Folds:
    """One round per tick; at most one fold at a time."""

    def __init__(
        self, home: Home, leases: Leases, committer: Committer, base_writer: BaseWriter, reader: Reader, guard: Guard
    ) -> None:
        self._home = home
        self._leases = leases
        self._committer = committer
        self._base_writer = base_writer
        self._reader = reader
        self._guard = guard
        self._rest_until = 0.0
        self._holes_at: dict[int, float] = {}
        self.changes: dict[int, int] = {}  # relation → changes that are not in its base, as of the last tick

    def tick(self) -> None:
        """Turns long tails into runs, then folds the overlay that is most due, if the budget allows."""
        self._fold_failed()
        unfolded = [o for o in self._unfolded() if not self._maintain(o)]
        if idle := [o.relation.id for o in unfolded if o.idle(time.time())]:
            self._committer.advance(idle)
        due = sorted((o for o in unfolded if o.due(time.time())), key=Unfolded.order)
        for overlay in due:
            if overlay.urgent() or overlay.pressing or time.monotonic() >= self._rest_until:
                work = partial(self._attempted, overlay.relation.id)
                if self._guard.attempt("fold", overlay.relation.id, work, False):
                    return

    def _attempted(self, relation_id: int) -> bool:
        """Folds; True even if there was nothing to fold. (If it fails or is backing off, the next one is tried.)"""
        self.fold(relation_id)
        return True

    def _maintain(self, o: Unfolded) -> bool:
        """Turns a long tail into runs, and schedules scans of keys that nothing else can complete.

        True while there is more of that to do: the fold has to wait.
        """
        if not o.changes:
            return False
        id = o.relation.id
        searched = not o.settled or o.relation.partial
        if searched and self._guard.attempt("scan again", id, partial(self._scan_holes, o), False):
            return True
        if not o.settled or o.relation.view is not None:
            return False
        return self._guard.attempt(
            "run", id, partial(self._base_writer.make_runs, o.relation, o.layout, o.index), False
        )

    def _fold_failed(self) -> None:
        """Folds failed tables up to where they stopped, so that they no longer need the changelog."""
        with self._home.meta.read() as c:
            newest = epochs.newest(c)
            failed = [r for r in relations.tables(c) if r.state is TableState.FAILED]
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
            return  # its scans saw later states than the last readable one: it keeps its claim up to the limit
        if stop > layout.index_for(relation) or not layout.settled:
            self._committer.fold(relation.id, upto=stop)
        with self._home.meta.owned(self._leases.of(Name.relation(relation.id))) as c:
            newest = epochs.newest(c)
            folded = None if newest is None else epochs.layout_at(c, relation.id, newest.id)
            if folded is None or not folded.settled:
                return  # dropped meanwhile, or covered past the index where it stopped
            relations.set_stopped(c, relation.id, folded.index_for(relation))
        log.info("failed table folded name=%s index=%s", relation.name, folded.index_for(relation))

    def _scan_holes(self, o: Unfolded) -> bool:
        now = time.monotonic()
        if now < self._holes_at.get(o.relation.id, 0.0):
            return False
        self._holes_at[o.relation.id] = now + HOLES_S
        holes = self._reader.holes(o.relation, o.layout, o.index)
        if not holes.num_rows:
            return False
        log.info("scanning keys again relation=%s keys=%s", o.relation.id, holes.num_rows)
        with self._committer.exclusive(o.relation.id):
            return scan_again(self._home, self._leases.of(Name.relation(o.relation.id)), o.relation, holes)

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

    def _unfolded(self) -> list[Unfolded]:
        """Every table's overlay at the newest epoch, with a constant number of queries to meta."""
        with self._home.meta.read() as c:
            newest = epochs.newest(c)
            if newest is None:
                return []
            known = [r for r in relations.all(c) if r.view is not None or r.state is not TableState.FAILED]
            layouts, folded = epochs.layouts_at(c, newest.id), relations.folded_times(c)
            readable = [r for r in known if r.id in layouts and layouts[r.id].spans]
            found = [(r, layouts[r.id], changes_of.current(c, r, newest)) for r in readable]
            self.changes = changes_of.counts(c, [(r, layout.index_for(r), index) for r, layout, index in found])
            ahead = ahead_bytes(c, self._home.live.failures)
        limit = PRESSING * self._home.settings.changelog_ahead_bytes or math.inf
        pressing = {id for id, size in ahead.items() if size > limit}
        return [
            Unfolded(
                *(r, self.changes[r.id], layout, i, folded[r.id], self._home.settings),
                pressing=changes_of.connection_of(r) in pressing,
            )
            for r, layout, i in found
        ]
