"""What of a changelog may go: segments that nobody needs any more and that are old enough."""

from __future__ import annotations

import time

from headwater.meta import connections, segments
from headwater.meta.store import Meta
from headwater.storage import Storage


def expire(
    meta: Meta,
    storage: Storage,
    connection_id: int,
    *,
    needed_after: int,
    keep_s: float,
    now: float | None = None,
) -> int:
    """Removes segments whose changes are all at or below `needed_after` and that are older than `keep_s`.

    `needed_after` is the lowest index after which any table, view, subscription, pin or running query still reads.
    Meta forgets first: a crash in between leaves files that the next start of the capture removes, never a row
    without its file. Returns how many segments went.
    """
    now = time.time() if now is None else now
    with meta.write() as c:
        # an open transaction's pieces are cut back by the capture alone
        upto = min(needed_after, connections.get(c, connection_id).committed_index)
        paths = segments.remove(c, connection_id, upto, now - keep_s)
    storage.remove(paths)
    return len(paths)
