"""The only writer of bases: adds what scans read when it is covered, and folds overlays.

Each commit is decided in meta (an intent), made in Delta, synced, then recorded in meta together with the epoch that
shows it. After a crash or an error the intent tells what to look for in Delta, and meta rolls forward to it. A base has
one writer, so an intent's number in Delta's log says whether it was committed. After the machine itself went down, what
was committed and not recorded may be torn: it is taken back, and made again.
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
from headwater.engine.commit import epoch
from headwater.engine.failures import Who
from headwater.engine.guard import Guard
from headwater.engine.home import Home
from headwater.meta import changes as changes_of
from headwater.meta import connections, epochs, intents, relations, runs, settle, spans
from headwater.meta.intents import Cover, Fold, Intent, Upkeep, Work
from headwater.meta.lease import Lease
from headwater.model import Epoch, Layout, RelationInfo, Span, TableState
from headwater.relation import base, commits
from headwater.relation.overlay import check_history

log = logging.getLogger(__name__)

COVER_BUDGET = 0.25  # share of the time that covers of one relation may take
COVER_REST_S = 1.0  # but a covered span becomes readable soon, however slow the last cover was

# Commits to the relation's base without changing what it holds, or does nothing
Rewrite = Callable[[RelationInfo], None]
# (connection type, position, high) → the log has passed what a scan may have seen
Passed = Callable[[str, str, str], bool]


class Writer(Protocol):
    """What it takes to change a base's rows; returns the Delta version that holds the change."""

    def merge(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """Folds the overlay at `index`; the commit bears `version` under `app_id`."""

    def remove(self, relation: RelationInfo, spans: list[Span]) -> int:
        """Takes the rows of these spans (or, where keys have no order, of any) out of the base."""


class Committer:
    """Commits to bases, one commit per base at a time."""

    def __init__(self, home: Home, held: Lease, passed: Passed, writer: Writer) -> None:
        self._home = home
        self._held = held
        self._passed = passed
        self._writer = writer
        self._locks: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        self._rest_until: dict[int, float] = {}
        self._untrusted: dict[int, bool] = {}  # relation → commits are to be taken back first; its checkpoint, too
        self._guard = Guard(home, held)

    @contextmanager
    def exclusive(self, relation_id: int) -> Iterator[None]:
        """No commit to the relation's base is decided or made inside the block: its spans may be changed."""
        with self._locks[relation_id]:
            yield

    def recover(self) -> None:
        """Brings every commit that was decided before a crash to its end. Call before anything else runs.

        A cover that has to take rows out of the base needs Spark; `cover` brings it to its end later. What goes wrong
        concerns its table only, and stays to be ended later.
        """
        with self._home.meta.read() as c:
            left = intents.all(c)
        life = self._home.storage.life()
        for i in left:
            if i.life != life or not life:
                torn = isinstance(i.work, Upkeep) and i.work.checkpoint
                self._untrusted[i.relation_id] = self._untrusted.get(i.relation_id, False) or torn
        # upkeep takes whatever version there is, so what changed the content must be recorded before it
        for intent in sorted(left, key=lambda i: (isinstance(i.work, Upkeep), i.id)):
            with self._locks[intent.relation_id]:
                self._guard.attempt("recover", intent.relation_id, partial(self._recover, intent), None)

    def _recover(self, intent: Intent) -> None:
        self._take_back(intent.relation_id)
        if not (isinstance(intent.work, Cover) and intent.work.again):
            self._finish(intent)

    def cover(self, relation_id: int) -> Epoch | None:
        """Makes the scanned spans that the log has passed readable, with a new epoch; None if there are none.

        While a fold of the same relation runs it does nothing, so that other relations need not wait: call it again.
        So it does for a while after a cover: each writes the whole layout, and many spans are covered in few of them.
        """
        began = time.monotonic()
        if began < self._rest_until.get(relation_id, 0.0) or not self._locks[relation_id].acquire(blocking=False):
            return None
        try:
            self._end_left(relation_id)
            if not self._end_late(relation_id):
                return None
            with self._home.meta.owned(self._held) as c:
                intent, dead = self._decide_cover(c, relation_id)
            self._home.storage.remove(dead)
            if intent is None:
                return None
            crash.here("cover.decided")
            published = self._finish(intent)
            now = time.monotonic()
            self._rest_until[relation_id] = now + min((now - began) * (1 / COVER_BUDGET - 1), COVER_REST_S)
            return published
        finally:
            self._locks[relation_id].release()

    def fold(self, relation_id: int, upto: int | None = None) -> Epoch | None:
        """Moves a relation's overlay (up to an index) into its base, with a new epoch; None if there is none."""
        with self._locks[relation_id]:
            self._end_left(relation_id)
            return self._fold(relation_id, upto)

    def _fold(self, relation_id: int, upto: int | None = None) -> Epoch | None:
        with self._home.meta.owned(self._held) as c:
            decided = self._decide_fold(c, relation_id, upto)
        if decided is None:
            return None
        intent, pin = decided
        crash.here("fold.decided")
        try:
            return self._finish(intent, may_merge=True)
        finally:
            with self._home.meta.write() as c:
                epochs.release_pin(c, pin)

    def advance(self, relation_ids: Sequence[int]) -> Epoch | None:
        """Moves relations whose log holds nothing for them on to the newest index, so that they hold back no log.

        It is what a fold would leave, without one: no base is touched. None if there is nothing to move.
        """
        with ExitStack() as locks:
            free = [id for id in relation_ids if self._locks[id].acquire(blocking=False)]
            for id in free:
                locks.callback(self._locks[id].release)
            with self._home.meta.owned(self._held) as c:
                moved = [id for id in free if self._advanced(c, id)]
                return epoch.publish(c, moved) if moved else None

    def _advanced(self, c: Connection, relation_id: int) -> bool:
        relation, newest = relations.get_or_none(c, relation_id), epochs.newest(c)
        if relation is None or newest is None or intents.all(c, relation_id):
            return False
        layout, index = epochs.layout_at(c, relation_id, newest.id), newest.index_for(relation)
        if layout is None or not layout.settled or layout.log_index >= index:
            return False
        if changes_of.count(c, relation, layout.log_index, index):
            return False
        if changes_of.first_kept(c, relation) > layout.log_index + 1:
            return False  # what is not kept is not known to be no change: reading the table says so
        settle.move(c, relation_id, [s.id for s in spans.all(c, relation_id)], index)
        settle.merge(c, relation_id)
        relations.set_folded(c, relation_id)
        return True

    def upkeep(self, relation_id: int, rewrite: Rewrite, *, checkpoint: bool = False) -> Epoch | None:
        """Lets `rewrite` commit to a base without changing what it holds, and shows that with a new epoch.

        None if it committed nothing, or if somebody else is at the base. A crash (or a failure) between its commit and
        meta is harmless: meta goes on naming the version before it, whose rows are the same and whose files are not
        vacuumed while meta names it; a cover or a fold builds on the newest version, whichever that is. The intent is
        there so that the next start moves meta on, and so that nobody vacuums meanwhile. With `checkpoint` it writes a
        checkpoint of a version that meta has: the intent says that it may be torn.
        """
        if not self._locks[relation_id].acquire(blocking=False):
            return None
        try:
            self._end_left(relation_id)
            if not self._end_late(relation_id):
                return None
            with self._home.meta.read() as c:
                relation = relations.get_or_none(c, relation_id)
                busy = any(not isinstance(i.work, Upkeep) for i in intents.all(c, relation_id))
            if relation is None or busy:
                return None
            with self._home.meta.owned(self._held) as c:
                for left in intents.all(c, relation_id):
                    intents.done(c, left.id)  # one that could not be recorded: this one does that, too
                intent = self._decided(c, relation_id, Upkeep(checkpoint))
            try:
                rewrite(relation)
                crash.here("base.upkept")
            finally:
                published = self._finish(intent)
            return published
        finally:
            self._locks[relation_id].release()

    def _decide_cover(self, c: Connection, relation_id: int) -> tuple[Intent | None, list[str]]:
        """The intent to add the files of all passed spans; spans of another life of the server go back to pending."""
        relation = relations.get_or_none(c, relation_id)
        if relation is None:
            return None, []
        left = [i for i in intents.all(c, relation_id) if isinstance(i.work, Cover)]
        if left:
            return left[0], []
        connection = connections.get(c, relation.origin.connection_id)
        life = connections.server_life(c, connection.id)
        ready, dead = [], []
        for scanned in spans.uncovered(c, relation_id):
            if scanned.server_life != life:
                spans.back_to_pending(c, scanned.id)
                dead += [f"{relation.base_path}/{f.path}" for f in scanned.files]
            elif self._passed(connection.type, connection.position, scanned.high):
                ready.append(scanned)
        if not ready:
            return None, dead
        work = Cover(
            spans=tuple(s.id for s in ready),
            files=tuple(f for s in ready for f in s.files),
            again=tuple(s.span for s in ready if s.again),
        )
        return self._decided(c, relation_id, work), dead

    def _decide_fold(self, c: Connection, relation_id: int, upto: int | None) -> tuple[Intent, int] | None:
        relation = relations.get_or_none(c, relation_id)
        newest = epochs.newest(c)
        if relation is None or newest is None:
            return None
        layout = epochs.layout_at(c, relation_id, newest.id)
        if layout is None or not layout.spans:
            return None
        index = newest.index_for(relation)
        index = index if upto is None else min(index, upto)
        if layout.settled and not changes_of.count(c, relation, layout.log_index, index):
            return None
        covered = tuple(s.id for s in spans.all(c, relation_id) if s.cover_index is not None)
        return self._decided(c, relation_id, Fold(index, newest.id, covered)), epochs.take_pin(c, newest.id, "fold")

    def _decided(self, c: Connection, relation_id: int, work: Work) -> Intent:
        return intents.add(c, relation_id, work, self._home.storage.life())

    def _take_back(self, relation_id: int) -> None:
        """If the machine went down between a decision and its record: removes what may have been committed since."""
        if relation_id not in self._untrusted:
            return
        with self._home.meta.read() as c:
            relation = relations.get_or_none(c, relation_id)
        if relation is not None and relation.base_version >= 0:
            storage, path = self._home.storage, relation.base_path
            commits.take_back(storage, path, relation.base_version, checkpoint=self._untrusted[relation_id])
        del self._untrusted[relation_id]

    def _end_left(self, relation_id: int) -> None:
        """Does what an error kept a recovery or a fold from doing: nothing may be built on the base before."""
        self._take_back(relation_id)
        with self._home.meta.read() as c:
            left = [i for i in intents.all(c, relation_id) if isinstance(i.work, Fold)]
        for intent in left:
            self._finish(intent)
        self._home.live.failures.worked(Who("recover", table=relation_id))

    def _end_late(self, relation_id: int) -> bool:
        """Folds again if the base has a fold that committed after it was given up; False if nothing may be built on it.

        Meta would name a version whose log begins before it: a row that moved to another key meanwhile, and left values
        in the base, would be searched for where it is no more. A fold reads the version that meta names.
        """
        with self._home.meta.read() as c:
            relation = relations.get_or_none(c, relation_id)
        if relation is None:
            return True
        if not base.has_since(self._home.storage, relation.base_path, relation.base_version, _fold_id(relation)):
            return True
        if relation.state is TableState.FAILED:
            return False  # it is folded to where it stopped, and no further
        log.warning("a fold was committed after it was given up relation=%s", relation_id)
        self._fold(relation_id)
        return True

    def _finish(self, intent: Intent, *, may_merge: bool = False) -> Epoch | None:
        with self._home.meta.read() as c:
            relation = relations.get_or_none(c, intent.relation_id)
        if relation is None:
            with self._home.meta.write() as c:
                intents.done(c, intent.id)
            return None
        match intent.work:
            case Cover() as cover:
                return self._finish_cover(relation, intent.id, cover)
            case Fold() as fold:
                return self._finish_fold(relation, intent.id, fold, may_merge)
            case Upkeep():
                return self._finish_upkeep(relation, intent.id)

    def _finish_cover(self, relation: RelationInfo, id: int, cover: Cover) -> Epoch | None:
        version, again = relation.base_version, list(cover.again)
        app_id = f"headwater-cover-{relation.id}"
        if again and base.transaction_commit(self._home.storage, relation.base_path, app_id, id) is None:
            version = self._writer.remove(relation, again)
        if cover.files:
            version = base.add_files(self._home.storage, relation.base_path, cover.files, app_id, id)
            crash.here("cover.added")
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        with self._home.meta.owned(self._held) as c:
            if relations.get_or_none(c, relation.id) is None:
                return None  # dropped meanwhile, its intents with it
            _record_version(c, relation, version)
            index = connections.get(c, relation.origin.connection_id).committed_index
            for span_id in cover.spans:
                spans.cover(c, span_id, index)
            if again and not relation.ordered:
                spans.forget_again(c, relation.id)
            if relation.ordered:
                self._settle(c, relation, index)
            intents.done(c, id)
            published = epoch.publish(c, [relation.id])
        crash.here("cover.recorded")
        return published

    def _settle(self, c: Connection, relation: RelationInfo, index: int) -> None:
        """Where the table did not change since its spans were scanned there is nothing to fold: they settle at once."""
        last = changes_of.last(c, relation, index)
        settle.quiet(c, relation.id, last, index)
        settle.merge(c, relation.id)

    def _finish_fold(self, relation: RelationInfo, id: int, fold: Fold, may_merge: bool) -> Epoch | None:
        """Merges, unless Delta already has this fold; an unmade fold of an earlier process is dropped."""
        app_id = _fold_id(relation)
        version = base.transaction_commit(self._home.storage, relation.base_path, app_id, id)
        if version is None:
            if not may_merge:
                with self._home.meta.write() as c:
                    intents.done(c, id)
                return None
            version = self._merged(relation, id, fold, app_id)
            crash.here("fold.merged")
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        with self._home.meta.owned(self._held) as c:
            if relations.get_or_none(c, relation.id) is None:
                return None  # dropped meanwhile, its intents with it
            _record_version(c, relation, version)
            settle.move(c, relation.id, fold.spans, fold.index)
            settle.merge(c, relation.id)
            runs.retire_folded(c, relation.id, fold.index)
            relations.set_folded(c, relation.id)
            intents.done(c, id)
            return epoch.publish(c, [relation.id])

    def _finish_upkeep(self, relation: RelationInfo, id: int) -> Epoch | None:
        """Moves meta on to the newest version: whatever was committed since the last recorded one changed no row."""
        version = base.current_version(self._home.storage, relation.base_path)
        commits.make_durable(self._home.storage, relation.base_path, relation.base_version, version)
        with self._home.meta.owned(self._held) as c:
            intents.done(c, id)
            current = relations.get_or_none(c, relation.id)
            if current is None or current.base_version >= version:
                return None
            _record_version(c, relation, version)
            return epoch.publish(c, [relation.id])

    def _merged(self, relation: RelationInfo, id: int, fold: Fold, app_id: str) -> int:
        with self._home.meta.read() as c:
            layout = epochs.layout_at(c, relation.id, fold.epoch)
            assert layout is not None
            first, last = layout.log_index, fold.index
            if not changes_of.count(c, relation, first, last):
                check_history(c, relation, first, last)
                return relation.base_version
        try:
            return self._writer.merge(relation, layout, fold.index, app_id, id)
        except Exception as e:
            made = base.transaction_commit(self._home.storage, relation.base_path, app_id, id)
            if made is None:
                with self._home.meta.write() as c:
                    intents.done(c, id)
                raise
            log.warning("a fold failed after its commit relation=%s error=%s", relation.id, type(e).__name__)
            return made


def _fold_id(relation: RelationInfo) -> str:
    """The name under which folds of a relation are numbered in Delta's log."""
    return f"headwater-fold-{relation.id}"


def _record_version(c: Connection, relation: RelationInfo, version: int) -> None:
    """Versions follow each other, so one that was recorded later holds this commit, too."""
    relations.set_base_version(c, relation.id, max(version, relations.get(c, relation.id).base_version))
