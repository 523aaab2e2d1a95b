"""The end of a view's fill: the last slice makes it readable at the epoch at which its inputs were read."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from headwater import crash
from headwater.engine.commit.layout import layout_of
from headwater.meta import epochs, relations, settle, spans, views
from headwater.model import Epoch, TableState


def settle_slices(c: Connection, relation_id: int, added: Sequence[int]) -> Epoch | None:
    """Records slices whose files are in the base; with the last one the view has its first version.

    Returns the epoch of that version. Nobody has read the view before, so its layout begins there, in the past.
    """
    fill = views.fill(c, relation_id)
    assert fill is not None, "a slice belongs to a fill"
    for span_id in added:
        spans.cover(c, span_id, fill.epoch)
    settle.move(c, relation_id, added, fill.epoch)
    if spans.unread(c, relation_id):
        return None
    settle.join(c, relation_id)
    relation = relations.get(c, relation_id)
    epochs.put_layout(c, layout_of(relation, spans.readable(c, relation_id), True), fill.epoch)
    views.add_version(c, relation_id, fill.epoch)
    relations.set_state(c, relation_id, TableState.LIVE)
    if relation.replaces:
        relations.take_place(c, relation_id)
        crash.here("view.swapped")
    relations.open_if_complete(c, relation.block)
    return epochs.get(c, fill.epoch)
