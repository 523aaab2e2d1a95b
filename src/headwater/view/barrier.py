"""Barriers: the epochs at which views stop, so that any views soon have a version at the same one. Pure.

Views refresh at different speeds. If each always went to the newest epoch, two slow ones would share an epoch by chance
only. So once a second at most the newest epoch becomes a *barrier*, numbered 1, 2, 3 …, and a view goes to the barrier
with the most trailing zero bits since its last version: to 8 rather than to 9, 10 or 11. A multiple of 2^r is skipped
only for a multiple of a higher power, so there is an r at whose multiples all views stop.
`docs/decisions/0011-views-meet-at-barriers.md` derives how old their newest common version can be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headwater.model import Barrier as Barrier

View = int  # the id of the view's relation


@dataclass(frozen=True, slots=True)
class Want:
    """What decides where a view goes next.

    `begun` is the barrier of its latest refresh, whether that is running, failed or done, or the last one at which an
    input table could not be read. A view never tries a barrier twice: what made it fail may be a row that was fixed
    upstream since, and a high rank would hold the view there.
    """

    last: int  # the barrier of its newest version; 0 before it is filled
    inputs: frozenset[View]  # the views that it reads
    least_rank: int = 0
    begun: int = 0

    @property
    def after(self) -> int:
        """The next barrier is to be after this one."""
        return max(self.last, self.begun)


def rank(number: int) -> int:
    """How many zero bits the number of a barrier ends with."""
    if number < 1:
        raise ValueError(f"barriers are numbered from 1, not {number}")
    return (number & -number).bit_length() - 1


def least_rank(interval_s: float) -> int:
    """The lowest rank whose barriers are at least this many seconds apart: 0 for 1 s, 2 for 4 s, 3 for 5 s."""
    found = 0
    while 2**found < interval_s:
        found += 1
    return found


def target(
    last: int, barriers: Sequence[Barrier], usable: Callable[[int], bool], least_rank: int = 0
) -> Barrier | None:
    """The barrier that a view goes to next: of those after `last`, the newest one of the highest rank.

    `usable` says at which numbers all its input views have a version (`usable_by`).
    """
    ahead = [b for b in barriers if b.number > last and rank(b.number) >= least_rank and usable(b.number)]
    return max(ahead, key=lambda b: (rank(b.number), b.number), default=None)


def usable_by(inputs: Iterable[View], versions: Mapping[View, Collection[int]]) -> Callable[[int], bool]:
    """Says of a number whether each of these views has a version there; of every number if there are none."""
    found = [versions.get(view, ()) for view in inputs]
    return lambda number: all(number in numbers for numbers in found)


def common(versions: Mapping[View, Collection[int]], views: Iterable[View]) -> int | None:
    """The newest number at which all these views have a version; None if there is none, or for no views."""
    first, *others = [set(versions.get(view, ())) for view in views] or [set()]
    return max(first.intersection(*others), default=None)


def due(moved: int, versions: Mapping[View, Collection[int]], moving: Iterable[View]) -> bool:
    """Whether a barrier is needed although nothing changed since the newest one.

    `moved` is the last barrier that was made because something had changed; `moving` are the views that move on (not
    paused, and over none that is). Barriers follow it until all of them have met at one: without these, a view with a
    least rank would wait for the next change, and the others would have no version where it stops.
    """
    views = list(moving)
    return bool(views) and (common(versions, views) or 0) < moved


def kept(barriers: Sequence[Barrier], versions: Mapping[View, Collection[int]], wants: Mapping[View, Want]) -> set[int]:
    """The numbers of the barriers whose epochs stay pinned; all others may go.

    These are kept: the newest; where a refresh may be running; where each view goes next; and every barrier with
    versions, unless a newer one has a version of each of the same views. So the newest common version of *any* views is
    kept, and so are the versions of its inputs at a view's own last version, from which its next refresh starts.
    """
    return latest(barriers, versions, wants) | ahead(barriers, versions, wants)


def latest(
    barriers: Sequence[Barrier], versions: Mapping[View, Collection[int]], wants: Mapping[View, Want]
) -> set[int]:
    """What is kept for readers and for refreshes that may be running."""
    result = {max(b.number for b in barriers)} if barriers else set()
    stopped: list[frozenset[View]] = []  # who stopped at each barrier that is newer than the one looked at
    for number in sorted((b.number for b in barriers), reverse=True):
        here = frozenset(view for view, numbers in versions.items() if number in numbers)
        running = any(want.begun == number > want.last for want in wants.values())
        if running or (here and not any(here <= newer for newer in stopped)):
            result.add(number)
        stopped.append(here)
    return result


def ahead(
    barriers: Sequence[Barrier], versions: Mapping[View, Collection[int]], wants: Mapping[View, Want]
) -> set[int]:
    """What is kept because a view goes there next."""
    found = [target(w.after, barriers, usable_by(w.inputs, versions), w.least_rank) for w in wants.values()]
    return {barrier.number for barrier in found if barrier is not None}
