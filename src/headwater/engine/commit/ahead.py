"""How far changelogs are ahead of the bases that folds can bring up to date."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from headwater.engine.failures import Failures
from headwater.meta import changes as changes_of
from headwater.meta import epochs, relations, segments
from headwater.model import TableState


def ahead_bytes(c: Connection, failures: Failures) -> dict[int, int]:
    """Per connection the bytes of changes that some base does not hold yet, and that a fold would bring into it.

    A table whose folds fail does not count, because one broken table must not stop the others. Neither does one that
    is being filled: its spans are covered only if the capture goes on.
    """
    newest = epochs.newest(c)
    if newest is None:
        return {}
    layouts, held = epochs.layouts_at(c, newest.id), dict[int, int]()
    for relation in relations.tables(c):
        layout = layouts.get(relation.id)
        failing = any(job == "fold" for job, _ in failures.of(table=relation.id))
        if layout is None or not layout.complete or failing or relation.state is TableState.FAILED:
            continue
        connection_id, index = changes_of.connection_of(relation), layout.index_for(relation)
        held[connection_id] = min(held.get(connection_id, index), index)
    return {id: segments.bytes_between(c, id, after, newest.index_of(id)) for id, after in held.items()}
