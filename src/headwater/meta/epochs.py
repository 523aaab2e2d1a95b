"""Epochs, layouts and pins in meta."""

from __future__ import annotations

import time
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.config import PIN_S
from headwater.meta.tables import cut, epoch, layout, pin
from headwater.model import Cut, Epoch, Json, Layout


def publish(c: Connection, cuts: list[Cut], layouts: Mapping[int, Layout]) -> Epoch:
    """A new epoch with its cuts and the layouts that begin with it, in the caller's transaction."""
    now = time.time()
    result = c.execute(sa.insert(epoch).values(created_at=now))
    assert result.inserted_primary_key is not None
    id = int(result.inserted_primary_key[0])
    if cuts:
        c.execute(
            sa.insert(cut),
            [
                {"epoch_id": id, "connection_id": x.connection_id, "index": x.index, "position": x.position}
                for x in cuts
            ],
        )
    for relation_id, value in layouts.items():
        c.execute(sa.insert(layout).values(relation_id=relation_id, epoch_id=id, body=Json.dump(value)))
    return Epoch(id, now, tuple(cuts))


def newest(c: Connection) -> Epoch | None:
    row = c.execute(sa.select(epoch).order_by(epoch.c.id.desc()).limit(1)).first()
    return None if row is None else get(c, row.id)


def get(c: Connection, id: int) -> Epoch | None:
    row = c.execute(sa.select(epoch).where(epoch.c.id == id)).first()
    if row is None:
        return None
    cuts = c.execute(sa.select(cut).where(cut.c.epoch_id == id).order_by(cut.c.connection_id))
    return Epoch(id, row.created_at, tuple(Cut(x.connection_id, x._mapping["index"], x.position) for x in cuts))


def recent(c: Connection, limit: int) -> list[Epoch]:
    ids = c.execute(sa.select(epoch.c.id).order_by(epoch.c.id.desc()).limit(limit)).scalars().all()
    return [e for e in (get(c, i) for i in ids) if e is not None]


def layout_at(c: Connection, relation_id: int, epoch_id: int) -> Layout | None:
    """The layout of a relation as the epoch sees it; None before its first covered span."""
    body = c.execute(
        sa.select(layout.c.body)
        .where(layout.c.relation_id == relation_id, layout.c.epoch_id <= epoch_id)
        .order_by(layout.c.epoch_id.desc())
        .limit(1)
    ).scalar()
    return None if body is None else Json.layout(body)


def needed_layouts(c: Connection, relation_id: int, oldest_epoch: int) -> list[Layout]:
    """Every layout that a reader at `oldest_epoch` or later may use."""
    rows = c.execute(
        sa.select(layout).where(layout.c.relation_id == relation_id).order_by(layout.c.epoch_id.desc())
    ).all()
    needed = []
    for row in rows:
        needed.append(Json.layout(row.body))
        if row.epoch_id <= oldest_epoch:
            break
    return needed


def take_pin(c: Connection, epoch_id: int, owner: str, seconds: float = PIN_S) -> int:
    """Protects everything the epoch needs from cleaning, until released or expired."""
    result = c.execute(sa.insert(pin).values(epoch_id=epoch_id, owner=owner, expires_at=time.time() + seconds))
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def release_pin(c: Connection, id: int) -> None:
    c.execute(sa.delete(pin).where(pin.c.id == id))


def oldest_pinned(c: Connection) -> int | None:
    """The oldest epoch that a living pin protects; expired pins are forgotten."""
    c.execute(sa.delete(pin).where(pin.c.expires_at < time.time()))
    return c.execute(sa.select(sa.func.min(pin.c.epoch_id))).scalar()


def thin(c: Connection, keep_from: int) -> int:
    """Forgets epochs before `keep_from`, and layouts that no later reader can use; returns how many epochs went."""
    gone = c.execute(sa.delete(epoch).where(epoch.c.id < keep_from)).rowcount
    c.execute(sa.delete(cut).where(cut.c.epoch_id < keep_from))
    newest_before = (
        sa.select(layout.c.relation_id, sa.func.max(layout.c.epoch_id).label("epoch_id"))
        .where(layout.c.epoch_id <= keep_from)
        .group_by(layout.c.relation_id)
        .subquery()
    )
    for row in c.execute(sa.select(newest_before)).all():
        c.execute(sa.delete(layout).where(layout.c.relation_id == row.relation_id, layout.c.epoch_id < row.epoch_id))
    return int(gone)
