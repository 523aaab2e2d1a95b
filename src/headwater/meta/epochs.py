"""Epochs, layouts and pins in meta."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater import stored
from headwater.config import PIN_S
from headwater.meta import views
from headwater.meta.tables import cut, epoch, layout, pin
from headwater.model import Epoch, EpochEntry, Layout, RelationInfo

EVERYTHING = (1 << 63) - 1  # an index after every change
VIEWS = "views"  # the owner of epochs that are kept for views


def publish(c: Connection, entries: list[EpochEntry], layouts: Mapping[int, Layout]) -> Epoch:
    """A new epoch with its entries and the layouts that begin with it, in the caller's transaction."""
    now = time.time()
    result = c.execute(sa.insert(epoch).values(created_at=now))
    assert result.inserted_primary_key is not None
    id = int(result.inserted_primary_key[0])
    if entries:
        c.execute(
            sa.insert(cut),
            [
                {"epoch_id": id, "connection_id": x.connection_id, "index": x.index, "position": x.position}
                for x in entries
            ],
        )
    for relation_id, value in layouts.items():
        c.execute(sa.insert(layout).values(relation_id=relation_id, epoch_id=id, body=stored.dump(value)))
    return Epoch(id, now, tuple(entries))


def newest(c: Connection) -> Epoch | None:
    row = c.execute(sa.select(epoch).order_by(epoch.c.id.desc()).limit(1)).first()
    return None if row is None else get(c, row.id)


def get(c: Connection, id: int) -> Epoch | None:
    row = c.execute(sa.select(epoch).where(epoch.c.id == id)).first()
    if row is None:
        return None
    entries = c.execute(sa.select(cut).where(cut.c.epoch_id == id).order_by(cut.c.connection_id))
    return Epoch(
        id, row.created_at, tuple(EpochEntry(x.connection_id, x._mapping["index"], x.position) for x in entries)
    )


def created_after(c: Connection, id: int) -> float | None:
    """When the epoch after this one was published; None: it is the newest."""
    q = sa.select(epoch.c.created_at).where(epoch.c.id > id).order_by(epoch.c.id).limit(1)
    return c.execute(q).scalar()


def kept(c: Connection) -> list[int]:
    """The ids of all readable epochs, oldest first."""
    return list(c.execute(sa.select(epoch.c.id).order_by(epoch.c.id)).scalars())


def recent(c: Connection, limit: int) -> list[Epoch]:
    ids = c.execute(sa.select(epoch.c.id).order_by(epoch.c.id.desc()).limit(limit)).scalars().all()
    return [e for e in (get(c, i) for i in ids) if e is not None]


def put_layout(c: Connection, value: Layout, epoch_id: int) -> None:
    """Sets the layout of a relation from an existing epoch on; nobody may have read it at or after that epoch."""
    c.execute(sa.delete(layout).where(layout.c.relation_id == value.relation_id, layout.c.epoch_id >= epoch_id))
    c.execute(sa.insert(layout).values(relation_id=value.relation_id, epoch_id=epoch_id, body=stored.dump(value)))


def layout_at(c: Connection, relation_id: int, epoch_id: int) -> Layout | None:
    """The layout of a relation at the epoch; None before its first covered span."""
    body = c.execute(
        sa.select(layout.c.body)
        .where(layout.c.relation_id == relation_id, layout.c.epoch_id <= epoch_id)
        .order_by(layout.c.epoch_id.desc())
        .limit(1)
    ).scalar()
    return None if body is None else stored.layout(body)


def layouts_at(c: Connection, epoch_id: int) -> dict[int, Layout]:
    """The layout of every relation at the epoch, by the relation's id, in one query."""
    newest = (
        sa.select(layout.c.relation_id, sa.func.max(layout.c.epoch_id).label("epoch_id"))
        .where(layout.c.epoch_id <= epoch_id)
        .group_by(layout.c.relation_id)
        .subquery()
    )
    same = sa.and_(newest.c.relation_id == layout.c.relation_id, newest.c.epoch_id == layout.c.epoch_id)
    rows = c.execute(sa.select(layout.c.relation_id, layout.c.body).join(newest, same))
    return {id: stored.layout(body) for id, body in rows}


def layouts_of(c: Connection, relation_id: int) -> list[tuple[int, Layout]]:
    """The relation's layouts, newest first, each with the epoch it begins with."""
    q = sa.select(layout.c.epoch_id, layout.c.body).where(layout.c.relation_id == relation_id)
    return [(epoch, stored.layout(body)) for epoch, body in c.execute(q.order_by(layout.c.epoch_id.desc()))]


def lowest_index(c: Connection, relation_id: int) -> int:
    """The index up to which the bases of all layouts that a readable epoch uses hold the relation's changes."""
    bodies = c.execute(sa.select(layout.c.body).where(layout.c.relation_id == relation_id)).scalars()
    found = [index for body in bodies for index in stored.layout(body).indexes.values()]
    return min(found, default=EVERYTHING)


