"""A simulated home whose views refresh, fail, pause and resume in event time, and how old their common versions get.

Times are whole milliseconds. `Claim` is the bound that `docs/decisions/0011-views-meet-at-barriers.md` derives.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from headwater.view.barrier import Barrier, Want, common, due, kept, latest, least_rank, rank, target, usable_by

SECOND = 1000
SLOWEST_GAP = 1250  # barriers are due once a second; the loop that makes them may be this late
Keep = Callable[[Sequence[Barrier], Mapping[int, set[int]], Mapping[int, Want]], set[int]]
Choose = Callable[[int, Sequence[Barrier], Callable[[int], bool], int], Barrier | None]


def newest(last: int, barriers: Sequence[Barrier], usable: Callable[[int], bool], least: int) -> Barrier | None:
    """The rule that does not work: always the newest barrier."""
    found = [b for b in barriers if b.number > last and rank(b.number) >= least and usable(b.number)]
    return max(found, key=lambda b: b.number, default=None)


def without_targets(
    barriers: Sequence[Barrier], versions: Mapping[int, set[int]], wants: Mapping[int, Want]
) -> set[int]:
    """The other rule that does not work: keep what is read, and not where a view goes next."""
    return latest(barriers, versions, wants)


@dataclass
class SimulatedView:
    number: int
    inputs: frozenset[int]
    longest_ms: int  # of a refresh that does not fail
    interval_s: float
    last: int = 0
    begun: int = 0
    busy: bool = False
    paused: bool = False
    settled_ms: int | None = None  # since when it stops at every barrier of its level; None: it does not yet

    @property
    def want(self) -> Want:
        return Want(self.last, self.inputs, least_rank(self.interval_s), self.begun)


@dataclass(frozen=True)
class Claim:
    """What the decision page claims of these views, in its words."""

    views: Mapping[int, SimulatedView]

    def below(self, number: int) -> set[int]:
        """A view and everything that it is made from."""
        return {number}.union(*(self.below(i) for i in self.views[number].inputs))

    def depth(self, number: int) -> int:
        """How many views are below it in the longest chain."""
        return max((1 + self.depth(i) for i in self.views[number].inputs), default=0)

    def reach_ms(self, number: int) -> int:
        """How long after it was made a barrier of the level has a version of this view: two refreshes per view."""
        view = self.views[number]
        return 2 * view.longest_ms + max((self.reach_ms(i) for i in view.inputs), default=0)

    def level(self, views: Iterable[int]) -> int:
        """The rank of the barriers at which all these views stop."""
        below = set().union(*(self.below(v) for v in views))
        apart_ms = max(self.reach_ms(v) - self.views[v].longest_ms for v in below)
        return max(least_rank(apart_ms / SECOND), *(least_rank(self.views[v].interval_s) for v in below))

    def bound_ms(self, views: Sequence[int]) -> int:
        """The age that the newest common version of these views stays below."""
        return 2 ** self.level(views) * SLOWEST_GAP + max(self.reach_ms(v) for v in views)

    def rough_bound_ms(self, views: Sequence[int]) -> float:
        """The same as a multiple of the slowest refresh or interval."""
        below = [self.views[v] for v in set().union(*(self.below(v) for v in views))]
        slowest = max(SECOND, *(v.longest_ms for v in below), *(int(v.interval_s * SECOND) for v in below))
        return (4 + 6 * max(self.depth(v) for v in views)) * slowest * SLOWEST_GAP / SECOND


@dataclass
class SimulatedHome:
    """`step()` until `now_ms` is late enough. What is asserted of it stands in the tests."""

    seed: int
    views: dict[int, SimulatedView]
    disturbed_until_ms: int = 0  # until then views fail and are paused now and then
    choose: Choose = target
    keep: Keep = kept
    written: Callable[[int], bool] = lambda ms: (ms // (97 * SECOND)) % 4 < 3  # whether tables change at this moment
    now_ms: int = 0
    barriers: list[Barrier] = field(default_factory=list)
    versions: dict[int, set[int]] = field(default_factory=dict)
    made_ms: dict[int, int] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)  # the barriers that have something new
    most_kept: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.versions = {v: set() for v in self.views}
        self.claim = Claim(self.views)
        self.levels = {v: self.claim.level([v]) for v in self.views}
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.later(0, self.tick)
        for view in self.views.values() if self.disturbed_until_ms else ():
            self.later(self.random.randrange(self.disturbed_until_ms), lambda view=view: self.pause(view))

    def later(self, delay_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.random.getrandbits(40), what))

    def next_event_ms(self) -> int:
        return self.events[0][0]

    def step(self) -> None:
        self.now_ms, _, what = heapq.heappop(self.events)
        what()
        self.start_refreshes()
        self.prune()

    # what happens

    def tick(self) -> None:
        number = len(self.made_ms) + 1
        quiet = not self.written(self.now_ms)
        moving = [v for v in self.views if not any(self.views[b].paused for b in self.claim.below(v))]
        last_moved = self.moved[-1] if self.moved else 0
        if not quiet or due(last_moved, self.versions, moving):
            self.barriers.append(Barrier(number, epoch=self.now_ms))
            self.made_ms[number] = self.now_ms
            if not quiet:
                self.moved.append(number)
        self.later(self.random.randint(SECOND, SLOWEST_GAP), self.tick)

    def start_refreshes(self) -> None:
        for view in self.views.values():
            if view.busy or view.paused:
                continue
            chosen = self.choose(
                view.want.after, self.barriers, usable_by(view.inputs, self.versions), view.want.least_rank
            )
            if chosen is None:
                continue
            view.begun, view.busy = chosen.number, True
            self.look_whether_settled(view)
            took = self.random.randint(view.longest_ms // 4, view.longest_ms)
            fails = self.now_ms < self.disturbed_until_ms and self.random.random() < 0.02
            self.later(took, lambda view=view, fails=fails: self.fail(view) if fails else self.publish(view))

    def publish(self, view: SimulatedView) -> None:
        pinned = {b.number for b in self.barriers}
        assert {view.begun, *([view.last] if view.last else [])} <= pinned, "an epoch that is being read was given up"
        for needed in view.inputs:  # the change from the last version to the new one needs both states of each input
            assert view.begun in self.versions[needed], "an input has no version where the refresh goes"
            assert not view.last or view.last in self.versions[needed], "an input has no version where it starts"
        view.busy, view.last = False, view.begun
        self.versions[view.number].add(view.begun)

    def fail(self, view: SimulatedView) -> None:
        view.busy = False
        self.unsettle(view)

    def pause(self, view: SimulatedView) -> None:
        view.paused = True
        self.unsettle(view)
        self.later(self.random.choice([5, 60, 400]) * SECOND, lambda: self.resume(view))

    def resume(self, view: SimulatedView) -> None:
        view.paused = False
        self.unsettle(view)

    def prune(self) -> None:
        wants = {view.number: view.want for view in self.views.values()}
        keeps = self.keep(self.barriers, self.versions, wants)
        before = {s: common(self.versions, s) for s in self.sets()} if self.random.random() < 0.01 else {}
        self.barriers = [b for b in self.barriers if b.number in keeps]
        self.versions = {view: numbers & keeps for view, numbers in self.versions.items()}
        assert {s: common(self.versions, s) for s in before} == before, "a newest common version was given up"
        self.most_kept = max(self.most_kept, len(self.barriers))

    # what is looked at

    def sets(self) -> Iterator[tuple[int, ...]]:
        for size in range(1, len(self.views) + 1):
            yield from combinations(self.views, size)

    def age_ms(self, views: Iterable[int], at_ms: int) -> int:
        """How long the newest common version has lacked something; 0 if nothing changed since."""
        lacking = bisect_right(self.moved, common(self.versions, views) or 0)
        return at_ms - self.made_ms[self.moved[lacking]] if lacking < len(self.moved) else 0

    def look_whether_settled(self, view: SimulatedView) -> None:
        """It is settled once it leaves no barrier of its level behind, and what is below was settled a refresh ago."""
        below = [self.views[i] for i in view.inputs]
        if view.settled_ms is not None or view.paused:
            return
        if any(b.settled_ms is None or b.settled_ms + b.longest_ms > self.now_ms for b in below):
            return
        usable = usable_by(view.inputs, self.versions)
        if target(view.begun, self.barriers, usable, self.levels[view.number]) is None:
            view.settled_ms = self.now_ms

    def unsettle(self, view: SimulatedView) -> None:
        for other in self.views.values():
            if view.number in self.claim.below(other.number):
                other.settled_ms = None

    def settled_ms(self, views: Iterable[int]) -> int | None:
        """Since when all these views have been settled; None if one of them is not."""
        since = [self.views[v].settled_ms for v in views]
        return None if None in since else max(s for s in since if s is not None)


def random_views(seed: int, most: int = 6) -> dict[int, SimulatedView]:
    """Views of different speeds and intervals, alone, in chains and in diamonds."""
    r = random.Random(seed)
    share = r.choice([0.0, 0.3, 0.6])  # of the earlier views that a view reads
    return {
        n: SimulatedView(
            n,
            frozenset(i for i in range(n) if r.random() < share),
            longest_ms=int(r.choice([200, 500, 1000, 3000, 7000, 20_000]) * r.uniform(0.7, 1.3)),
            interval_s=r.choice([1, 1, 1, 3, 4, 10]),
        )
        for n in range(r.randint(2, most))
    }
