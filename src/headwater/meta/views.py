"""Materialized views in meta: definition, fill, versions, barriers, and what refreshes cost."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.meta.tables import barrier, epoch, refresh, version, view
from headwater.model import Barrier as Barrier
from headwater.model import Ordering

KEPT_REFRESHES = 32  # per view; enough to learn what a refresh costs


@dataclass(frozen=True, slots=True)
class Fill:
    """The fill of a view: the epoch at which its inputs are read, and in how many slices.

    With an `input`, slices are of that one's rows: by ranges of its first key column that begin at the `cuts`, or by a
    hash of its key. Without one they are of the view's own rows. With `partial`, slices hold partial aggregates, and
    one more step makes the view of them.
    """

    epoch: int
    slices: int
    input: int = 0
    cuts: tuple[int, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Refresh:
    """What one refresh of a view did and cost."""

    from_epoch: int
    to_epoch: int
    strategy: str
    reason: str
    rows_read: int
    rows_changed: int
    ms: float
    ended_at: float = 0.0


def add(
    c: Connection,
    relation_id: int,
    *,
    query: str,
    inputs: Sequence[int],
    uses: Mapping[int, Mapping[str, str]],
    visible: int,
    order: Sequence[Ordering],
    limit: int | None,
    offset: int = 0,
    plain_views: Sequence[str] = (),
) -> None:
    """Makes a stored relation a view. `uses`: the columns that it uses of each input, with their types.

    `plain_views` are those that its query names, and that are written out in `query`.
    """
    c.execute(
        sa.insert(view).values(
            relation_id=relation_id,
            query=query,
            inputs=json.dumps(list(inputs)),
            uses=json.dumps({str(id): dict(columns) for id, columns in uses.items()}),
            visible=visible,
            reading=json.dumps({"order": [asdict(o) for o in order], "limit": limit, "offset": offset}),
            plain_views=json.dumps(list(plain_views)),
        )
    )


def uses(c: Connection, relation_id: int) -> dict[int, dict[str, str]]:
    """The columns that a view uses of each input, with their types when it was defined."""
    text = c.execute(sa.select(view.c.uses).where(view.c.relation_id == relation_id)).scalar_one()
    return {int(id): columns for id, columns in json.loads(text).items()}


def replace_input(c: Connection, old: int, new: int) -> None:
    """Lets the views over a relation read the one that has taken its place."""
    for row in c.execute(sa.select(view.c.relation_id, view.c.inputs, view.c.uses)).all():
        inputs, used = json.loads(row.inputs), json.loads(row.uses)
        if old in inputs:
            inputs = [new if id == old else id for id in inputs]
            used[str(new)] = used.pop(str(old), {})
            values = {"inputs": json.dumps(inputs), "uses": json.dumps(used), "input_replaced": 1}
            c.execute(sa.update(view).where(view.c.relation_id == row.relation_id).values(**values))


def hand_over(c: Connection, old: int, new: int) -> None:
    """Gives the recorded refreshes of a view to its replacement; after that the old one depends on nothing."""
    c.execute(sa.update(refresh).where(refresh.c.relation_id == old).values(relation_id=new))
    c.execute(sa.update(view).where(view.c.relation_id == old).values(inputs="[]", uses="{}", plain_views="[]"))


def input_replaced(c: Connection, relation_id: int) -> bool:
    """Whether an input was replaced since the view's last version: it may have other rows, though no changes."""
    return bool(c.execute(sa.select(view.c.input_replaced).where(view.c.relation_id == relation_id)).scalar())


def followed(c: Connection, relation_id: int, inputs: Collection[int]) -> None:
    """Records that a view was recomputed over these inputs, unless one of them has been replaced meanwhile."""
    now = c.execute(sa.select(view.c.inputs).where(view.c.relation_id == relation_id)).scalar_one()
    if set(json.loads(now)) == set(inputs):
        c.execute(sa.update(view).where(view.c.relation_id == relation_id).values(input_replaced=0))


def over(c: Connection, relation_id: int) -> list[int]:
    """The ids of the views that read a relation directly."""
    rows = c.execute(sa.select(view.c.relation_id, view.c.inputs).order_by(view.c.relation_id))
    return [row.relation_id for row in rows if relation_id in json.loads(row.inputs)]


def naming(c: Connection, plain_view: str) -> list[int]:
    """The ids of the views whose queries name a plain view."""
    rows = c.execute(sa.select(view.c.relation_id, view.c.plain_views).order_by(view.c.relation_id))
    return [row.relation_id for row in rows if plain_view in json.loads(row.plain_views)]


def plain_views(c: Connection, relation_id: int) -> list[str]:
    """The names of the plain views that a view's query names."""
    return list(
        json.loads(c.execute(sa.select(view.c.plain_views).where(view.c.relation_id == relation_id)).scalar_one())
    )


def set_fill(c: Connection, relation_id: int, fill: Fill | None) -> None:
    text = "" if fill is None else json.dumps(asdict(fill))
    c.execute(sa.update(view).where(view.c.relation_id == relation_id).values(fill=text))


def fill(c: Connection, relation_id: int) -> Fill | None:
    """The fill that a view is in, or was last in."""
    text = c.execute(sa.select(view.c.fill).where(view.c.relation_id == relation_id)).scalar()
    return _fill(text) if text else None


def _fill(text: str) -> Fill:
    found = json.loads(text)
    return Fill(**{**found, "cuts": tuple(found["cuts"])})