def base_versions(c: Connection, relation_id: int) -> set[int]:
    """The versions of a base that a readable epoch uses."""
    bodies = c.execute(sa.select(layout.c.body).where(layout.c.relation_id == relation_id)).scalars()
    return {stored.layout(body).base_version for body in bodies}


def take_pin(c: Connection, epoch_id: int, owner: str, seconds: float = PIN_S) -> int:
    """Protects everything the epoch needs from cleaning, until released or expired."""
    result = c.execute(sa.insert(pin).values(epoch_id=epoch_id, owner=owner, expires_at=time.time() + seconds))
    assert result.inserted_primary_key is not None
    return int(result.inserted_primary_key[0])


def release_pin(c: Connection, id: int) -> None:
    c.execute(sa.delete(pin).where(pin.c.id == id))


def oldest_pinned(c: Connection) -> int | None:
    """The oldest epoch that a live pin protects; removes expired pins."""
    return min(pinned(c), default=None)


def pinned(c: Connection) -> set[int]:
    """The epochs that live pins protect; removes expired pins."""
    c.execute(sa.delete(pin).where(pin.c.expires_at < time.time()))
    return set(c.execute(sa.select(pin.c.epoch_id).distinct()).scalars())


def pinned_by(c: Connection) -> list[tuple[int, str]]:
    """(epoch, owner) of each live pin, and of the epochs that are kept for views."""
    rows = c.execute(sa.select(pin.c.epoch_id, pin.c.owner).where(pin.c.expires_at >= time.time()).order_by(pin.c.id))
    return [*((int(r.epoch_id), str(r.owner)) for r in rows), *((id, VIEWS) for id in sorted(_of_views(c)))]


def _of_views(c: Connection) -> set[int]:
    """The epochs that views need: those at which they stop, and those at which they are being filled."""
    return {b.epoch for b in views.barriers(c)} | set(views.fill_epochs(c).values())


def pinned_indexes(c: Connection, relation: RelationInfo) -> set[int]:
    """The indexes at which live pins read a relation."""
    found = (get(c, id) for id in {epoch for epoch, _ in pinned_by(c)})
    return {e.index_for(relation) for e in found if e is not None}


def pins(c: Connection) -> tuple[int | None, int]:
    """The oldest live pin, and the last one ever taken."""
    oldest, newest = c.execute(sa.select(sa.func.min(pin.c.id), sa.func.max(pin.c.id))).one()
    return oldest, int(newest or 0)


def unread_since(c: Connection) -> float:
    """The time before which no running reader can have started: what was retired before it can be removed."""
    oldest = oldest_pinned(c)
    if oldest is None:
        return time.time()
    made = c.execute(sa.select(epoch.c.created_at).where(epoch.c.id == oldest)).scalar()
    return 0.0 if made is None else float(made)


def oldest(c: Connection) -> int:
    """The oldest epoch that can be read; 0 before the first one."""
    return int(c.execute(sa.select(sa.func.min(epoch.c.id))).scalar() or 0)


def thin(c: Connection, before: float) -> int:
    """Removes epochs created before a time, and layouts that only they used.

    Pinned ones, those that views need, and the newest stay.

    Returns the number of removed epochs.
    """
    newest_id = c.execute(sa.select(sa.func.max(epoch.c.id))).scalar()
    if newest_id is None:
        return 0
    kept = sorted(pinned(c) | _of_views(c) | {newest_id})
    gone = c.execute(sa.delete(epoch).where(epoch.c.created_at < before, epoch.c.id.not_in(kept))).rowcount
    if gone:
        c.execute(sa.delete(cut).where(cut.c.epoch_id.not_in(sa.select(epoch.c.id))))
        views.forget_versions(c)
        _thin_layouts(c)
    return int(gone)


def _thin_layouts(c: Connection) -> None:
    """Removes layouts that no remaining epoch sees: a later one replaces them at or before the next epoch.

    After a complete layout one incomplete one stays: it alone tells those who follow the relation from the earlier
    epoch on that part of it was read again, which brings rows without changes.
    """
    left = sorted(c.execute(sa.select(epoch.c.id)).scalars())
    found = c.execute(sa.select(layout.c.relation_id, layout.c.epoch_id).order_by(*layout.primary_key))
    rows = [(int(r.relation_id), int(r.epoch_id)) for r in found]
    last = None  # the newest layout so far that stays
    for own, following in zip(rows, [*rows[1:], (0, 0)], strict=False):
        seen = True
        if own[0] == following[0]:
            next_epoch = left[bisect_left(left, own[1]) :][:1]
            seen = bool(next_epoch) and next_epoch[0] < following[1]
        if seen or (last is not None and last[0] == own[0] and _complete(c, last) and not _complete(c, own)):
            last = own
        else:
            c.execute(sa.delete(layout).where(layout.c.relation_id == own[0], layout.c.epoch_id == own[1]))


def _complete(c: Connection, which: tuple[int, int]) -> bool:
    """Whether a layout, by its relation and first epoch, is complete."""
    where = sa.and_(layout.c.relation_id == which[0], layout.c.epoch_id == which[1])
    return stored.layout(c.execute(sa.select(layout.c.body).where(where)).scalar_one()).complete
