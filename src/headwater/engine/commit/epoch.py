"""The publisher of epochs: one meta transaction per epoch, no Spark job."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.engine import Connection

from headwater import crash
from headwater.engine.commit.layout import layout_of
from headwater.meta import connections, epochs, relations, spans
from headwater.meta.store import Meta
from headwater.model import Epoch, EpochEntry, RelationInfo, TableState
from headwater.ownership.lease import Lease


def publish_if_moved(meta: Meta, lease: Lease) -> Epoch | None:
    """A new epoch if any changelog has grown since the last one; None if nothing changed."""
    with meta.read() as c:
        if not _moved(c):
            return None
    with meta.owned(lease) as c:
        return publish(c, ()) if _moved(c) else None


def publish(c: Connection, changed: Iterable[int]) -> Epoch:
    """A new epoch in the caller's transaction, with new layouts for the `changed` relations.

    The caller has checked its fence. A relation whose last span became readable turns live with the epoch.
    """
    layouts = {}
    for relation_id in changed:
        relation = relations.get_or_none(c, relation_id)
        if relation is None:
            continue  # dropped meanwhile
        complete = relations.planned(c, relation_id) and not spans.unread(c, relation_id)
        layout = layout_of(relation, spans.readable(c, relation_id), complete)
        layouts[relation_id] = layout
        if layout.complete and relation.state is TableState.FILLING:
            _complete(c, relation)
    published = epochs.publish(c, _entries(c), layouts)
    crash.here("epoch.half")
    return published


def _complete(c: Connection, relation: RelationInfo) -> None:
    """Makes the relation live from this epoch on; a resynced one takes over the name of the one it replaces."""
    relations.set_state(c, relation.id, TableState.LIVE)
    if relation.replaces:
        relations.take_place(c, relation.id)
    relations.open_if_complete(c, relation.block)


def _entries(c: Connection) -> list[EpochEntry]:
    return [EpochEntry(x.id, x.committed_index, x.position) for x in connections.all(c)]


def _moved(c: Connection) -> bool:
    newest = epochs.newest(c)
    if newest is None:
        return True
    now = {(x.connection_id, x.index) for x in _entries(c)}
    return now != {(x.connection_id, x.index) for x in newest.entries}
