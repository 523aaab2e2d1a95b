"""A cut of the upstream that is also a cut of its log: the one way to compare both while everything runs.

Rows read in a REPEATABLE READ transaction and an LSN read beside them do not belong together (under six writers they
agreed in 12 of 15 tries). A new logical slot's exported snapshot sees exactly the commits up to its consistent point.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from headwater.source.postgres.begin import Waiting, next_xid, older_than
from headwater.source.postgres.session import Endpoint, quote_literal

WAIT_REPORT_S = 1.0


@dataclass(frozen=True, slots=True)
class UpstreamCut:
    """A snapshot to read under, and the position whose commits (those that end at or before it) it sees exactly."""

    position: str
    snapshot: str


@contextmanager
def upstream_cut(
    endpoint: Endpoint, *, on_wait: Callable[[list[Waiting]], None] = lambda waiting: None
) -> Iterator[UpstreamCut]:
    """A cut that stands while the block runs. It takes a slot and a walsender of the upstream for as long.

    The server makes it once the transactions that run have ended; `on_wait` hears each second who they are.
    """
    name = f"headwater_check_{secrets.token_hex(6)}"
    with endpoint.connect(replication=True) as replication:
        yield _create(endpoint, replication, name, on_wait)


def import_statement(snapshot: str) -> str:
    """Makes a transaction see a cut; must come before its first query."""
    return f"SET TRANSACTION SNAPSHOT {quote_literal(snapshot).strip()}"


def _create(
    endpoint: Endpoint,
    replication: psycopg.Connection[tuple[Any, ...]],
    name: str,
    on_wait: Callable[[list[Waiting]], None],
) -> UpstreamCut:
    outcome: list[UpstreamCut | psycopg.Error] = []

    def create() -> None:
        try:
            statement = f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
            row = replication.execute(statement).fetchone()
            assert row is not None
            outcome.append(UpstreamCut(position=row[1], snapshot=row[2]))
        except psycopg.Error as e:
            outcome.append(e)

    thread = threading.Thread(target=create, name="make cut", daemon=True)
    thread.start()
    thread.join(WAIT_REPORT_S)
    if thread.is_alive():
        with endpoint.connect() as session:
            xid = next_xid(session)
            while thread.is_alive():
                on_wait(older_than(session, xid))
                thread.join(WAIT_REPORT_S)
    (result,) = outcome
    if isinstance(result, psycopg.Error):
        raise endpoint.translate(result) from result
    return result
