"""The random writer itself does all it promises, and keeps its invariant."""

from __future__ import annotations

import time
from typing import Any

from support.invariant import check_upstream
from support.wait import wait_for
from support.writer import TABLES, Writer, create_schema


def test_the_random_writer_does_everything_it_promises(database: Any) -> None:
    with database.connect() as session:
        create_schema(session)
        writer = Writer(database.dsn, seed=11).start()
        wanted = {"_mixed", "_rolled_back", "_nested", "_toast", "_again", "_big", "_transfer", "_truncate"}
        deadline = time.monotonic() + 60
        while not wanted <= writer.done.keys() and not writer.errors and time.monotonic() < deadline:
            check_upstream(session)
        writer.stop()
        assert wanted <= writer.done.keys()
        assert sum(writer.done.values()) > 2 * writer.done["refused"]
        check_upstream(session)
        for table in TABLES:
            assert session.execute(f"SELECT count(*) >= 0 FROM {table}").fetchone() == (True,)


def test_a_writer_keeps_to_its_rate(database: Any) -> None:
    with database.connect() as session:
        create_schema(session, rows=5)
    writer = Writer(database.dsn, seed=12, rate=50, tables=("ints", "ledger_a", "ledger_b"), truncates=False).start()
    started = time.monotonic()
    wait_for(lambda: sum(writer.done.values()) >= 40, "forty transactions")
    writer.stop()
    assert sum(writer.done.values()) / (time.monotonic() - started) < 120
