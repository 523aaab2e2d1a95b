"""Barriers in meta: when the next one comes, and which are kept. The rule is in `headwater.view.barrier`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy.engine import Connection

from headwater.errors import DataError
from headwater.meta import epochs, relations, spans, views
from headwater.model import Control, Epoch, RelationInfo, TableState
from headwater.view import barrier
from headwater.view.barrier import Barrier, Want

INTERVAL = "refresh.interval"
STALE = "view.stale"
WAITED_INTERVALS = 4  # a view goes to the next barrier of its rank, which may be two intervals away
DEFAULT_INTERVAL = "1"  # seconds


class Meeting:
    """The barriers and versions of all views, as one transaction sees them."""

    def __init__(self, c: Connection, begun: Mapping[int, int]) -> None:
        all_views = [r for r in relations.all(c) if r.view is not None]
        known = [r for r in all_views if not is_stale(r)]
        self._stale = {r.id for r in all_views if is_stale(r)}
        self.barriers = [Barrier(b.number, b.epoch) for b in views.barriers(c)]
        self._known = {r.id: r for r in known}
        past = relations.replaced(c)
        self._past = {r.id: r.replaced_by for r in past}
        counted = self._known.keys() | self._past.keys()
        at = views.versions(c)
        self.versions = {
            id: {b.number for b in self.barriers if b.epoch in found} for id, found in at.items() if id in counted
        }
        self._whole = _whole(c, [r for r in past if r.view is None], self.barriers)
        self._fills = set(views.fill_epochs(c).values())
        self.wants = {r.id: self._want(r, begun.get(r.id, 0)) for r in known if r.id in self.versions}

    def target(self, relation: RelationInfo) -> Barrier | None:
        """Where a filled view goes next; None if it is where it should be."""
        want = self.wants[relation.id]
        return barrier.target(want.after, self.barriers, barrier.usable_by(want.inputs, self.versions), want.least_rank)

    def in_turn(self, known: Iterable[RelationInfo]) -> list[RelationInfo]:
        """The filled views, the one with the oldest version first, so that with few slots each gets a turn."""
        return sorted((r for r in known if r.id in self.wants), key=lambda r: self.wants[r.id].last)

    def kept(self) -> set[int]:
        """The numbers of the barriers that somebody needs. A view that is being filled will have its version at one."""
        filling = {b.number for b in self.barriers if b.epoch in self._fills}
        return barrier.kept(self.barriers, self.versions, self.wants) | filling

    def useless(self) -> list[int]:
        """The replaced relations that nobody needs: all that could be read with one can be read with its replacement.

        Until that is so at a barrier that is not older, statements read the replaced one.
        """
        return [past for past, new in self._past.items() if self._caught_up(past, new)]

    def _caught_up(self, past: int, new: int) -> bool:
        at = {**self.versions, **self._whole}
        own = at.get(past, set())
        met = {id for id, numbers in self.versions.items() if id != past and numbers & own}
        others = {self._past.get(id, id) for id in met} - {new}
        return not own or (barrier.common(at, [new, *others]) or 0) >= max(own)

    def due(self, newest: Epoch, again: Collection[int] = ()) -> bool:
        """Whether the newest epoch is to become a barrier, or another one at the same epoch is needed.

        `again` are views whose last refresh failed and is to be retried: none goes to the same barrier twice.
        """
        if not self.barriers or newest.id > self.barriers[-1].epoch:
            return True
        if any(id in self.wants and self.wants[id].after >= self.barriers[-1].number for id in again):
            return True
        last = self.barriers[-1].epoch
        moved = min(b.number for b in self.barriers if b.epoch == last)
        return barrier.due(moved, self.versions, self._moving())

    def _moving(self) -> list[int]:
        """The filled views that are moving: neither they nor a view below them has stopped."""
        stopped = {r.id for r in self._known.values() if r.control is Control.PAUSED or r.state is TableState.FAILED}
        stopped |= {r.id for r in self._known.values() if r.id not in self.versions} | self._stale
        while more := {r.id for r in self._known.values() if r.id not in stopped and stopped & _inputs(r)}:
            stopped |= more
        return [id for id in self._known if id not in stopped]

    def _want(self, relation: RelationInfo, begun: int) -> Want:
        inputs = frozenset(_inputs(relation) & self._known.keys())
        least = barrier.least_rank(float(relation.options.get(INTERVAL, DEFAULT_INTERVAL)))
        return Want(max(self.versions[relation.id], default=0), inputs, least, begun)


def _whole(c: Connection, tables: Sequence[RelationInfo], at: Sequence[Barrier]) -> dict[int, set[int]]:
    """Where replaced tables can be read and their replacements cannot, and where the replacements can, by table."""
    found: dict[int, set[int]] = {}
    for r in tables:
        for id in (r.replaced_by, r.id):
            layouts = {b.number: epochs.layout_at(c, id, b.epoch) for b in at}
            found[id] = {number for number, layout in layouts.items() if layout is not None and layout.complete}
        found[r.id] -= found[r.replaced_by]
    return found


def _inputs(relation: RelationInfo) -> set[int]:
    return set(relation.view.inputs) if relation.view is not None else set()


def behind(c: Connection, epoch_id: int) -> list[RelationInfo]:
    """The views that have not reached an epoch and will: they, and what they read, are neither paused nor failed."""
    known = {r.id: r for r in relations.all(c)}
    stopped = {id for id, r in known.items() if r.control is Control.PAUSED or r.state is TableState.FAILED}
    while more := {id for id, r in known.items() if id not in stopped and stopped & _inputs(r)}:
        stopped |= more
    going = [r for id, r in known.items() if r.view is not None and id not in stopped]
    return [r for r in going if views.last_version(c, r.id) < epoch_id]


def is_stale(relation: RelationInfo) -> bool:
    """Whether a view stood still for so long that what it would need to go on is no longer kept for it."""
    return relation.state is TableState.FAILED and (relation.error or {}).get("code") == STALE


def expire(c: Connection, keep_s: float, now: float, busy: Collection[int] = ()) -> list[RelationInfo]:
    """Gives up views that have stood still for longer than `keep_s` while there were newer epochs; returns them.

    Those that are being worked on (`busy`) are not standing still.
    """
    gone = []
    for relation in relations.all(c):
        if relation.view is None or is_stale(relation) or relation.id in busy:
            continue
        stands = epochs.get(c, views.last_version(c, relation.id) or _filled_from(c, relation))
        later = None if stands is None else epochs.created_after(c, stands.id)
        slowest_s = WAITED_INTERVALS * float(relation.options.get(INTERVAL, DEFAULT_INTERVAL))
        if later is not None and now - later > max(keep_s, slowest_s):
            relations.set_state(c, relation.id, TableState.FAILED, _stale(relation, keep_s))
            views.set_fill(c, relation.id, None)  # it pins its epoch wherever there is no version
            gone.append(relation)
    return gone


def _filled_from(c: Connection, relation: RelationInfo) -> int:
    """The epoch of a fill that has stopped (it is paused, or it failed); 0 if it is running or has not begun."""
    stopped = relation.control is Control.PAUSED or relation.state is TableState.FAILED
    begun = views.fill(c, relation.id) if stopped and not spans.uncovered(c, relation.id) else None
    return 0 if begun is None else begun.epoch


def _stale(relation: RelationInfo, keep_s: float) -> DataError:
    return DataError(
        STALE,
        f"{relation.name} stood still for more than {keep_s / 3600:g} h, and what it needs to go on is no longer kept",
        f"REFRESH MATERIALIZED VIEW {relation.name} computes it again.",
    )


def due(c: Connection, begun: Mapping[int, int], again: Collection[int] = ()) -> bool:
    """Whether the newest epoch is to become a barrier."""
    newest = epochs.newest(c)
    return newest is not None and Meeting(c, begun).due(newest, again)


def advance(c: Connection, begun: Mapping[int, int], again: Collection[int] = ()) -> bool:
    """Makes the newest epoch a barrier if that is due, and forgets those that nobody needs; whether it made one."""
    newest = epochs.newest(c)
    if newest is None:
        return False
    made = due(c, begun, again)
    if made:
        views.add_barrier(c, newest.id)
    prune(c, begun)
    return made


def prune(c: Connection, begun: Mapping[int, int]) -> None:
    """Forgets the barriers and replaced relations that nobody needs. Versions go with their epochs (`epochs.thin`)."""
    meeting = Meeting(c, begun)
    pinned = epochs.pinned(c)  # a statement that has begun still opens what it has found
    if useless := [id for id in meeting.useless() if not any(views.is_exact(c, id, epoch) for epoch in pinned)]:
        for id in useless:
            relations.remove(c, id)
        meeting = Meeting(c, begun)
    if kept := meeting.kept():
        views.keep_barriers(c, sorted(kept))
