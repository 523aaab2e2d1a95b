"""The end of a view's fill: the last slice makes it readable at the epoch at which its inputs were read."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.engine import Connection

from headwater import crash
from headwater.engine.commit.layout import layout_of
from headwater.meta import epochs, relations, settle, spans, views
from headwater.meta.intents import Cover
from headwater.model import Epoch, RelationInfo, SpanState, TableState


def in_parts(c: Connection, relation_id: int) -> bool:
    """Whether the slices of a view's fill hold partial rows, of which the last one makes the view."""
    fill = views.fill(c, relation_id)
    return fill is not None and fill.partial


def all_written(c: Connection, relation_id: int) -> bool:
    """Whether every slice of a fill is written."""
    counts = spans.counts(c, relation_id)
    return not counts.get(SpanState.PENDING) and not counts.get(SpanState.SCANNING)


def parts(c: Connection, relation: RelationInfo, cover: Cover) -> list[str]:
    """The files of partial rows that nobody needs after a cover."""
    named = {f.path for f in cover.files}
    written = [f.path for s in spans.uncovered(c, relation.id) if s.id in cover.spans for f in s.files]
    return [f"{relation.base_path}/{path}" for path in written if path not in named]


def settle_slices(c: Connection, relation_id: int, added: Sequence[int]) -> Epoch | None:
    """Records slices whose files are in the base; with the last one the view has its first version.

    Returns the epoch of that version. Nobody has read the view before, so its layout begins there, in the past.
    """
    fill = views.fill(c, relation_id)
    assert fill is not None, "a slice belongs to a fill"
    for span_id in added:
        spans.cover(c, span_id, fill.epoch)
    if fill.partial:
        spans.count_no_rows(c, added[:-1])  # partial rows are not rows of the view
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
        newest = epochs.newest(c)
        if newest is not None and views.over(c, relation_id):
            # Views over it are recomputed at a later epoch, and in a quiet home there would be none.
            epochs.publish(c, list(newest.entries), {})
        crash.here("view.swapped")
    relations.open_if_complete(c, relation.block)
    return epochs.get(c, fill.epoch)
