"""Segments and schema versions in meta: what the changelog holds and how its rows were written."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.errors import JobError
from headwater.meta.tables import connection, part, schema_version, segment
from headwater.model import LogColumn, Part, SchemaVersion, Segment


def publish(c: Connection, new: Segment, *, resume_position: str, position: str, last_txn: int) -> None:
    """Makes a durable segment part of the changelog, only in sequence. The caller owns the connection.

    `resume_position` is the end of the last commit in or before the segment, `position` the published progress.
    """
    last = c.execute(sa.select(connection.c.last_index).where(connection.c.id == new.connection_id)).scalar_one()
    if new.first_index != last + 1:
        raise JobError("job.failed", f"segment starts at {new.first_index}, the changelog ends at {last}")
    insert(c, new)
    c.execute(
        sa.update(connection)
        .where(connection.c.id == new.connection_id)
        .values(
            last_index=new.last_index,
            committed_index=new.committed_index,
            resume_position=resume_position,
            position=position,
            position_at=time.time(),
            last_txn=last_txn,
        )
    )


oldest = sa.func.coalesce(segment.c.oldest_at, segment.c.created_at)  # when a segment's oldest change was published


def insert(c: Connection, new: Segment) -> None:
    c.execute(
        sa.insert(segment).values(
            connection_id=new.connection_id,
            first_index=new.first_index,
            last_index=new.last_index,
            committed_index=new.committed_index,
            path=new.path,
            bytes=new.bytes,
            txn_min=new.txn_min,
            txn_max=new.txn_max,
            created_at=time.time(),
        )
    )
    if new.parts:
        c.execute(
            sa.insert(part),
            [{"connection_id": new.connection_id, "segment_index": new.first_index, **asdict(p)} for p in new.parts],
        )


def cut_back(c: Connection, connection_id: int) -> list[str]:
    """Removes what was captured past the last durable commit (the server sends it again); returns the dead files.

    The caller owns the connection.
    """
    committed = c.execute(sa.select(connection.c.committed_index).where(connection.c.id == connection_id)).scalar_one()
    dead = c.execute(
        sa.select(segment).where(segment.c.connection_id == connection_id, segment.c.last_index > committed)
    ).all()
    # a segment that also holds the end of a committed transaction stays; readers never read past `committed`
    for row in dead:
        if row.first_index <= committed:
            raise JobError("job.failed", "a segment holds both a completed and an open transaction")
    for table, column in ((segment, segment.c.first_index), (part, part.c.segment_index)):
        c.execute(sa.delete(table).where(table.c.connection_id == connection_id, column > committed))
    c.execute(
        sa.delete(schema_version).where(
            schema_version.c.connection_id == connection_id, schema_version.c.from_index > committed + 1
        )
    )
    c.execute(sa.update(connection).where(connection.c.id == connection_id).values(last_index=committed))
    return [row.path for row in dead]


def of_table(c: Connection, connection_id: int, upstream_id: int, after: int, upto: int) -> list[tuple[str, Part]]:
    """(segment path, part) of one upstream table's changes in (after, upto], in index order."""
    rows = c.execute(
        sa.select(segment.c.path, part)
        .join(
            segment,
            sa.and_(segment.c.connection_id == part.c.connection_id, segment.c.first_index == part.c.segment_index),
        )
        .where(
            part.c.connection_id == connection_id,
            part.c.upstream_id == upstream_id,
            part.c.last_index > after,
            part.c.first_index <= upto,
        )
        .order_by(part.c.first_index)
    )
    return [(r.path, _part(r)) for r in rows]


def count_changes(c: Connection, connection_id: int, upstream_id: int, after: int, upto: int) -> int:
    """About how many changes of a table are in (after, upto]; 0 means certainly none.

    A part that overlaps the range (merged segments have large ones) counts by the share of its indexes.
    """
    if upto <= after:
        return 0
    first = sa.case((part.c.first_index > after, part.c.first_index), else_=after + 1)
    last = sa.case((part.c.last_index < upto, part.c.last_index), else_=upto)
    inside, whole = last - first + 1, part.c.last_index - part.c.first_index + 1
    share = (part.c.changes * inside + whole - 1) // whole  # rounded up: something never becomes nothing
    q = sa.select(sa.func.coalesce(sa.func.sum(share), 0)).where(
        part.c.connection_id == connection_id,
        part.c.upstream_id == upstream_id,
        part.c.last_index > after,
        part.c.first_index <= upto,
    )
    return int(c.execute(q).scalar_one())


def last_change(c: Connection, connection_id: int, upstream_id: int, upto: int) -> int:
    """An index at or after the last change of a table in the changelog up to `upto`, and at most `upto`; 0: none."""
    q = sa.select(sa.func.max(part.c.last_index)).where(
        part.c.connection_id == connection_id, part.c.upstream_id == upstream_id, part.c.first_index <= upto
    )
    return min(int(c.execute(q).scalar() or 0), upto)


