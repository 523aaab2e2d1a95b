"""`kill -9` of the server at every point of a view's life, while writers go on; then every view equals its query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import crash
from headwater.errors import HeadwaterError
from support import upstreams
from support.lake import Lake, await_equal
from support.upstreams import Postgres
from support.wait import wait_for
from support.writing import ACCOUNTS, LEDGERS, TOTAL

CHAIN = ("view.slice_written", "view.slice_recorded", "view.run_written", "view.published", "view.swapped")
QUERIES = (
    "SELECT count(*) AS n, sum(amount) AS total FROM (SELECT * FROM ledger_a UNION ALL SELECT * FROM ledger_b)",
    "SELECT a.id, a.amount + b.amount AS both_amounts FROM ledger_a a JOIN ledger_b b ON a.id = b.id",
    "SELECT id % 7 AS part, max(amount) AS most, count(*) AS n FROM ledger_a GROUP BY id % 7",
    "SELECT n, total FROM view_0",
    "SELECT part, most FROM view_2 WHERE n > 3",
)
SLICED = "WITH (backfill.rows_per_span = 20)"  # several slices of a few rows


def test_every_crash_point_of_views_is_in_the_chain() -> None:
    assert set(CHAIN) == {p for p in crash.POINTS if p.startswith("view.")}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home", "")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def test_views_of_a_server_killed_at_each_point_go_on_exactly(database: Any, lake: Lake) -> None:
    upstream, seed = Postgres(database), upstreams.new_seed()
    upstream.create_schema(rows=200, seed=seed)
    with upstream.writer(seed, rate=40, sessions=4) as writer:
        for i, point in enumerate(CHAIN):
            print(f"point {point}", flush=True)
            views = [f"CREATE MATERIALIZED VIEW view_{n} {SLICED} AS {q};" for n, q in enumerate(QUERIES[: i + 1])]
            lake.file.write_text(upstream.definitions(LEDGERS) + "\n".join(views))
            lake.start(crash=point)
            if point == "view.swapped":
                _refresh(lake)
            lake.wait_dead(240.0)
        lake.start()
        lake.wait_live()
        await_equal(lake.verify)
        found = lake.remote().ask("SELECT n, total FROM view_0 UNION ALL SELECT n, total FROM view_3")
        assert [(r["n"], int(r["total"])) for r in found[0].rows.to_pylist()] == [(2 * ACCOUNTS, TOTAL)] * 2
        assert not writer.errors
    lake.stop()


def _refresh(lake: Lake) -> None:
    """Asks for a view to be computed anew until the server has died while it swaps."""

    def dead() -> bool:
        assert lake.process is not None
        try:
            lake.remote().ask("REFRESH MATERIALIZED VIEW view_1")
        except (HeadwaterError, AssertionError):
            return lake.process.poll() is not None
        return False

    wait_for(dead, "the server has died in a swap")
