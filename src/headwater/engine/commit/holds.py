"""What holds a changelog back: each holder needs the changes after some index; retention keeps what the lowest needs.

A table needs the changes that its base does not hold yet. A running statement, the epochs that views need to continue
(`epochs.VIEWS`), and the epochs that stay readable for a while need the changes that the tables' layouts at that time
did not hold.

To add a holder (a sink), yield its `Need` in `_needs`: it is then in `SHOW HOLDS` and in the metrics, and retention
respects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations, segments
from headwater.model import ConnectionInfo, RelationInfo, TableState

HISTORY = "history"  # unpinned epochs that stay readable for a while
RESYNC = "resync of "


@dataclass(frozen=True, slots=True)
class Hold:
    """A holder that needs a connection's changes after an index."""

    connection: str
    holder: str  # `table orders`, `resync of orders`, `history`, `views`, or the owner of a pin
    index: int
    changes: int  # how many changes it holds, of all tables
    since: float | None  # when the oldest of them was published; None if there are none


@dataclass(frozen=True, slots=True)
class Need:
    """What a holder needs of a connection's changelog: what it takes to read `relations` at `epoch` or later.

    `index` is for a holder that follows the changelog itself: it needs the changes after that index.
    """

    holder: str
    relations: tuple[RelationInfo, ...] = ()
    epoch: int = 0
    index: int | None = None


def holds(c: Connection, connection: ConnectionInfo) -> list[Hold]:
    """All holders of a connection's changes, lowest index first."""
    last = connection.committed_index
    kept: dict[int, list[_Kept]] = {}  # each layout is read once, however many readers there are
    known: dict[tuple[int, int], int] = {}  # several pins often have the same epoch
    found = []
    for need in _needs(c, connection):
        for r in need.relations:
            if r.id not in kept:
                kept[r.id] = _kept(c, r)
            if (r.id, need.epoch) not in known:
                known[r.id, need.epoch] = _needed(r, kept[r.id], last, need.epoch)
        indexes = [known[r.id, need.epoch] for r in need.relations]
        found.append((min([last, *indexes, *([] if need.index is None else [need.index])]), need.holder))
    return [
        Hold(connection.name, who, i, last - i, segments.published_after(c, connection.id, i))
        for i, who in sorted(found)
    ]


def lowest(c: Connection, connection: ConnectionInfo) -> int:
    """The lowest index of all `holds`, at the cost of one look at each relation however many readers it has.

    A reader of a later epoch never needs more, so each relation is looked at only for its oldest one.
    """
    indexes = [connection.committed_index]
    oldest: dict[int, tuple[int, RelationInfo]] = {}
    for need in _needs(c, connection):
        if need.index is not None:
            indexes.append(need.index)
        for r in need.relations:
            if r.id not in oldest or need.epoch < oldest[r.id][0]:
                oldest[r.id] = need.epoch, r
    return min([*indexes, *(needed_by(c, r, connection.committed_index, epoch) for epoch, r in oldest.values())])


def _needs(c: Connection, connection: ConnectionInfo) -> Iterator[Need]:
    """Everyone who holds the connection's changelog back."""
    followed, newest = tuple(relations.all(c, connection.id)), epochs.newest(c)
    for relation in followed:
        yield Need(_name(relation), (relation,), newest.id if newest else 0)
    if followed:
        yield Need(HISTORY, followed, epochs.oldest(c))
        past = tuple(r for r in relations.replaced(c) if changes_of.connection_of(r) == connection.id)
        for epoch, owner in epochs.pinned_by(c):
            yield Need(owner, followed + past, epoch)


def _name(relation: RelationInfo) -> str:
    name = relation.name.removeprefix(relations.BESIDE)
    return f"{RESYNC if relation.replaces else 'table '}{name}"


def needed_by(c: Connection, relation: RelationInfo, committed_index: int, oldest_epoch: int) -> int:
    """The index after which reads of the relation, at the given epoch or later, need the changelog."""
    return _needed(relation, _kept(c, relation), committed_index, oldest_epoch)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A layout of a relation: since which epoch, and where the overlay over it begins (None: it has no span)."""

    epoch: int
    complete: bool
    index: int | None


def _kept(c: Connection, relation: RelationInfo) -> list[_Kept]:
    """The relation's layouts, newest first."""
    return [
        _Kept(epoch, layout.complete, layout.index_for(relation) if layout.spans else None)
        for epoch, layout in epochs.layouts_of(c, relation.id)
    ]


def _needed(relation: RelationInfo, kept: Sequence[_Kept], committed_index: int, oldest_epoch: int) -> int:
    if relation.history_missing:
        return committed_index
    # a reader at an epoch uses the newest layout that is not newer
    older = next((i for i, x in enumerate(kept) if x.epoch <= oldest_epoch), len(kept))
    layouts = kept[: older + 1]
    indexes = [x.index for x in layouts if x.index is not None]
    if relation.stopped_at is not None:  # its newest layout needs nothing, but older epochs may read older layouts
        return min([committed_index, *(i for i in indexes if i < relation.stopped_at)])
    complete = bool(layouts) and all(x.complete for x in layouts)
    whole = complete and relation.state in (TableState.LIVE, TableState.FAILED)
    return min([committed_index, *indexes] if whole else [committed_index, *indexes, changes_of.begin(relation)])
