"""Which files may go: none that anybody can still come to need, and in the end every other one."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.backfill.files import scan_label
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit, Written, written
from headwater.ownership.strays import strays
from headwater.relation.fold import fold_label

SPANS = 2
MARK = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "label", ["scan-17", "fold-34", f"merged-{1:020d}-{9:020d}", f"{1:020d}-{9:020d}", f"{7:020d}"]
)
def test_a_name_tells_what_the_file_is_of_and_the_fence_under_which_it_was_written(label: str) -> None:
    permit = pickle.loads(pickle.dumps(Permit(Name.server(), 12)))
    names = {permit.new_file(label, suffix) for suffix in ("parquet", "arrow") for _ in range(2)}
    assert len(names) == 4 and {written(f"some/folder/{n}") for n in names} == {Written(label, 12)}


@pytest.mark.parametrize(
    ("name", "made"),
    [
        (f"scan-17-{MARK}.parquet", Written("scan-17", 0)),
        (f"fold-{MARK}.parquet", Written("fold", 0)),
        (f"merged-{1:020d}-{9:020d}-deadbeef.arrow", Written(f"merged-{1:020d}-{9:020d}", 0)),
        (f"{1:020d}-{9:020d}-deadbeef.parquet", Written(f"{1:020d}-{9:020d}", 0)),
        (f"{7:020d}-12-deadbeef.arrow", Written(f"{7:020d}", 12)),
        (f"{7:020d}-12.arrow", Written(f"{7:020d}", 12)),
    ],
)
def test_files_of_earlier_versions_are_known_by_their_names(name: str, made: Written) -> None:
    assert written(f"folder/{name}") == made


@pytest.mark.parametrize(
    "name",
    [
        "part-00000-f1234567-89ab-cdef-0123-456789abcdef-c000.snappy.parquet",
        "part-00001-f2345678-89ab-cdef-0123-456789abcdef-c000.zstd.parquet",
        "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        "_delta_log/00000000000000000007.json",
        "00000000000000000020.checkpoint.parquet",
        "_last_checkpoint",
        ".scan-17.crc",
    ],
)
def test_what_spark_and_delta_write_is_none_of_our_business(name: str) -> None:
    assert written(f"warehouse/1/{name}") is None
    assert strays([f"warehouse/1/{name}"], 99, recorded=set()) == []


@dataclass
class Task:
    """One attempt at a scan; Spark may have given it up, and its owner may be gone: it writes all the same."""

    span: int
    fence: int
    scan: int  # the owner waits for the first attempt that ends, unless it has given the scan up
    files: list[str] = field(default_factory=list)


@dataclass
class World:
    """A relation, everybody who writes beside its base, and what meta and Delta know. Every act is one step.

    Whoever comes to refer to a file asserts that it is there: nothing else says which may go.
    """

    fence: int = 1
    files: set[str] = field(default_factory=set)
    states: dict[int, str] = field(default_factory=lambda: dict.fromkeys(range(SPANS), "pending"))
    scanned: dict[int, list[str]] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    covers: dict[int, list[str]] = field(default_factory=dict)  # intent → files
    folds: dict[int, list[str]] = field(default_factory=dict)
    versions: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])
    readable: set[int] = field(default_factory=lambda: {0})
    intents: int = 0
    scans: int = 0
    awaited: dict[int, int] = field(default_factory=dict)  # span → scan
    # a sweep under way
    found: set[str] | None = None
    known: tuple[set[str], set[str], set[str]] | None = None
    gone: list[str] = field(default_factory=list)
    sweeping: int = 0  # under which fence

    def refer(self, files: list[str]) -> None:
        assert set(files) <= self.files, "somebody needs a file that was removed"

    def begin(self, n: int) -> None:
        span = n % SPANS
        if self.states[span] == "pending":
            self.scans += 1
            self.states[span], self.awaited[span] = "scanning", self.scans
            self.tasks.append(Task(span, self.fence, self.scans))

    def repeat(self, n: int) -> None:
        """Spark takes a worker for lost, and begins again elsewhere."""
        if self.tasks:
            task = self.tasks[n % len(self.tasks)]
            self.tasks.append(Task(task.span, task.fence, task.scan))

    def write(self, n: int) -> None:
        if self.tasks:
            task = self.tasks[n % len(self.tasks)]
            name = Permit(Name.server(), task.fence).new_file(scan_label(task.span), "parquet")
            task.files.append(name)
            self.files.add(name)

    def record(self, n: int) -> None:
        """A task ends; its owner records what it wrote, if it is the owner and wants it."""
        if self.tasks:
            task = self.tasks.pop(n % len(self.tasks))
            wanted = self.states[task.span] == "scanning" and self.awaited[task.span] == task.scan
            if task.fence == self.fence and wanted:
                self.refer(task.files)
                self.states[task.span], self.scanned[task.span] = "scanned", task.files

    def give_up(self, n: int) -> None:
        if self.states[n % SPANS] == "scanning":
            self.states[n % SPANS] = "pending"

    def cover(self, n: int) -> None:
        span = n % SPANS
        if self.states[span] == "scanned" and not self.folds and not self.covers:
            self.intents += 1
            self.covers[self.intents] = self.scanned[span]
            self.states[span] = "covering"

    def add(self, n: int) -> None:
        for files in self.covers.values():
            if not set(files) <= self.versions[-1]:
                self.refer(files)
                self.versions.append(self.versions[-1] | frozenset(files))

    def recorded(self, n: int) -> None:
        """The cover, or the fold, is in Delta: meta forgets it, and the version can be read."""
        for intents in (self.covers, self.folds):
            for id, files in list(intents.items()):
                if files and set(files) <= self.versions[-1]:
                    del intents[id]
                    self.readable.add(len(self.versions) - 1)
        for span, state in self.states.items():
            if state == "covering" and not self.covers:
                self.states[span] = "pending"  # to be read again one day, as a span of its own
                self.scanned.pop(span, None)

    def decide_fold(self, n: int) -> None:
        if not self.folds and not self.covers:
            self.intents += 1
            self.folds[self.intents] = []

    def write_fold(self, n: int) -> None:
        for id, files in self.folds.items():
            if not files:
                files.append(Permit(Name.server(), self.fence).new_file(fold_label(2 * id), "parquet"))
                self.files.update(files)

    def replace(self, n: int) -> None:
        for files in self.folds.values():
            if files and not set(files) <= self.versions[-1]:
                self.refer(files)
                self.versions.append(frozenset(files))

    def drop_fold(self, n: int) -> None:
        for id, files in list(self.folds.items()):
            if not set(files) <= self.versions[-1] or not files:
                del self.folds[id]

    def forget(self, n: int) -> None:
        self.readable.discard(n % len(self.versions))

    def take_over(self, n: int) -> None:
        self.fence += 1
        for span, state in self.states.items():
            if state == "scanning":
                self.states[span] = "pending"

    def list_files(self, n: int) -> None:
        self.found, self.known, self.gone, self.sweeping = set(self.files), None, [], self.fence

    def ask_meta(self, n: int) -> None:
        if self.found is not None:
            recorded = {f for files in (*self.scanned.values(), *self.covers.values()) for f in files}
            under_way = {scan_label(span) for span, state in self.states.items() if state == "scanning"}
            self.known = recorded, under_way, {fold_label(2 * id) for id in self.folds}

    def ask_base(self, n: int) -> None:
        if self.found is not None and self.known is not None:
            recorded, under_way, decided = self.known
            had = {f for version in self.versions for f in version}
            self.gone = strays(self.found, self.sweeping, recorded=recorded | had, under_way=under_way, decided=decided)

    def remove(self, n: int) -> None:
        assert not set(self.gone) & self.needed()
        self.files -= set(self.gone)
        self.found, self.known, self.gone = None, None, []

    def needed(self) -> set[str]:
        """What meta and Delta refer to now."""
        now = [*self.scanned.values(), *self.covers.values(), self.versions[-1]]
        return {f for files in (*now, *(self.versions[v] for v in self.readable)) for f in files}

    def sweep(self, n: int = 0) -> None:
        for step in (self.list_files, self.ask_meta, self.ask_base, self.remove):
            step(n)


# how often each happens
WORK: dict[Callable[[World, int], None], int] = {
    World.begin: 4,
    World.write: 5,
    World.record: 4,
    World.repeat: 1,
    World.give_up: 1,
    World.cover: 2,
    World.add: 2,
    World.recorded: 2,
    World.decide_fold: 2,
    World.write_fold: 2,
    World.replace: 1,
    World.drop_fold: 1,
    World.forget: 1,
    World.take_over: 1,
}
SWEEPING = {World.list_files: 2, World.ask_meta: 2, World.ask_base: 2, World.remove: 2, World.sweep: 2}


def act(world: World, rng: random.Random, steps: int, acts: dict[Callable[[World, int], None], int]) -> None:
    for step in rng.choices(list(acts), list(acts.values()), k=steps):
        step(world, rng.randrange(12))
        assert world.needed() <= world.files


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_nothing_that_anybody_needs_goes_and_all_the_rest_does(seed: int) -> None:
    world, rng = World(), random.Random(seed)
    act(world, rng, 300, {**WORK, **SWEEPING})
    world.tasks.clear()  # every task has ended, of whatever owner
    world.take_over(0)
    world.folds.clear()
    world.sweep()
    had = {f for version in world.versions for f in version}
    assert world.files <= world.needed() | had, "what was once part of the base is VACUUM's"


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(0, 3))
def test_a_sweep_of_an_owner_that_was_stopped_takes_nothing_of_the_next_one(seed: int, stopped_after: int) -> None:
    """It lists, asks and removes under its old fence, whatever has happened in between."""
    world, rng = World(), random.Random(seed)
    act(world, rng, 20, WORK)
    stale, steps = world.fence, [World.list_files, World.ask_meta, World.ask_base]
    for step in steps[:stopped_after]:
        step(world, 0)
    world.take_over(0)
    act(world, rng, 20, WORK)
    for step in (*steps[stopped_after:], World.remove):
        world.sweeping = stale
        step(world, 0)
        world.sweeping = stale
    assert world.needed() <= world.files
    while world.tasks:  # and whoever is at work can still record what it wrote
        world.record(0)
    for step in (World.write_fold, World.replace, World.cover, World.add):
        step(world, 0)


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_an_earlier_owners_files_go_though_the_same_span_is_being_read_again(seed: int) -> None:
    world, rng = World(), random.Random(seed)
    act(world, rng, 60, WORK)
    world.take_over(0)
    act(world, rng, 20, {World.begin: 1, World.write: 3})
    world.sweep()
    had = {f for version in world.versions for f in version}
    decided = {f for files in world.folds.values() for f in files}
    left = world.files - world.needed() - had - decided
    assert {made.fence for f in left if (made := written(f))} <= {world.fence}
