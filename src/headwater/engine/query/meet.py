"""The epoch of a statement: the newest one, or, if it names views, the newest at which all of them have a version."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy.engine import Connection

from headwater.engine.results import age
from headwater.errors import DefinitionError, QueryError
from headwater.meta import epochs, progress, relations, views
from headwater.meta.store import Meta
from headwater.model import Control, Epoch, RelationInfo, TableState

FRESH_S = 60.0  # how long a statement waits for its views to catch up, if it asks for that
MEET_S = 10.0  # how long it waits for views to have a common version at all
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Met:
    """The epoch that a statement reads; if views determine it, for how long there has been a newer one.

    `instead` maps the id of a relation that cannot be read there to the one that it has replaced, which can.
    """

    epoch: Epoch
    age_s: float | None = None
    instead: Mapping[int, RelationInfo] = field(default_factory=dict)


def meet(c: Connection, known: Sequence[RelationInfo], names: Collection[str]) -> Met | None:
    """The epoch at which these relations are read; None if the views among them have no common version."""
    newest = epochs.newest(c) or Epoch(0, 0.0, ())
    named = [r for r in known if r.view is not None and r.name.lower() in names]
    if not named:
        return Met(newest)
    past = relations.replaced(c)
    found = views.newest_common(c, [{r.id, *(p.id for p in past if p.replaced_by == r.id)} for r in named])
    epoch = None if found is None else epochs.get(c, found)
    if epoch is None:
        return None
    tables = [r for r in known if r.view is None and r.name.lower() in names]
    absent = [r for r in named if not views.is_exact(c, r.id, epoch.id)]
    absent += [r for r in tables if _is_whole(c, r, newest) and not _is_whole(c, r, epoch)]
    instead = _instead(c, absent, past, epoch)
    if len(instead) < len(absent):
        return None
    later = epochs.created_after(c, epoch.id)
    return Met(epoch, 0.0 if later is None else max(0.0, time.time() - later), instead)


def _instead(
    c: Connection, absent: Sequence[RelationInfo], past: Sequence[RelationInfo], epoch: Epoch
) -> dict[int, RelationInfo]:
    """What is read for relations that cannot be read at the epoch: those that they have replaced, under their names."""
    names = {r.id: r.name for r in absent}
    return {
        p.replaced_by: replace(p, name=names[p.replaced_by])
        for p in past
        if p.replaced_by in names and _is_whole(c, p, epoch)
    }


def _is_whole(c: Connection, relation: RelationInfo, epoch: Epoch) -> bool:
    """Whether all of a relation can be read at an epoch. A table that RESYNC has replaced has no rows before that."""
    if relation.view is not None:
        return views.is_exact(c, relation.id, epoch.id)
    layout = epochs.layout_at(c, relation.id, epoch.id)
    return layout is not None and layout.complete


def check_filled(c: Connection, known: Sequence[RelationInfo], names: Collection[str]) -> None:
    """Raises if a view among the names has never been filled."""
    for relation in known:
        if relation.view is None or relation.name.lower() not in names or views.last_version(c, relation.id):
            continue
        reached, error = progress.of_all(c)[relation.id], relation.error or {}
        done = f"{reached.scanned} of {reached.total} slices are computed" if reached.total else ""
        state = ", ".join(x for x in (str(relation.shown_state), done) if x)
        hint = "Wait until SHOW MATERIALIZED VIEWS shows it live. Only a running server (headwater run) fills views."
        if relation.control is Control.PAUSED:
            hint = f"RESUME MATERIALIZED VIEW {relation.name}."
        raise DefinitionError(
            "view.not_filled",
            f"{relation.name} is not filled yet: {error.get('message') or state}",
            error.get("hint") or hint,
        )


def wait_until_fresh(meta: Meta, names: Collection[str], running: bool) -> None:
    """Waits until the views hold what was published by now."""
    with meta.read() as c:
        newest = epochs.newest(c)
    if newest is None:
        return
    deadline = time.monotonic() + FRESH_S
    while True:
        with meta.read() as c:
            known = relations.named(c)  # each time: a view may have been replaced meanwhile
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


def no_common_version(known: Sequence[RelationInfo], names: Collection[str]) -> QueryError:
    """The error of a statement whose tables and views cannot be read at one epoch; names the views that stand still."""
    named = [r for r in known if r.name.lower() in names]
    still = [
        f"{r.name} is {r.shown_state}{': ' + r.error['message'] if r.error else ''}"
        for r in named
        if r.view is not None and r.shown_state != TableState.LIVE
    ]
    return QueryError(
        "view.not_fresh",
        "; ".join([f"there is no epoch at which {_listed(named)} can all be read", *still]),
        "Retry in a moment: SHOW MATERIALIZED VIEWS shows what views wait for. Each of them can be read by itself.",
    )


def _listed(found: Sequence[RelationInfo]) -> str:
    *most, last = sorted(r.name for r in found)
    return f"{', '.join(most)} and {last}" if most else last
