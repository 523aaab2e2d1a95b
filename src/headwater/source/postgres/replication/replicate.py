"""Runs one replication command that may wait for other transactions, and reports each second for whom."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg

from headwater.source.postgres.begin import Waiting, next_xid, older_than
from headwater.source.postgres.client.ask import Session
from headwater.source.postgres.client.session import Endpoint

REPORT_S = 1.0
CANCEL_S = 5.0

OnWait = Callable[[list[Waiting]], None]


def run(endpoint: Endpoint, replication: Session, command: str, on_wait: OnWait) -> tuple[Any, ...]:
    """The one row of the command's response; raises the driver's error if it fails.

    If interrupted while waiting, the command is cancelled: the server discards a slot that never became consistent.
    """
    outcome: list[tuple[Any, ...] | psycopg.Error] = []

    def execute() -> None:
        try:
            row = replication.execute(command).fetchone()
            assert row is not None, "a replication command answers with one row"
            outcome.append(row)
        except psycopg.Error as e:
            outcome.append(e)

    thread = threading.Thread(target=execute, name="replication command", daemon=True)
    thread.start()
    try:
        thread.join(REPORT_S)
        if thread.is_alive():
            _report(endpoint, thread, on_wait)
    finally:
        if thread.is_alive():
            replication.cancel_safe(timeout=CANCEL_S)
            thread.join(CANCEL_S)
    (result,) = outcome
    if isinstance(result, psycopg.Error):
        raise result
    return result


def _report(endpoint: Endpoint, thread: threading.Thread, on_wait: OnWait) -> None:
    with endpoint.connect() as session:
        xid = next_xid(session)
        while thread.is_alive():
            on_wait(older_than(session, xid))
            thread.join(REPORT_S)
