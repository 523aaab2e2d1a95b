"""Runs in meta: the typed, netted part of overlays."""

from __future__ import annotations

import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.meta import epochs
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
    """Runs inside (after, upto], in index order; folded ones only where the base does not hold them."""
    q = (
        sa.select(run)
        .where(
            run.c.relation_id == relation_id,
            run.c.first_index > after,
            run.c.last_index <= upto,
            sa.or_(run.c.retired_at.is_(None), run.c.folded == 1),
        )
        .order_by(run.c.first_index, run.c.id)
    )
    return [_info(r) for r in c.execute(q)]


def ending_in(c: Connection, relation_id: int, after: int, upto: int) -> list[RunInfo]:
    """A view's runs that end in (after, upto], in order: together they are its changes from one version to another."""
    q = sa.select(run).where(
        run.c.relation_id == relation_id,
        run.c.last_index > after,
        run.c.last_index <= upto,
        sa.or_(run.c.retired_at.is_(None), run.c.folded == 1),
    )
    return [_info(r) for r in c.execute(q.order_by(run.c.first_index, run.c.id))]


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
    q = sa.select(run.c.id, run.c.relation_id, run.c.last_index, run.c.path, run.c.folded, run.c.before_path)
    held: dict[int, int] = {}
    gone = []
    for row in c.execute(q.where(run.c.retired_at < before)).all():
        if row.folded and row.relation_id not in held:
            held[row.relation_id] = epochs.lowest_index(c, row.relation_id)
        if not row.folded or row.last_index <= held[row.relation_id]:
            c.execute(sa.delete(run).where(run.c.id == row.id))
            gone += [str(path) for path in (row.path, row.before_path) if path]
    return gone


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
