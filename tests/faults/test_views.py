"""`kill -9` of the server at every point of a view's life, while writers go on; then every view equals its query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import crash
from headwater.engine.home import Home
from headwater.engine.running import Wanted
from headwater.errors import HeadwaterError
from headwater.meta import intents, relations
from headwater.meta.intents import Fold
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
FOLDS = ("fold.decided", "fold.given_up", "fold.merged")  # the second is reached by the start after the first
# Several slices of a few rows; recomputing them, which is faster, would mend what a crash did wrong.
SLICED = "WITH (backfill.rows_per_span = 20, refresh = 'incremental')"


def test_every_crash_point_of_views_is_in_the_chain() -> None:
    assert set(CHAIN) == {p for p in crash.POINTS if p.startswith("view.")}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home", "")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def test_views_of_a_server_killed_at_each_point_continue_exactly(database: Any, lake: Lake) -> None:
    upstream, seed = Postgres(database), upstreams.new_seed()
    upstream.create_schema(rows=200, seed=seed)
    with upstream.writer(seed, rate=40, sessions=4) as writer:
        for i, point in enumerate(CHAIN):
            print(f"point {point}", flush=True)
            views = [f"CREATE MATERIALIZED VIEW view_{n} {SLICED} AS {q};" for n, q in enumerate(QUERIES[: i + 1])]
            lake.file.write_text(upstream.definitions(LEDGERS) + "\n".join(views))
            lake.start(crash=point)
            if point == "view.swapped":
                _ask_until_dead(lake, "REFRESH MATERIALIZED VIEW view_1")
            lake.wait_dead(240.0)
        lake.start()
        lake.wait_live()
        await_equal(lake.verify)
        for n, query in enumerate(QUERIES):  # they also go on, and equal their queries as Spark runs them
            assert _fresh_differences(lake, f"view_{n}", query) == 0, query
        found = lake.remote().ask("SELECT n, total FROM view_0 UNION ALL SELECT n, total FROM view_3")
        assert [(r["n"], int(r["total"])) for r in found[0].rows.to_pylist()] == [(2 * ACCOUNTS, TOTAL)] * 2
        assert not writer.errors
    lake.stop()


def test_folds_of_a_view_killed_at_each_point_are_finished_or_repeated(database: Any, lake: Lake) -> None:
    upstream, seed = Postgres(database), upstreams.new_seed()
    upstream.create_schema(rows=200, seed=seed)
    lake.file.write_text(upstream.definitions(LEDGERS) + f"CREATE MATERIALIZED VIEW view_1 {SLICED} AS {QUERIES[1]};")
    with upstream.writer(seed, rate=40, sessions=4) as writer:
        lake.start()
        lake.wait_live()
        for table in LEDGERS:  # their own first folds must not come upon the points
            lake.remote().ask(f"FOLD TABLE {table}")
        lake.stop()
        for point in FOLDS:
            print(f"point {point}", flush=True)
            lake.start(crash=point)
            _ask_until_dead(lake, "FOLD MATERIALIZED VIEW view_1")
            lake.wait_dead(240.0)
            assert "view_1" in _folding(lake)
        lake.start()
        lake.wait_live()
        await_equal(lake.verify)
        assert not writer.errors
    lake.stop()


def _fresh_differences(lake: Lake, view: str, query: str) -> int:
    """How many rows of a view, once it holds what is published now, and of its query are not in the other."""
    sides = f"(SELECT * FROM {view} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL SELECT * FROM {view})"

    def asked() -> list[int]:
        try:
            found = lake.remote().ask(f"SELECT count(*) AS n FROM ({sides})", Wanted(fresh=True))
        except HeadwaterError as e:
            if e.code != "view.not_fresh":  # on a busy machine a minute may not be enough
                raise
            return []
        assert found[0].rows is not None
        return [int(found[0].rows["n"][0].as_py())]

    return wait_for(asked, f"{view} is fresh", 240.0)[0]


def _ask_until_dead(lake: Lake, statement: str) -> None:
    """Asks for something again and again, until the server has died while it does it."""

    def dead() -> bool:
        assert lake.process is not None
        try:
            lake.remote().ask(statement)
        except (HeadwaterError, AssertionError):
            return lake.process.poll() is not None
        return False

    wait_for(dead, f"the server has died in {statement}")


def _folding(lake: Lake) -> set[str]:
    """The relations whose folds a dead server has left."""
    home = Home.open(lake.home)
    with home.meta.read() as c:
        found = {relations.get(c, i.relation_id).name for i in intents.all(c) if isinstance(i.work, Fold)}
    home.meta.close()
    return found
