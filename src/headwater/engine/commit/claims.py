"""The part of a changelog that its tables still need, and when a failed table loses its claim.

A running table needs every change after its base for as long as it takes. A failed one is folded up to where it stopped
(engine/commit/folds.py) and then needs nothing. If that is impossible, it keeps its claim for `retention.hours`, and
only while the changelog is within `changelog.max_bytes`: one failed table must not fill the disk for all.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.engine.commit.holds import lowest, needed_by
from headwater.errors import DataError
from headwater.meta import epochs, relations, segments
from headwater.model import ConnectionInfo, RelationInfo, TableState
from headwater.settings.table import DEFAULTS, Settings

GRACE_S = 300.0  # enough time to fold a failed table to where it stopped, if that is possible

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """The retained part of a connection's changelog: everything after `needed`, and the rest for `keep_s`.

    Changes at or below `over` go sooner: the changelog exceeds its size limit.
    """

    needed: int
    keep_s: float
    over: int


def enforce(
    c: Connection,
    connection: ConnectionInfo,
    now: float | None = None,
    settings: Settings = DEFAULTS,
) -> Kept:
    """Revokes the claims of tables that failed too long ago, and returns what the others need."""
    now = time.time() if now is None else now
    keep_s = float(connection.options.get("retention.hours", settings.retention_hours)) * 3600
    most = int(connection.options.get("changelog.max_bytes", settings.changelog_max_bytes))
    over = segments.index_over(c, connection.id, most) if most else 0
    oldest = epochs.oldest(c)
    for relation in relations.all(c, connection.id):
        if relation.state is not TableState.FAILED or relation.stopped_at is not None:
            continue  # folded to where it stopped, only older epochs need anything, and they expire
        index = needed_by(c, relation, connection.committed_index, oldest)
        failed_s = now - (relation.failed_at or now)
        expired = failed_s > max(keep_s, GRACE_S)
        if index < connection.committed_index and (expired or (index < over and failed_s > GRACE_S)):
            _revoke(c, relation, f"{keep_s / 3600:g} h" if expired else f"changelog.max_bytes = {most}")
    return Kept(lowest(c, connection), keep_s, over)


def history_missing(relation: RelationInfo, limit: str = "") -> DataError:
    """The error of a failed table that cannot resume, with the original error's message."""
    why = (relation.error or {}).get("message", "")
    past = f" after the limit of {limit}" if limit else ""
    return DataError(
        "data.history_missing",
        f"it failed, and the changes it needs were removed{past}: {why}",
        f"RESYNC TABLE {relation.name.removeprefix(relations.BESIDE)} reads it again.",
    )


def _revoke(c: Connection, relation: RelationInfo, limit: str) -> None:
    log.error("table lost its claim to the changelog name=%s limit=%s", relation.name, limit)
    relations.set_state(c, relation.id, TableState.FAILED, history_missing(relation, limit))
