"""Runs in meta: the typed, netted part of overlays."""

from __future__ import annotations

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

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
            created_at=time.time(),
        )
    )
    retire(c, replaces)
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def live(c: Connection, relation_id: int, after: int, upto: int) -> list[RunInfo]:
    """Live runs inside (after, upto], in index order."""
    q = (
        sa.select(run)
        .where(
            run.c.relation_id == relation_id,
            run.c.first_index > after,
            run.c.last_index <= upto,
            run.c.retired_at.is_(None),
        )
        .order_by(run.c.first_index)
    )
    return [_info(r) for r in c.execute(q)]


def retire(c: Connection, ids: Sequence[int]) -> None:
    c.execute(sa.update(run).where(run.c.id.in_(list(ids))).values(retired_at=time.time()))


def retire_folded(c: Connection, relation_id: int, upto: int) -> None:
    """Retires the runs that a fold to `upto` made useless."""
    c.execute(
        sa.update(run)
        .where(run.c.relation_id == relation_id, run.c.first_index <= upto, run.c.retired_at.is_(None))
        .values(retired_at=time.time())
    )


def remove_retired(c: Connection, before: float) -> list[str]:
    """Removes runs retired before a time (no reader is older); returns their files."""
    rows = c.execute(sa.select(run.c.id, run.c.path).where(run.c.retired_at < before)).all()
    for row in rows:
        c.execute(sa.delete(run).where(run.c.id == row.id))
    return [row.path for row in rows]


def paths(c: Connection, relation_id: int | None = None) -> set[str]:
    """The files of a relation's runs (or of all), with those that a reader may be about to open."""
    q = sa.select(run.c.path)
    if relation_id is not None:
        q = q.where(run.c.relation_id == relation_id)
    return set(c.execute(q).scalars())


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
    )