def first_unseen(c: Connection, connection_id: int, txn_min: int, last_index: int) -> int:
    """The index after which a freshly scanned span's log begins: the scan saw everything at or below it.

    Every transaction below the scan's `txn_min` was seen. Segments are not opened: an index lower than the exact
    one is also correct, because what the scan saw is checked again per change.
    """
    q = sa.select(sa.func.min(segment.c.first_index)).where(
        segment.c.connection_id == connection_id, segment.c.txn_max >= txn_min
    )
    first = c.execute(q).scalar()
    return last_index if first is None else min(int(first) - 1, last_index)


def in_range(c: Connection, connection_id: int, after: int, upto: int) -> list[Segment]:
    """Segments that hold any index in (after, upto], with their parts."""
    rows = c.execute(
        sa.select(segment)
        .where(segment.c.connection_id == connection_id, segment.c.last_index > after, segment.c.first_index <= upto)
        .order_by(segment.c.first_index)
    ).all()
    return [_segment(r, parts(c, connection_id, r.first_index)) for r in rows]


def completing(c: Connection, connection_id: int, after: int, upto: int) -> list[str]:
    """The files that complete the transactions of the changes in (after, upto]."""
    own = segment.c.connection_id == connection_id
    end = sa.select(sa.func.min(segment.c.last_index)).where(own, segment.c.committed_index >= upto).scalar_subquery()
    q = sa.select(segment.c.path).where(own, segment.c.last_index > after, segment.c.last_index <= end)
    return list(c.execute(q.order_by(segment.c.first_index)).scalars())


def published_after(c: Connection, connection_id: int, index: int) -> float | None:
    """When the oldest kept segment with a change after an index was published; None if there is none."""
    q = sa.select(oldest).where(segment.c.connection_id == connection_id, segment.c.last_index > index)
    found = c.execute(q.order_by(segment.c.first_index).limit(1)).scalar()
    return None if found is None else float(found)


def sizes(c: Connection) -> dict[int, tuple[int, int]]:
    """The number of segments in each connection's changelog, and their bytes."""
    q = sa.select(segment.c.connection_id, sa.func.count(), sa.func.sum(segment.c.bytes))
    return {id: (int(n), int(size)) for id, n, size in c.execute(q.group_by(segment.c.connection_id))}


def bytes_between(c: Connection, connection_id: int, after: int, upto: int) -> int:
    """The size of the segments that hold any index in (after, upto]."""
    q = sa.select(sa.func.coalesce(sa.func.sum(segment.c.bytes), 0)).where(
        segment.c.connection_id == connection_id, segment.c.last_index > after, segment.c.first_index <= upto
    )
    return int(c.execute(q).scalar_one())


def parts(c: Connection, connection_id: int, first_index: int) -> tuple[Part, ...]:
    rows = c.execute(
        sa.select(part)
        .where(part.c.connection_id == connection_id, part.c.segment_index == first_index)
        .order_by(part.c.batch)
    )
    return tuple(_part(r) for r in rows)


def first_kept(c: Connection, connection_id: int) -> int:
    """The lowest index from which the changelog is kept without a gap."""
    first = c.execute(sa.select(sa.func.min(segment.c.first_index)).where(segment.c.connection_id == connection_id))
    last = sa.select(connection.c.last_index).where(connection.c.id == connection_id)
    found = first.scalar()
    return int(c.execute(last).scalar() or 0) + 1 if found is None else int(found)


def index_over(c: Connection, connection_id: int, most_bytes: int) -> int:
    """The index up to which segments must be removed to leave at most `most_bytes`; 0 if none."""
    q = sa.select(segment.c.last_index, segment.c.bytes).where(segment.c.connection_id == connection_id)
    total = 0
    for last_index, size in c.execute(q.order_by(segment.c.first_index.desc())):
        total += size
        if total > most_bytes:
            return int(last_index)
    return 0


def remove(c: Connection, connection_id: int, upto: int, older_than: float) -> list[str]:
    """Removes segments that end at or below `upto` and were created before `older_than`; returns their files.

    From the oldest on, up to the first one that stays: what is kept never has a gap.
    """
    stays = sa.or_(segment.c.last_index > upto, segment.c.created_at >= older_than)
    first = sa.select(sa.func.min(segment.c.first_index)).where(segment.c.connection_id == connection_id, stays)
    kept = c.execute(first).scalar()
    where = segment.c.connection_id == connection_id
    if kept is not None:
        where = sa.and_(where, segment.c.first_index < kept)
    rows = c.execute(sa.select(segment.c.first_index, segment.c.path).where(where)).all()
    for row in rows:
        c.execute(sa.delete(part).where(part.c.connection_id == connection_id, part.c.segment_index == row.first_index))
        c.execute(
            sa.delete(segment).where(segment.c.connection_id == connection_id, segment.c.first_index == row.first_index)
        )
    return [row.path for row in rows]


