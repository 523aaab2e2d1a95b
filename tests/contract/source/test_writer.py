"""The random writer itself does all it promises, and keeps its invariant."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support import turns, upstreams
from support.invariant import QUERY, check_invariant
from support.wait import wait_for
from support.writer import Writer, create_schema

pytestmark = turns.TAKEN

KINDS = {"_mixed", "_rolled_back", "_nested", "_large", "_again", "_big", "_transfer", "_truncate"}


@pytest.mark.parametrize("kind", upstreams.EVERY, ids=lambda k: k.name)
def test_the_random_writer_does_everything_it_promises(
    kind: type[upstreams.Upstream], request: pytest.FixtureRequest
) -> None:
    upstream = upstreams.fresh(request, kind)
    upstream.create_schema(rows=100, seed=11)
    wanted = KINDS | ({"_prepared"} if upstream.dialect.two_phase else set())
    writer = upstream.writer(11, 0).start()
    deadline = time.monotonic() + 60
    while not wanted <= writer.done.keys() and not writer.errors and time.monotonic() < deadline:
        check_invariant(*upstream.execute(QUERY)[0])
    writer.stop()
    assert wanted <= writer.done.keys()
    assert sum(writer.done.values()) > 2 * writer.done["refused"]
    check_invariant(*upstream.execute(QUERY)[0])
    for table in upstream.tables:
        assert upstream.execute(f"SELECT count(*) FROM {table}")[0][0] >= 0


def test_a_writer_keeps_to_its_rate(database: Any) -> None:
    with database.connect() as session:
        create_schema(session, rows=5)
    writer = Writer(database.dsn, seed=12, rate=50, tables=("ints", "ledger_a", "ledger_b"), truncates=False).start()
    started = time.monotonic()
    wait_for(lambda: sum(writer.done.values()) >= 40, "forty transactions")
    writer.stop()
    assert sum(writer.done.values()) / (time.monotonic() - started) < 120
