"""The status of materialized views: where each is, what its last refresh did, what it waits for."""

from __future__ import annotations

import time

from sqlalchemy.engine import Connection

from headwater.engine.failures import Failures
from headwater.engine.live import Serving
from headwater.engine.results import ViewStatus
from headwater.meta import epochs, progress, relations, views
from headwater.model import Control, RelationInfo


def view_statuses(c: Connection, server: Serving | None, failures: Failures) -> tuple[ViewStatus, ...]:
    """All views that a user can name."""
    found = [r for r in relations.named(c) if r.view is not None]
    if not found:
        return ()
    reached = progress.of_all(c)
    return tuple(_view(c, r, reached[r.id], server, failures) for r in found)


def _view(
    c: Connection, r: RelationInfo, reached: progress.Progress, server: Serving | None, failures: Failures
) -> ViewStatus:
    version = views.last_version(c, r.id)
    later = epochs.created_after(c, version) if version else None
    last = next(iter(views.refreshes(c, r.id)), None)
    failed = next((error.stored() for _, error in failures.of(table=r.id)), None)
    error = r.error or failed or {}
    return ViewStatus(
        name=r.name,
        state=r.shown_state,
        epoch=version,
        lag_s=None if not version else 0.0 if later is None else max(0.0, time.time() - later),
        strategy=last.strategy if last else "",
        reason=last.reason if last else "",
        rows_read=last.rows_read if last else 0,
        rows_changed=last.rows_changed if last else 0,
        ms=last.ms if last else 0.0,
        slices_done=reached.covered,
        slices_total=reached.total,
        waiting_for=_waits_for(r, server),
        **{name: error.get(key, "") for name, key in _ERROR},
    )


_ERROR = (("code", "code"), ("error", "message"), ("hint", "hint"), ("retry", "retry"))


def _waits_for(r: RelationInfo, server: Serving | None) -> str:
    if r.control is Control.PAUSED:
        return f"RESUME MATERIALIZED VIEW {r.name}"
    if server is None:
        return "a server: start `headwater run`"
    return server.waiting_for(r.id)
