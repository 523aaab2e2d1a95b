"""What screens and lines say in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.engine.results import ConnectionStatus, JobStatus, TableStatus
from headwater.engine.status.progress import percent
from headwater.errors import Retry

RETRIES = {
    Retry.AUTO: "Headwater retries",
    Retry.AFTER_FIX: "it goes on after that",
    Retry.NEVER: "it is not tried again",
}


def way_out(x: TableStatus | ConnectionStatus | JobStatus) -> str:
    """The hint, and whether it goes on by itself."""
    retry = RETRIES[Retry(x.retry)] if x.retry else ""
    if not x.hint or not retry:
        return x.hint or retry
    if isinstance(x, TableStatus) and x.state == "failed" and "RESYNC" not in x.hint and "DROP" not in x.hint:
        return f"{x.hint} (then RESYNC TABLE, or start the server again)"
    return x.hint if "again" in x.hint or "by itself" in x.hint else f"{x.hint} ({retry})"


def covered(status: TableStatus) -> str:
    """How much of a table a reader sees; a live one is complete even if it has no spans to count."""
    return percent(1.0 if status.state == "live" else status.covered)


def who(names: Sequence[str]) -> str:
    """The first of those that something concerns, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