def between(c: Connection, connection_id: int, first: int, last: int) -> list[Segment]:
    """The segments in [first, last], with their parts, in two queries."""
    inside = sa.and_(part.c.connection_id == connection_id, part.c.segment_index.between(first, last))
    of: dict[int, list[Part]] = {}
    for row in c.execute(sa.select(part).where(inside).order_by(part.c.segment_index, part.c.batch)):
        of.setdefault(row.segment_index, []).append(_part(row))
    rows = c.execute(
        sa.select(segment)
        .where(segment.c.connection_id == connection_id, segment.c.first_index >= first, segment.c.last_index <= last)
        .order_by(segment.c.first_index)
    )
    return [_segment(r, tuple(of.get(r.first_index, ()))) for r in rows]


def remove_schemas(c: Connection) -> int:
    """Removes schema versions that no change was written with, except each table's newest; returns their number.

    The newest always stays: a running capture may be about to publish changes under it.
    """
    newest = sa.select(sa.func.max(schema_version.c.id)).group_by(
        schema_version.c.connection_id, schema_version.c.upstream_id
    )
    older = list(c.execute(sa.select(schema_version.c.id).where(schema_version.c.id.not_in(newest))).scalars())
    if not older:  # as almost always: the parts need not be searched
        return 0
    used = set(c.execute(sa.select(part.c.schema_id).where(part.c.schema_id.in_(older)).distinct()).scalars())
    gone = [id for id in older if id not in used]
    c.execute(sa.delete(schema_version).where(schema_version.c.id.in_(gone)))
    return len(gone)


def add_schema(
    c: Connection,
    connection_id: int,
    *,
    upstream_id: int,
    from_index: int,
    schema: str,
    table: str,
    identity: str,
    columns: Sequence[LogColumn],
    broken: str = "",
) -> SchemaVersion:
    """The schema version for rows from `from_index` on; the current one again if nothing changed."""
    described = {"schema": schema, "table": table, "identity": identity, "columns": [_plain(x) for x in columns]}
    body = json.dumps({**described, "broken": broken} if broken else described)
    current = c.execute(
        sa.select(schema_version)
        .where(schema_version.c.connection_id == connection_id, schema_version.c.upstream_id == upstream_id)
        .order_by(schema_version.c.from_index.desc(), schema_version.c.id.desc())
        .limit(1)
    ).first()
    if current is not None and current.body == body:
        return _schema(current)
    result = c.execute(
        sa.insert(schema_version).values(
            connection_id=connection_id, upstream_id=upstream_id, from_index=from_index, body=body
        )
    )
    assert result.inserted_primary_key is not None
    row = c.execute(sa.select(schema_version).where(schema_version.c.id == result.inserted_primary_key[0])).one()
    return _schema(row)


def schemas(c: Connection, connection_id: int, upstream_id: int | None = None) -> list[SchemaVersion]:
    q = sa.select(schema_version).where(schema_version.c.connection_id == connection_id)
    if upstream_id is not None:
        q = q.where(schema_version.c.upstream_id == upstream_id)
    return [_schema(r) for r in c.execute(q.order_by(schema_version.c.from_index, schema_version.c.id))]


def schemas_in_use(
    c: Connection, connection_id: int, upstream_id: int, after: int, newer_than: int
) -> list[SchemaVersion]:
    """The schema versions of a table above an id that something at an index above `after` is written in."""
    used = sa.select(part.c.schema_id).where(
        part.c.connection_id == connection_id, part.c.upstream_id == upstream_id, part.c.last_index > after
    )
    q = sa.select(schema_version).where(
        schema_version.c.connection_id == connection_id,
        schema_version.c.upstream_id == upstream_id,
        schema_version.c.id > newer_than,
        sa.or_(schema_version.c.from_index > after, schema_version.c.id.in_(used)),
    )
    return [_schema(r) for r in c.execute(q.order_by(schema_version.c.from_index, schema_version.c.id))]


def _part(r: Row[tuple[object, ...]]) -> Part:
    return Part(r.upstream_id, r.schema_id, r.batch, r.changes, r.first_index, r.last_index, r.truncates)


def _segment(r: Row[tuple[object, ...]], of: tuple[Part, ...]) -> Segment:
    return Segment(
        r.connection_id, r.first_index, r.last_index, r.committed_index, r.path, r.bytes, r.txn_min, r.txn_max, of
    )


def _schema(r: Row[tuple[object, ...]]) -> SchemaVersion:
    v = json.loads(r.body)
    columns = tuple(LogColumn(**{**x, "labels": tuple(x.get("labels", ()))}) for x in v["columns"])
    return SchemaVersion(
        r.id, r.upstream_id, r.from_index, v["schema"], v["table"], v["identity"], columns, v.get("broken", "")
    )


def _plain(column: LogColumn) -> dict[str, object]:
    """A column without empty fields: most logs have no charset and no labels."""
    return {k: v for k, v in asdict(column).items() if v or k not in ("unsigned", "charset", "labels")}
