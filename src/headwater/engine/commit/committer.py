"""The only writer of bases: covers scanned spans and folds overlays.

Each commit is decided in meta (an intent), made in Delta, synced, then recorded in meta together with the epoch that
shows it. After a crash or an error the intent tells what to look for in Delta, and meta rolls forward: a number in
Delta's log shows whether it was committed. A relation's intents are executed in order, so the numbers grow, and commits
that an earlier owner started are refused (see `numbers`). If the machine itself went down, an unrecorded commit may be
torn: it is rolled back and redone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

from sqlalchemy.engine import Connection

from headwater import crash
from headwater.engine.commit import epoch, filled, numbers
from headwater.engine.commit.numbers import Number
from headwater.engine.failures import Who
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.errors import HeadwaterError
from headwater.meta import changes as changes_of
from headwater.meta import connections, epochs, intents, relations, runs, settle, spans
from headwater.meta.intents import Cover, Fold, Intent, Maintain, Work
from headwater.model import Epoch, Layout, RelationInfo, Span, TableState
from headwater.ownership.lease import Lease, Leases
from headwater.ownership.names import Name
from headwater.relation import base, commits
from headwater.relation.changes import check_history
from headwater.source.connected import passed

log = logging.getLogger(__name__)

COVER_BUDGET = 0.25  # share of time that covers of one relation may take
COVER_REST_S = 1.0  # upper bound of the pause, so that spans become readable soon even after a slow cover

# Commits to the relation's base without changing its rows, or does nothing
Rewrite = Callable[[RelationInfo], None]


class Writer(Protocol):
    """Changes a base's rows; each method returns the Delta version that holds the change."""

    def fold(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """Folds the overlay at `index`; the commit has number `version` under `app_id`."""

    def remove(self, relation: RelationInfo, spans: list[Span], app_id: str, version: int) -> int:
        """Deletes the rows of these spans (all rows, if keys have no order) from the base; numbered like `fold`."""


class Committer:
    """Commits to bases, one commit per base at a time."""

    def __init__(self, home: Home, leases: Leases, writer: Writer) -> None:
        self._home = home
        self._leases = leases
        self._writer = writer
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._rest_until: dict[int, float] = {}
        self._untrusted: dict[int, bool] = {}  # relation to roll back first → whether its checkpoint is suspect, too
        self._guard = Guard(home, leases)

    def _lease(self, relation_id: int) -> Lease:
        return self._leases.of(Name.relation(relation_id))

    @contextmanager
    def exclusive(self, relation_id: int) -> Iterator[None]:
        """Blocks commits to the relation's base until the block ends, so that its spans can be changed."""
        with self._locks[relation_id]:
            yield

    def recover(self) -> None:
        """Finishes every commit that was decided before a crash. Call before anything else runs.

        A cover that must delete rows from the base needs Spark; `cover` finishes it later. An error affects only its
        own table, and the commit is retried later.
        """
        with self._home.meta.read() as c:
            left = intents.all(c)
        life = self._home.storage.life()
        for i in left:
            if i.life != life or not life:
                torn = isinstance(i.work, Maintain) and i.work.checkpoint
                self._untrusted[i.relation_id] = self._untrusted.get(i.relation_id, False) or torn
        # upkeep records the newest version, whichever it is, so commits that changed rows must be recorded first
        for intent in sorted(left, key=lambda i: (isinstance(i.work, Maintain), i.id)):
            with self._locks[intent.relation_id]:
                self._guard.attempt("recover", intent.relation_id, partial(self._recover, intent), None)

    def _recover(self, intent: Intent) -> None:
        self._roll_back(intent.relation_id)
        if not (isinstance(intent.work, Cover) and intent.work.again):
            self._finish(intent)

    def cover(self, relation_id: int) -> Epoch | None:
        """Makes the scanned spans that the log has passed readable, with a new epoch; None if there are none.

        Does nothing while a fold of the same relation runs, so that other relations need not wait: call it again. Nor
        for a while after a cover: each writes the whole layout, so it is better to cover many spans in few commits.
        """
        began = time.monotonic()
        if began < self._rest_until.get(relation_id, 0.0) or not self._locks[relation_id].acquire(blocking=False):
            return None
        try:
            published = self._finish_left(relation_id) or self._cover(relation_id)
            if published is not None:
                now = time.monotonic()
                self._rest_until[relation_id] = now + min((now - began) * (1 / COVER_BUDGET - 1), COVER_REST_S)
            return published
        finally:
            self._locks[relation_id].release()

    def _cover(self, relation_id: int) -> Epoch | None:
        if not self._redo_late_fold(relation_id):
            return None
        with self._home.meta.owned(self._lease(relation_id)) as c:
            intent, dead = self._decide_cover(c, relation_id)
        self._home.storage.remove(dead)
        if intent is None:
            return None
        crash.here("cover.decided")
        return self._finish(intent, new=True)

    def fold(self, relation_id: int, upto: int | None = None) -> Epoch | None:
        """Moves a relation's overlay (up to an index) into its base, with a new epoch; None if there is none."""
        with self._locks[relation_id]:
            self._finish_left(relation_id)
            return self._fold(relation_id, upto)

    def _fold(self, relation_id: int, upto: int | None = None) -> Epoch | None:
        with self._home.meta.owned(self._lease(relation_id)) as c:
            decided = self._decide_fold(c, relation_id, upto)
        if decided is None:
            return None
        intent, pin = decided
        crash.here("fold.decided")
        try:
            return self._finish(intent, new=True)
        finally:
            with self._home.meta.write() as c:
                epochs.release_pin(c, pin)

    def advance(self, relation_ids: Sequence[int]) -> Epoch | None:
        """Advances relations without new changes to the newest index, so that they do not hold back the changelog.

        The result is that of a fold, but no base is touched. None if there is nothing to advance.
        """
        with ExitStack() as locks:
            free = [id for id in relation_ids if self._locks[id].acquire(blocking=False)]
            for id in free:
                locks.callback(self._locks[id].release)
            self._record_upkeep(free)
            with self._home.meta.owned(self._leases.server) as c:
                moved = [id for id in free if self._advanced(c, id)]
                return epoch.publish(c, moved) if moved else None

    def _record_upkeep(self, relation_ids: Sequence[int]) -> None:
        """Records upkeep that could not be recorded when it was done: a quiet table has no other occasion."""
        with self._home.meta.read() as c:
            left = intents.all(c)
        changing = {i.relation_id for i in left if not isinstance(i.work, Maintain)}
        for relation_id in {i.relation_id for i in left} - changing:
            if relation_id in relation_ids:
                finish = partial(self._finish_left, relation_id, Maintain)
                self._guard.attempt("recover", relation_id, finish, None)

    def _advanced(self, c: Connection, relation_id: int) -> bool:
        relation, newest = relations.get_or_none(c, relation_id), epochs.newest(c)
        if relation is None or newest is None or intents.all(c, relation_id):
            return False
        layout, index = epochs.layout_at(c, relation_id, newest.id), changes_of.current(c, relation, newest)
        if layout is None or not layout.settled or layout.index_for(relation) >= index:
            return False
        if changes_of.count(c, relation, layout.index_for(relation), index):
            return False
        if changes_of.first_kept(c, relation) > layout.index_for(relation) + 1:
            return False  # missing history must not count as no changes: reading the table reports it
        settle.move(c, relation_id, [s.id for s in spans.all(c, relation_id)], index)
        settle.join(c, relation_id)
        relations.set_folded(c, relation_id)
        return True

    def upkeep(self, relation_id: int, rewrite: Rewrite, *, checkpoint: bool = False) -> Epoch | None:
        """Lets `rewrite` commit to a base without changing its rows, and publishes a new epoch.

        None if it committed nothing, or if the base is busy. A crash or failure between its commit and meta is
        harmless: meta still names the previous version, which has the same rows and is not vacuumed while meta names
        it; covers and folds build on the newest version, whichever it is. The intent makes the next start record the
        new version, and blocks VACUUM until then. `checkpoint`: it checkpoints a version that meta already names, and
        the intent records that the checkpoint may be torn.
        """
        if not self._locks[relation_id].acquire(blocking=False):
            return None
        try:
            self._finish_left(relation_id, Fold)
            with self._home.meta.read() as c:
                busy = any(not isinstance(i.work, Maintain) for i in intents.all(c, relation_id))
            if busy or not self._redo_late_fold(relation_id):
                return None
            with self._home.meta.read() as c:
                relation = relations.get_or_none(c, relation_id)
            if relation is None:
                return None
            with self._home.meta.owned(self._lease(relation_id)) as c:
                for left in intents.all(c, relation_id):
                    intents.done(c, left.id)  # one that could not be recorded: the new one records it, too
                intent = self._decided(c, relation_id, Maintain(checkpoint))
            try:
                rewrite(relation)
                crash.here("base.upkept")
            finally:
                published = self._finish(intent)
            return published
        finally:
            self._locks[relation_id].release()

    def _decide_cover(self, c: Connection, relation_id: int) -> tuple[Intent | None, list[str]]:
        """The intent to add the files of all passed spans; spans from an earlier server life go back to pending."""
        relation = relations.get_or_none(c, relation_id)
        if relation is None:
            return None, []
        if relation.view is not None:
            return self._decide_slices(c, relation_id), []
        connection = connections.get(c, changes_of.connection_of(relation))
        life = connections.server_life(c, connection.id)
        ready, dead = [], []
        for scanned in spans.uncovered(c, relation_id):
            if scanned.server_life != life:
                spans.back_to_pending(c, scanned.id)
                dead += [f"{relation.base_path}/{f.path}" for f in scanned.files]
            elif passed(connection.type, connection.position, scanned.high):
                ready.append(scanned)
        if not ready:
            return None, dead
        work = Cover(
            spans=tuple(s.id for s in ready),
            files=tuple(f for s in ready for f in s.files),
            again=tuple(s.span for s in ready if s.again),
        )
        return self._decided(c, relation_id, work), dead

    def _decide_slices(self, c: Connection, relation_id: int) -> Intent | None:
        """The intent to add the files of a view's written slices; partial rows wait for the step that adds them up."""
        ready = spans.uncovered(c, relation_id)
        if not ready or (filled.in_parts(c, relation_id) and not filled.all_written(c, relation_id)):
            return None
        whole = ready[-1:] if filled.in_parts(c, relation_id) else ready
        work = Cover(spans=tuple(s.id for s in ready), files=tuple(f for s in whole for f in s.files))
        return self._decided(c, relation_id, work)

    def _decide_fold(self, c: Connection, relation_id: int, upto: int | None) -> tuple[Intent, int] | None:
        relation = relations.get_or_none(c, relation_id)
        newest = epochs.newest(c)
        if relation is None or newest is None:
            return None
        layout = epochs.layout_at(c, relation_id, newest.id)
        if layout is None or not layout.spans:
            return None
        index = changes_of.current(c, relation, newest)
        index = index if upto is None else min(index, upto)
        if layout.settled and not changes_of.count(c, relation, layout.index_for(relation), index):
            return None
        covered = tuple(s.id for s in spans.all(c, relation_id) if s.cover_index is not None)
        return self._decided(c, relation_id, Fold(index, newest.id, covered)), epochs.take_pin(c, newest.id, "fold")

    def _decided(self, c: Connection, relation_id: int, work: Work) -> Intent:
        return intents.add(c, relation_id, work, self._home.storage.life())

    def _roll_back(self, relation_id: int) -> None:
        """Removes unrecorded commits if the machine went down between a decision and its record."""
        if relation_id not in self._untrusted:
            return
        with self._home.meta.read() as c:
            relation = relations.get_or_none(c, relation_id)
        if relation is not None and relation.base_version >= 0:
            storage, path = self._home.storage, relation.base_path
            commits.take_back(storage, path, relation.base_version, checkpoint=self._untrusted[relation_id])
        del self._untrusted[relation_id]

    def _finish_left(self, relation_id: int, *kinds: type[Work]) -> Epoch | None:
        """Finishes intents that an error or a crash left behind; must come before a new one, because numbers must grow.

        Returns the last epoch published for them. Without `kinds`: covers and folds.
        """
        self._roll_back(relation_id)
        with self._home.meta.read() as c:
            left = [i for i in intents.all(c, relation_id) if isinstance(i.work, kinds or (Cover, Fold))]
        published = None
        for intent in left:
            published = self._finish(intent) or published
        self._home.live.failures.succeeded(Who("recover", table=relation_id))
        return published

    def _redo_late_fold(self, relation_id: int) -> bool:
        """Folds again if the base has a fold that meta does not know; False if nothing may be built on the base.

        The previous version of Headwater could give up a fold that was committed later. Meta then names a base version
        from before that fold: missing values of a row that has since moved to another key would be looked up under the
        old key, where the row no longer is. Folding again fixes this because a fold reads the version that meta names.
        """
        with self._home.meta.read() as c:
            relation = relations.get_or_none(c, relation_id)
        if relation is None:
            return True
        known = self._home.storage, relation.base_path, relation.base_version
        if not any(base.has_since(*known, app_id) for app_id in numbers.app_ids(relation_id)):
            return True
        if relation.state is TableState.FAILED:
            return False  # a failed table is folded to where it stopped and no further
        log.warning("a fold was committed after it was given up relation=%s", relation_id)
        self._fold(relation_id)
        return True

    def _finish(self, intent: Intent, *, new: bool = False) -> Epoch | None:
        """Executes an intent. Unless it is `new`, it may have been executed already, or be in progress elsewhere."""
        with self._home.meta.read() as c:
            relation = relations.get_or_none(c, intent.relation_id)
        if relation is None:
            with self._home.meta.write() as c:
                intents.done(c, intent.id)
            return None
        self._lease(relation.id).ensure()
        match intent.work:
            case Cover() as cover:
                return self._finish_cover(relation, intent, cover, new)
            case Fold() as fold:
                return self._finish_fold(relation, intent, fold, new)
            case Maintain():
                return self._finish_upkeep(relation, intent.id)

    def _made(self, relation: RelationInfo, intent: Intent, number: Number) -> int | None:
        """The Delta version that an intent's commit made; None if the base does not have it."""
        where = self._home.storage, relation.base_path
        made = base.transaction_commit(*where, *number)
        return base.transaction_commit(*where, *numbers.earlier(intent)) if made is None else made

    def _finish_cover(self, relation: RelationInfo, intent: Intent, cover: Cover, new: bool) -> Epoch | None:
        version = None if new else self._made(relation, intent, numbers.last(intent))
        if version is None:
            version = self._added(relation, intent, cover)
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        if relation.view is not None:
            return self._record_slices(relation, intent, cover, version)
        with self._home.meta.owned(self._lease(relation.id)) as c:
            if relations.get_or_none(c, relation.id) is None:
                return None  # dropped meanwhile, its intents with it
            _record_version(c, relation, version)
            index = connections.get(c, changes_of.connection_of(relation)).committed_index
            for span_id in cover.spans:
                spans.cover(c, span_id, index)
            if cover.again and not relation.ordered:
                spans.forget_again(c, relation.id)
            if relation.ordered:
                self._settle(c, relation, index)
            intents.done(c, intent.id)
            published = epoch.publish(c, [relation.id])
        crash.here("cover.recorded")
        return published

    def _record_slices(self, relation: RelationInfo, intent: Intent, cover: Cover, version: int) -> Epoch | None:
        with self._home.meta.owned(self._lease(relation.id)) as c:
            if relations.get_or_none(c, relation.id) is None:
                return None  # dropped meanwhile, its intents with it
            _record_version(c, relation, version)
            intents.done(c, intent.id)
            parts = filled.parts(c, relation, cover)
            settled = filled.settle_slices(c, relation.id, cover.spans)
        self._home.storage.remove(parts)  # or the sweep, if we die here
        return settled

    def _added(self, relation: RelationInfo, intent: Intent, cover: Cover) -> int:
        """Commits a cover's deletions, then its additions; returns the Delta version."""
        version = relation.base_version
        if cover.again:
            version = self._writer.remove(relation, list(cover.again), *numbers.first(intent))
        if cover.files:
            version = base.add_files(self._home.storage, relation.base_path, cover.files, *numbers.last(intent))
            crash.here("cover.added")
        return version

    def _settle(self, c: Connection, relation: RelationInfo, index: int) -> None:
        """Settles spans immediately if the table has not changed since they were scanned: there is nothing to fold."""
        last = changes_of.last(c, relation, index)
        settle.quiet(c, relation.id, last, index)
        settle.join(c, relation.id)

    def _finish_fold(self, relation: RelationInfo, intent: Intent, fold: Fold, new: bool) -> Epoch | None:
        """Executes a new fold. A leftover one is recorded if Delta has it, and given up otherwise."""
        if new:
            version = self._merged(relation, intent, fold)
            crash.here("fold.merged")
        else:
            found = self._made(relation, intent, numbers.first(intent))
            while found is None:
                passed_at = self._pass(relation, intent)
                if passed_at is not None:
                    return self._give_up(relation, intent, passed_at)
                found = self._made(relation, intent, numbers.first(intent))  # it was committed just now
            version = found
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        with self._home.meta.owned(self._lease(relation.id)) as c:
            if relations.get_or_none(c, relation.id) is None:
                return None  # dropped meanwhile, its intents with it
            _record_version(c, relation, version)
            settle.move(c, relation.id, fold.spans, fold.index)
            settle.join(c, relation.id)
            runs.retire_folded(c, relation.id, fold.index)
            relations.set_folded(c, relation.id)
            intents.done(c, intent.id)
            return epoch.publish(c, [relation.id])

    def _pass(self, relation: RelationInfo, intent: Intent) -> int | None:
        """Makes sure that a fold is never committed, neither by a suspended owner nor by an orphaned JVM.

        Returns the Delta version from which on that holds; None if the fold has been committed.
        """
        first, (app_id, last) = numbers.first(intent), numbers.last(intent)
        version = base.pass_number(self._home.storage, relation.base_path, app_id, last, after=first.version)
        crash.here("fold.given_up")
        return version

    def _give_up(self, relation: RelationInfo, intent: Intent, version: int) -> Epoch | None:
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        with self._home.meta.owned(self._lease(relation.id)) as c:
            if relations.get_or_none(c, relation.id) is None:
                return None  # dropped meanwhile, its intents with it
            _record_version(c, relation, version)
            intents.done(c, intent.id)
            return epoch.publish(c, [relation.id])

    def _finish_upkeep(self, relation: RelationInfo, id: int) -> Epoch | None:
        """Records the newest version in meta: no commit since the last recorded one changed any row."""
        version = base.current_version(self._home.storage, relation.base_path)
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        with self._home.meta.owned(self._lease(relation.id)) as c:
            intents.done(c, id)
            current = relations.get_or_none(c, relation.id)
            if current is None or current.base_version >= version:
                return None
            _record_version(c, relation, version)
            return epoch.publish(c, [relation.id])

    def _merged(self, relation: RelationInfo, intent: Intent, fold: Fold) -> int:
        with self._home.meta.read() as c:
            layout = epochs.layout_at(c, relation.id, fold.epoch)
            assert layout is not None
            first, last = layout.index_for(relation), fold.index
            if not changes_of.count(c, relation, first, last):
                check_history(c, relation, first, last)
                return relation.base_version
        try:
            return self._writer.fold(relation, layout, fold.index, *numbers.first(intent))
        except Exception as e:
            made = base.transaction_commit(self._home.storage, relation.base_path, *numbers.first(intent))
            if made is None:
                if isinstance(e, HeadwaterError):  # raised by our own code, so nothing in Spark can still commit
                    with self._home.meta.owned(self._lease(relation.id)) as c:
                        intents.done(c, intent.id)
                raise
            log.warning("a fold failed after its commit relation=%s error=%s", relation.id, type(e).__name__)
            return made


def _record_version(c: Connection, relation: RelationInfo, version: int) -> None:
    """Records a base version, or keeps a later one: it contains this commit, too."""
    relations.set_base_version(c, relation.id, max(version, relations.get(c, relation.id).base_version))
