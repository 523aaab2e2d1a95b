"""A relation's changes: how many, where they are, how they are written, since when.

A table's are in its connection's changelog; a view's are its runs, and their index is the epoch that they lead to.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy.engine import Connection

from headwater.meta import progress, relations, runs, segments, views
from headwater.model import Epoch, Part, RelationInfo, SchemaVersion


def connection_of(relation: RelationInfo) -> int:
    """The connection whose changelog has the relation's changes; 0 for a view."""
    return relation.origin.connection_id


def current(c: Connection, relation: RelationInfo, epoch: Epoch) -> int:
    """The last index up to which the relation's changes are known at an epoch."""
    return epoch.index_for(relation) if relation.view is None else views.last_version(c, relation.id, epoch.id)


def connections_of(c: Connection, found: Iterable[RelationInfo]) -> set[int]:
    """The connections that these relations come from; a view's are those of the tables below it."""
    ids, left = set[int](), list(found)
    while left:
        relation = left.pop()
        if relation.view is None:
            ids.add(connection_of(relation))
        else:  # one that was replaced has handed its inputs to the new one
            now = relations.get_or_none(c, relation.replaced_by) if relation.replaced_by else relation
            inputs = () if now is None or now.view is None else now.view.inputs
            left += [r for r in (relations.get_or_none(c, id) for id in inputs) if r is not None]
    return ids


def begin(relation: RelationInfo) -> int:
    """The index after which its changes begin to matter."""
    return relation.origin.begin_index


def count(c: Connection, relation: RelationInfo, after: int, upto: int) -> int:
    """About how many changes are in (after, upto]; 0 means certainly none."""
    if relation.view is not None:
        return sum(run.rows for run in runs.live(c, relation.id, after, upto))
    return segments.count_changes(c, relation.origin.connection_id, relation.table_origin.upstream_id, after, upto)


def counts(c: Connection, ranges: Iterable[tuple[RelationInfo, int, int]]) -> dict[int, int]:
    """`count` for many (relation, after, upto), by the relation's id; few queries for all of them."""
    wanted: dict[int, progress.Range] = {}
    found: dict[int, int] = {}
    for r, after, upto in ranges:
        if r.view is not None:
            found[r.id] = count(c, r, after, upto)
        else:
            wanted[r.id] = progress.Range(r.table_origin.connection_id, r.table_origin.upstream_id, after, upto)
    return found | progress.changes(c, wanted)


def last(c: Connection, relation: RelationInfo, upto: int) -> int:
    """An index at or after the last change up to `upto`, and at most `upto`; 0: there is none."""
    return segments.last_change(c, relation.origin.connection_id, relation.table_origin.upstream_id, upto)


def pieces(c: Connection, relation: RelationInfo, after: int, upto: int) -> list[tuple[str, Part]]:
    """(segment path, part) of the changes in (after, upto], in index order."""
    return segments.of_table(c, relation.origin.connection_id, relation.table_origin.upstream_id, after, upto)


def truncates(c: Connection, relation: RelationInfo, after: int, upto: int) -> bool:
    """Whether there may be a TRUNCATE in (after, upto]."""
    return any(part.truncates for _, part in pieces(c, relation, after, upto))


def first_kept(c: Connection, relation: RelationInfo) -> int:
    """The first index that still exists; everything before it has been removed. A view's runs stay while needed."""
    if relation.view is not None:
        return 0
    return segments.first_kept(c, relation.origin.connection_id)


def schemas(c: Connection, relation: RelationInfo) -> list[SchemaVersion]:
    """How its changes are written, in the order of the changelog."""
    return segments.schemas(c, relation.origin.connection_id, relation.table_origin.upstream_id)


def schemas_in_use(c: Connection, relation: RelationInfo, newer_than: int) -> list[SchemaVersion]:
    """The schema versions above an id that changes of the relation are written in."""
    origin = relation.table_origin
    return segments.schemas_in_use(c, origin.connection_id, origin.upstream_id, origin.begin_index, newer_than)
