"""Which part of a changelog can be removed: segments that nobody needs and that are old enough."""

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

    `needed_after` is the lowest index after which any table, pin or running query still reads.
    Meta rows are deleted first: a crash in between leaves files that the next start of the capture removes, never a row
    without its file. Returns the number of removed segments.
    """
    now = time.time() if now is None else now
    with meta.write() as c:
        # only the capture cuts back pieces of an open transaction
        upto = min(needed_after, connections.get(c, connection_id).committed_index)
        paths = segments.remove(c, connection_id, upto, now - keep_s)
    storage.remove(paths)
    return len(paths)
