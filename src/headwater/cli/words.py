"""Phrases that screens and lines share."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.engine.results import ConnectionStatus, JobStatus, TableStatus
from headwater.engine.status.progress import percent
from headwater.errors import Retry

RETRIES = {
    Retry.AUTO: "Headwater retries",
    Retry.AFTER_FIX: "work resumes after that",
    Retry.NEVER: "it is not retried",
}

SAY_SO = ("again", "retries", "retried", "resumes", "automatically")  # a hint with one of these needs no addition


def way_out(x: TableStatus | ConnectionStatus | JobStatus) -> str:
    """The hint, and whether Headwater retries on its own."""
    retry = RETRIES[Retry(x.retry)] if x.retry else ""
    if not x.hint or not retry:
        return x.hint or retry
    if isinstance(x, TableStatus) and x.state == "failed" and "RESYNC" not in x.hint and "DROP" not in x.hint:
        return f"{x.hint} (then RESYNC TABLE, or start the server again)"
    says_so = any(word in x.hint for word in SAY_SO)
    return x.hint if says_so else f"{x.hint} ({retry})"


def covered(status: TableStatus) -> str:
    """The share of a table that a reader sees; a live one is complete even if it has no spans to count."""
    return percent(1.0 if status.state == "live" else status.covered)


def who(names: Sequence[str]) -> str:
    """The first of the affected names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
