"""What of a changelog its tables still need; and when a table that has failed loses its claim to it.

A table that runs needs every change after its base, for for as long as it takes. One that has failed is folded up to
where it stopped (engine/commit/folds.py) and then needs nothing. Where that cannot be done it keeps its claim for
`retention.hours`, and only while the changelog is not larger than `changelog.max_bytes`: one failed table must not fill
the disk of all.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.engine.commit.holds import needed_by
from headwater.errors import DataError
from headwater.meta import relations, segments
from headwater.model import ConnectionInfo, RelationInfo, TableState
from headwater.settings.table import DEFAULTS, Settings

GRACE_S = 300.0  # by then a table that can be folded to where it stopped has been

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """What of one connection's changelog is kept: everything after `needed`, and the rest for `keep_s`.

    What lies at or below `over` goes sooner: the changelog is larger than it may be.
    """

    needed: int
    keep_s: float
    over: int


def enforce(
    c: Connection,
    connection: ConnectionInfo,
    oldest_epoch: int,
    now: float | None = None,
    settings: Settings = DEFAULTS,
) -> Kept:
    """Revokes the claims of tables that failed too long ago, and says what the others need."""
    now = time.time() if now is None else now
    keep_s = float(connection.options.get("retention.hours", settings.retention_hours)) * 3600
    most = int(connection.options.get("changelog.max_bytes", settings.changelog_max_bytes))
    over = segments.index_over(c, connection.id, most) if most else 0
    needed = connection.committed_index
    for relation in relations.all(c, connection.id):
        index = needed_by(c, relation, connection.committed_index, oldest_epoch)
        whole = relation.stopped_at is not None  # then only older epochs need anything, and they go by themselves
        if index < connection.committed_index and relation.state is TableState.FAILED and not whole:
            failed_s = now - (relation.failed_at or now)
            expired = failed_s > max(keep_s, GRACE_S)
            if expired or (index < over and failed_s > GRACE_S):
                _revoke(c, relation, f"{keep_s / 3600:g} h" if expired else f"changelog.max_bytes = {most}")
                continue
        needed = min(needed, index)
    return Kept(needed, keep_s, over)


def history_missing(relation: RelationInfo, limit: str = "") -> DataError:
    """The error of a table that has failed and cannot go on, with why it had failed."""
    why = (relation.error or {}).get("message", "")
    past = f" past the limit of {limit}" if limit else ""
    return DataError(
        "data.history_missing",
        f"its changes are not kept{past} since it has stopped: {why}",
        f"RESYNC TABLE {relation.name.removeprefix(relations.BESIDE)} reads it again.",
    )


def _revoke(c: Connection, relation: RelationInfo, limit: str) -> None:
    log.error("table lost its claim to the changelog name=%s limit=%s", relation.name, limit)
    relations.set_state(c, relation.id, TableState.FAILED, history_missing(relation, limit))
