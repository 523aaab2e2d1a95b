"""What holds a changelog back: each holder needs the changes after some index; retention keeps what the lowest needs.

A table needs the changes that its base does not hold yet. A running statement, and the epochs that stay readable for a
while, need the changes that the tables' layouts at that time did not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.meta import epochs, relations, segments
from headwater.model import ConnectionInfo, RelationInfo, TableState

HISTORY = "history"  # unpinned epochs that stay readable for a while
RESYNC = "resync of "


@dataclass(frozen=True, slots=True)
class Hold:
    """A holder that needs a connection's changes after an index."""

    connection: str
    holder: str  # `table orders`, `resync of orders`, `history`, or the owner of a pin
    index: int
    changes: int  # how many changes it holds, of all tables
    since: float | None  # when the oldest of them was published; None if there are none


def holds(c: Connection, connection: ConnectionInfo) -> list[Hold]:
    """All holders of a connection's changes, lowest index first."""
    found = sorted((min(index, connection.committed_index), holder) for holder, index in _needs(c, connection))
    last = connection.committed_index
    return [Hold(connection.name, who, i, last - i, segments.published_after(c, connection.id, i)) for i, who in found]


def lowest(c: Connection, connection: ConnectionInfo) -> int:
    """The lowest index among all `holds`. A later epoch never needs more, so only the oldest is looked at."""
    oldest, last = min(epoch for _, epoch in _read_epochs(c)), connection.committed_index
    return min([last, *(needed_by(c, r, last, oldest) for r in relations.all(c, connection.id))])


def _needs(c: Connection, connection: ConnectionInfo) -> Iterator[tuple[str, int]]:
    followed, newest, last = relations.all(c, connection.id), epochs.newest(c), connection.committed_index
    for relation in followed:
        yield _name(relation), needed_by(c, relation, last, newest.id if newest else 0)
    for holder, epoch in _read_epochs(c):
        needed = [needed_by(c, r, last, epoch) for r in followed]
        if needed:
            yield holder, min(needed)


def _read_epochs(c: Connection) -> list[tuple[str, int]]:
    """Who may read which epoch."""
    return [(HISTORY, epochs.oldest(c)), *((owner, epoch) for epoch, owner in epochs.pinned_by(c))]


def _name(relation: RelationInfo) -> str:
    name = relation.name.removeprefix(relations.BESIDE)
    return f"{RESYNC if relation.replaces else 'table '}{name}"


def needed_by(c: Connection, relation: RelationInfo, committed_index: int, oldest_epoch: int) -> int:
    """The index after which reads of the relation, at the given epoch or later, need the changelog."""
    if relation.history_missing:
        return committed_index
    layouts = epochs.needed_layouts(c, relation.id, oldest_epoch)
    if relation.stopped_at is not None:  # its newest layout needs nothing, but older epochs may read older layouts
        return min(
            [
                committed_index,
                *(x.index_for(relation) for x in layouts if x.spans and x.index_for(relation) < relation.stopped_at),
            ]
        )
    complete = bool(layouts) and all(x.complete for x in layouts)
    needed = min([committed_index, *(x.index_for(relation) for x in layouts if x.spans)])
    whole = complete and relation.state in (TableState.LIVE, TableState.FAILED)
    return needed if whole else min(needed, relation.origin.begin_index)
