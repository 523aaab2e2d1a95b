"""A relation's changes in the changelog: how many, where they are, how they are written, since when."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from headwater.meta import segments
from headwater.model import Part, RelationInfo, SchemaVersion


def count(c: Connection, relation: RelationInfo, after: int, upto: int) -> int:
    """About how many changes are in (after, upto]; 0 means certainly none."""
    return segments.count_changes(c, relation.origin.connection_id, relation.origin.upstream_id, after, upto)


def last(c: Connection, relation: RelationInfo, upto: int) -> int:
    """An index at or after the last change up to `upto`, and at most `upto`; 0: there is none."""
    return segments.last_change(c, relation.origin.connection_id, relation.origin.upstream_id, upto)


def pieces(c: Connection, relation: RelationInfo, after: int, upto: int) -> list[tuple[str, Part]]:
    """(segment path, part) of the changes in (after, upto], in index order."""
    return segments.of_table(c, relation.origin.connection_id, relation.origin.upstream_id, after, upto)


def first_kept(c: Connection, relation: RelationInfo) -> int:
    """The first index that still exists; everything before it has been removed."""
    return segments.first_kept(c, relation.origin.connection_id)


def schemas(c: Connection, relation: RelationInfo) -> list[SchemaVersion]:
    """How its changes are written, in the order of the changelog."""
    return segments.schemas(c, relation.origin.connection_id, relation.origin.upstream_id)


def schemas_in_use(c: Connection, relation: RelationInfo, newer_than: int) -> list[SchemaVersion]:
    """The schema versions above an id that changes of the relation are written in."""
    origin = relation.origin
    return segments.schemas_in_use(c, origin.connection_id, origin.upstream_id, origin.begin_index, newer_than)
