"""Who holds a changelog back: each needs the changes after some index, and retention keeps them for the neediest.

A table needs what its base does not hold yet. A statement that runs, and the epochs that stay readable for a while,
need what the tables' layouts of that time did not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.meta import epochs, relations, segments
from headwater.model import ConnectionInfo, RelationInfo, TableState

HISTORY = "history"  # epochs that nobody has pinned and that can be read for a while
RESYNC = "resync of "


@dataclass(frozen=True, slots=True)
class Hold:
    """Somebody who needs a connection's changes after an index."""

    connection: str
    holder: str  # `table orders`, `resync of orders`, `history`, or the owner of a pin
    index: int
    changes: int  # how many that keeps, of whatever table
    since: float | None  # when the oldest of them was published; None: there are none


def holds(c: Connection, connection: ConnectionInfo) -> list[Hold]:
    """Everybody who needs changes of a connection, the neediest first."""
    found = sorted((min(index, connection.committed_index), holder) for holder, index in _needs(c, connection))
    last = connection.committed_index
    return [Hold(connection.name, who, i, last - i, segments.published_after(c, connection.id, i)) for i, who in found]


def _needs(c: Connection, connection: ConnectionInfo) -> Iterator[tuple[str, int]]:
    followed, newest, last = relations.all(c, connection.id), epochs.newest(c), connection.committed_index
    for relation in followed:
        yield _name(relation), needed_by(c, relation, last, newest.id if newest else 0)
    read = [(HISTORY, epochs.oldest(c)), *((owner, epoch) for epoch, owner in epochs.pinned_by(c))]
    for holder, epoch in read:
        needed = [needed_by(c, r, last, epoch) for r in followed]
        if needed:
            yield holder, min(needed)


def _name(relation: RelationInfo) -> str:
    name = relation.name.removeprefix(relations.BESIDE)
    return f"{RESYNC if relation.replaces else 'table '}{name}"


def needed_by(c: Connection, relation: RelationInfo, committed_index: int, oldest_epoch: int) -> int:
    """The index after which the relation, read at any epoch from the given one on, needs the changelog."""
    if relation.history_missing:
        return committed_index
    layouts = epochs.needed_layouts(c, relation.id, oldest_epoch)
    if relation.stopped_at is not None:  # its newest layout is whole; older epochs may read older ones
        return min([committed_index, *(x.log_index for x in layouts if x.spans and x.log_index < relation.stopped_at)])
    complete = bool(layouts) and all(x.complete for x in layouts)
    needed = min([committed_index, *(x.log_index for x in layouts if x.spans)])
    whole = complete and relation.state in (TableState.LIVE, TableState.FAILED)
    return needed if whole else min(needed, relation.origin.begin_index)
