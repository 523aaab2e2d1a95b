"""The epoch of a statement: the newest one, or, if it names views, the newest at which all of them have a version."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.engine.results import age
from headwater.errors import DefinitionError, QueryError
from headwater.meta import epochs, progress, views
from headwater.meta.store import Meta
from headwater.model import Epoch, RelationInfo

FRESH_S = 60.0  # how long a statement waits for its views to catch up, if it asks for that
MEET_S = 10.0  # how long it waits for views to have a common version at all
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Met:
    """The epoch that a statement reads; if views determine it, for how long there has been a newer one."""

    epoch: Epoch
    age_s: float | None = None


def meet(c: Connection, known: Sequence[RelationInfo], names: Collection[str]) -> Met | None:
    """The epoch at which these relations are read; None if the views among them have no common version."""
    newest = epochs.newest(c) or Epoch(0, 0.0, ())
    ids = [r.id for r in known if r.view is not None and r.name.lower() in names]
    if not ids:
        return Met(newest)
    found = views.newest_common(c, ids)
    epoch = None if found is None else epochs.get(c, found)
    if epoch is None or not _all_whole(c, known, names, newest, epoch):
        return None
    later = epochs.created_after(c, epoch.id)
    return Met(epoch, 0.0 if later is None else max(0.0, time.time() - later))


def _all_whole(
    c: Connection, known: Sequence[RelationInfo], names: Collection[str], newest: Epoch, epoch: Epoch
) -> bool:
    """Whether the tables among the names are as whole at an older epoch as they are now.

    A table that was read again by RESYNC has no rows before that; the views over it follow soon.
    """
    for relation in known:
        if relation.view is None and relation.name.lower() in names:
            now, then = (epochs.layout_at(c, relation.id, e.id) for e in (newest, epoch))
            if now is not None and now.complete and (then is None or not then.complete):
                return False
    return True


def check_filled(c: Connection, known: Sequence[RelationInfo], names: Collection[str]) -> None:
    """Raises if a view among the names has never been filled."""
    for relation in known:
        if relation.view is None or relation.name.lower() not in names or views.last_version(c, relation.id):
            continue
        reached = progress.of_all(c)[relation.id]
        failed = (relation.error or {}).get("message", "")
        state = (
            f"{reached.covered} of {reached.total} slices are filled" if reached.total else str(relation.shown_state)
        )
        raise DefinitionError(
            "view.not_filled",
            f"{relation.name} is not filled yet: {failed or state}",
            "Wait until SHOW MATERIALIZED VIEWS shows it live; it needs a running server.",
        )


def wait_until_fresh(meta: Meta, names: Collection[str], known: Sequence[RelationInfo], running: bool) -> None:
    """Waits until the views hold what was published by now."""
    with meta.read() as c:
        newest = epochs.newest(c)
    if newest is None:
        return
    deadline = time.monotonic() + FRESH_S
    while True:
        with meta.read() as c:
            check_filled(c, known, names)
            met = meet(c, known, names)
        if met is not None and met.epoch.id >= newest.id:
            return
        if not running or time.monotonic() > deadline:
            behind = "" if met is None else f": the newest common version is {age(met.age_s or 0.0)} old"
            why = "no server is running" if not running else f"they did not catch up within {FRESH_S:.0f} s"
            raise QueryError(
                "view.not_fresh",
                f"the views are not fresh{behind}; {why}",
                "See SHOW MATERIALIZED VIEWS for what they wait for; query without --fresh to get the older result.",
            )
        time.sleep(LOOK_S)


def no_common_version(names: Collection[str]) -> QueryError:
    return QueryError(
        "view.not_fresh",
        "the views of this statement have no version at a common epoch",
        "Retry in a moment: SHOW MATERIALIZED VIEWS shows what they wait for.",
    )
