"""Runs in meta: the typed, netted part of overlays."""

from __future__ import annotations

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.meta import epochs, views
from headwater.meta.tables import run
from headwater.model import RunInfo


def add(
    c: Connection,
    relation_id: int,
    *,
    first_index: int,
    last_index: int,
    path: str,
    rows: int,
    bytes: int,
    missing: bool,
    schema_version: int,
    base_index: int,
    truncate_index: int = 0,
    replaces: Sequence[int] = (),
    before_path: str = "",
) -> int:
    """Makes a written run part of the overlay; the runs that it contains are retired with it."""
    result = c.execute(
        sa.insert(run).values(
            relation_id=relation_id,
            first_index=first_index,
            last_index=last_index,
            path=path,
            rows=rows,
            bytes=bytes,
            missing=int(missing),
            truncate_index=truncate_index,
            schema_version=schema_version,
            base_index=base_index,
            before_path=before_path,
            created_at=time.time(),
        )
    )
    retire(c, replaces)
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def live(c: Connection, relation_id: int, after: int, upto: int) -> list[RunInfo]:
    """Runs inside (after, upto], in index order, none inside another: those of a view are together its changes there.

    Folded runs count, for bases that do not hold them. So do a view's runs that a later one contains: between them it
    may have a version that can still be read, or whose later changes can be asked for.
    """
    q = sa.select(run).where(
        run.c.relation_id == relation_id,
        run.c.first_index > after,
        run.c.last_index <= upto,
        sa.or_(run.c.retired_at.is_(None), run.c.folded == 1, run.c.before_path != ""),
    )
    found: list[RunInfo] = []
    for each in map(_info, c.execute(q.order_by(run.c.first_index, run.c.id.desc()))):
        if not (found and each.before_path and each.last_index <= found[-1].last_index):
            found.append(each)
    return sorted(found, key=lambda r: (r.first_index, r.id))


def unfolded(c: Connection, relation_id: int, after: int) -> list[RunInfo]:
    """A relation's current runs after an index, in order: neither merged into others nor folded."""
    q = sa.select(run).where(run.c.relation_id == relation_id, run.c.first_index > after, run.c.retired_at.is_(None))
    return [_info(r) for r in c.execute(q.order_by(run.c.first_index, run.c.id))]


def retire(c: Connection, ids: Sequence[int]) -> None:
    """Retires runs that another one contains."""
    c.execute(sa.update(run).where(run.c.id.in_(list(ids))).values(retired_at=time.time(), folded=0))


def retire_folded(c: Connection, relation_id: int, upto: int) -> None:
    """Retires the runs that a fold to `upto` made useless for layouts from then on."""
    c.execute(
        sa.update(run)
        .where(run.c.relation_id == relation_id, run.c.first_index <= upto, run.c.retired_at.is_(None))
        .values(retired_at=time.time(), folded=1)
    )


def remove_retired(c: Connection, before: float) -> list[str]:
    """Removes runs retired before a time (no reader is older) that no kept epoch needs; returns their files."""
    folded_upto: dict[int, int] = {}
    between: dict[int, set[int]] = {}
    gone = []
    for row in c.execute(sa.select(run).where(run.c.retired_at < before)).all():
        id = row.relation_id
        if row.folded and id not in folded_upto:
            folded_upto[id] = epochs.lowest_index(c, id)
        if row.before_path and not row.folded and id not in between:
            between[id] = _between_versions(c, id)
        needed = row.last_index > folded_upto[id] if row.folded else row.id in between.get(id, ())
        if not needed:
            c.execute(sa.delete(run).where(run.c.id == row.id))
            gone += [str(path) for path in (row.path, row.before_path) if path]
    return gone


def _between_versions(c: Connection, relation_id: int) -> set[int]:
    """A view's merged runs that are needed: the one that contains them ends after a version that can still be read."""
    oldest = min(views.versions_of(c, relation_id), default=epochs.EVERYTHING)
    q = sa.select(run.c.id, run.c.first_index, run.c.last_index).where(run.c.relation_id == relation_id)
    rows = c.execute(q.order_by(run.c.first_index, run.c.last_index.desc())).all()
    open: list[int] = []  # where the runs end that the next one may be inside of, the innermost last
    found = set[int]()
    for row in rows:
        while open and open[-1] < row.first_index:
            open.pop()
        if open and open[-1] > oldest:
            found.add(row.id)
        open.append(row.last_index)
    return found


def paths(c: Connection, relation_id: int | None = None) -> set[str]:
    """The files of a relation's runs (or of all), with those that a reader may be about to open."""
    q = sa.select(run.c.path, run.c.before_path)
    if relation_id is not None:
        q = q.where(run.c.relation_id == relation_id)
    return {path for row in c.execute(q) for path in row if path}


def _info(r: Row[tuple[object, ...]]) -> RunInfo:
    return RunInfo(
        r.id,
        r.relation_id,
        r.first_index,
        r.last_index,
        r.path,
        r.rows,
        r.bytes,
        bool(r.missing),
        r.truncate_index,
        r.schema_version,
        r.base_index,
        r.before_path,
    )