def fill_epochs(c: Connection) -> dict[int, int]:
    """The epoch at which each view is being filled, for views without a version."""
    filled = sa.select(version.c.relation_id)
    rows = c.execute(sa.select(view.c.relation_id, view.c.fill).where(view.c.relation_id.not_in(filled)))
    return {row.relation_id: _fill(row.fill).epoch for row in rows if row.fill}


def add_version(c: Connection, relation_id: int, epoch_id: int) -> None:
    """Records that a view is exact at an epoch."""
    c.execute(sa.insert(version).values(relation_id=relation_id, epoch_id=epoch_id))


def last_version(c: Connection, relation_id: int, epoch_id: int | None = None) -> int:
    """The newest epoch (up to one) at which a view is exact; 0: none."""
    q = sa.select(sa.func.max(version.c.epoch_id)).where(version.c.relation_id == relation_id)
    if epoch_id is not None:
        q = q.where(version.c.epoch_id <= epoch_id)
    return int(c.execute(q).scalar() or 0)


def versions(c: Connection) -> dict[int, set[int]]:
    """The barriers' epochs at which each view is exact, by the view's id. Every view that goes on has one."""
    found: dict[int, set[int]] = {}
    q = sa.select(version.c.relation_id, version.c.epoch_id)
    for row in c.execute(q.where(version.c.epoch_id.in_(sa.select(barrier.c.epoch_id)))):
        found.setdefault(row.relation_id, set()).add(row.epoch_id)
    return found


def versions_of(c: Connection, relation_id: int) -> set[int]:
    """The epochs at which a view is exact."""
    return set(c.execute(sa.select(version.c.epoch_id).where(version.c.relation_id == relation_id)).scalars())


def is_exact(c: Connection, relation_id: int, epoch_id: int) -> bool:
    """Whether a view is exact at an epoch."""
    q = sa.select(version.c.epoch_id).where(version.c.relation_id == relation_id, version.c.epoch_id == epoch_id)
    return c.execute(q).first() is not None


def newest_common(c: Connection, wanted: Sequence[Collection[int]]) -> int | None:
    """The newest epoch at which one of each of these sets of views is exact; None: there is none.

    A set is a view and those that it has replaced.
    """
    ids = {id for each in wanted for id in each}
    q = sa.select(version.c.relation_id, version.c.epoch_id).join(epoch, epoch.c.id == version.c.epoch_id)
    at: dict[int, set[int]] = {}
    for row in c.execute(q.where(version.c.relation_id.in_(ids))):
        at.setdefault(row.relation_id, set()).add(row.epoch_id)
    exact = [set().union(*(at.get(id, set()) for id in each)) for each in wanted]
    return max(set.intersection(*exact), default=None) if exact else None


def add_barrier(c: Connection, epoch_id: int) -> Barrier:
    """Makes an epoch the next barrier."""
    result = c.execute(sa.insert(barrier).values(epoch_id=epoch_id))
    assert result.inserted_primary_key is not None
    return Barrier(int(result.inserted_primary_key[0]), epoch_id)


def barriers(c: Connection) -> list[Barrier]:
    """The kept barriers, oldest first."""
    rows = c.execute(sa.select(barrier).order_by(barrier.c.number))
    return [Barrier(int(r.number), int(r.epoch_id)) for r in rows]


def is_barrier(c: Connection, epoch_id: int) -> bool:
    """Whether a barrier is still kept at an epoch: views stop nowhere else."""
    return c.execute(sa.select(barrier.c.number).where(barrier.c.epoch_id == epoch_id).limit(1)).first() is not None


def keep_barriers(c: Connection, numbers: Sequence[int]) -> None:
    """Forgets all other barriers. A version there stays for as long as its epoch can be read."""
    c.execute(sa.delete(barrier).where(barrier.c.number.not_in(list(numbers))))


def forget_versions(c: Connection) -> None:
    """Forgets the versions at epochs that can no longer be read."""
    c.execute(sa.delete(version).where(version.c.epoch_id.not_in(sa.select(epoch.c.id))))


def record(c: Connection, relation_id: int, done: Refresh) -> None:
    """Records a refresh; of a view the newest ones are kept, and the newest of each strategy: `auto` compares them."""
    c.execute(sa.insert(refresh).values(relation_id=relation_id, **{**asdict(done), "ended_at": time.time()}))
    own = sa.select(refresh.c.id).where(refresh.c.relation_id == relation_id).order_by(refresh.c.id.desc())
    oldest = c.execute(own.offset(KEPT_REFRESHES - 1).limit(1)).scalar()
    if oldest is not None:
        last = sa.select(sa.func.max(refresh.c.id)).where(refresh.c.relation_id == relation_id)
        spared = last.group_by(refresh.c.strategy)
        c.execute(
            sa.delete(refresh).where(
                refresh.c.relation_id == relation_id, refresh.c.id < oldest, refresh.c.id.not_in(spared)
            )
        )


def refreshes(c: Connection, relation_id: int) -> list[Refresh]:
    """The recorded refreshes of a view, newest first."""
    q = sa.select(refresh).where(refresh.c.relation_id == relation_id).order_by(refresh.c.id.desc())
    return [_refresh(r) for r in c.execute(q)]


def _refresh(r: Row[tuple[object, ...]]) -> Refresh:
    return Refresh(r.from_epoch, r.to_epoch, r.strategy, r.reason, r.rows_read, r.rows_changed, r.ms, r.ended_at)
