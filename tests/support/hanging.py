"""A commit that is in the log but visible to nobody (hazard 1): it waits for a standby that never answers.

The setting is there from the server's start: after a reload, commits begin to wait only once the checkpointer has
noticed, and nothing shows when that is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.demo.embedded import EmbeddedPostgres
from support.wait import wait_for

SETTINGS = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}


@dataclass(frozen=True)
class Commit:
    """A hanging commit: the process that waits, and its transaction."""

    pid: int
    txn: int
    release: Callable[[], None]


def server_with_silent_standby(version: int = 18) -> EmbeddedPostgres:
    """A server where sessions that `SET synchronous_commit = on` wait forever at their commit, and others do not."""
    return EmbeddedPostgres(version, SETTINGS)


@contextmanager
def hanging_commit(server: EmbeddedPostgres, *statements: str, database: str | None = None) -> Iterator[Commit]:
    """Runs the statements in one transaction whose commit hangs inside the block; it becomes visible at the end."""
    with server.connect(database) as writer:
        writer.execute("SET synchronous_commit = on")
        writer.execute("BEGIN")
        for statement in statements:
            writer.execute(statement)
        (txn,) = writer.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        pid = writer.info.backend_pid
        commit = threading.Thread(target=writer.execute, args=("COMMIT",))
        commit.start()

        def release() -> None:
            server.execute(f"SELECT pg_cancel_backend({pid})")  # ends the wait, not the commit
            commit.join(20)

        waits = f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'SyncRep'"
        try:
            wait_for(lambda: server.execute(waits), "the commit hangs", 20)
            yield Commit(pid, txn, release)
        finally:
            release()
