"""`kill -9` of the server at every named point, while writers go on; then every table equals its upstream.

A chain of crashes costs one start of Spark each: the server dies at one point, and the next start, which must first
mend what the last one left, dies at the next. Each start is given a new table, so that every point is reached.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater import crash
from headwater.engine.home import Home
from headwater.errors import HeadwaterError
from headwater.meta import merged, relations, runs, spans
from headwater.ownership.permit import written
from headwater.relation import base
from headwater.rundir import FILES, FOLDERS
from support import upstreams
from support.invariant import QUERY, check_invariant
from support.lake import Lake, assert_equal, await_equal, definitions
from support.upstreams import Postgres, Upstream
from support.wait import wait_for
from support.writing import LEDGERS

# Points of the capture process are killed in test_capture.py; these are the server's own.
CAPTURE = {"capture.cut_back", "capture.connected", "transaction.half", "segment.torn", "segment.written"}
CAPTURE |= {"segment.published", "position.published"}
CHAINS = (
    ("slot.created", "publication.altered", "plan.half", "scan.half", "scan.written", "segments.merged"),
    ("scan.recorded", "cover.decided", "cover.added", "cover.recorded", "base.upkept"),
    ("epoch.half", "epoch.published", "fold.decided", "fold.given_up", "fold.merged", "run.written"),
)
TABLES = ("ints", "pairs", "names", "parts", "whole")
SAMPLE = 2  # points of a short chain
AFTER_ANOTHER = {"fold.given_up"}  # is reached only by the start after `fold.decided`
TIDY = {"HEADWATER_HISTORY_S": "20"}  # what is left behind is looked for as often
SOON = {"HEADWATER_SEGMENT_AGE_S": "1", "HEADWATER_BASE_FILES": "3"}  # upkeep is due as soon as a table is filled


def test_every_crash_point_of_the_server_is_in_a_chain() -> None:
    of_views = {p for p in crash.POINTS if p.startswith("view.")}  # in test_views.py
    assert {p for chain in CHAINS for p in chain} == set(crash.POINTS) - CAPTURE - of_views


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home", "")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


@pytest.mark.parametrize("chain", CHAINS, ids=lambda c: c[0])
def test_a_server_killed_at_each_point_continues_exactly(chain: tuple[str, ...], database: Any, lake: Lake) -> None:
    kill_along(chain, Postgres(database), lake, upstreams.new_seed())


@pytest.mark.soak
@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
@pytest.mark.parametrize("chain", CHAINS, ids=lambda c: c[0])
def test_a_server_killed_at_each_point_continues_exactly_over(
    kind: type[Upstream], chain: tuple[str, ...], request: pytest.FixtureRequest, lake: Lake
) -> None:
    kill_along(chain, upstreams.fresh(request, kind), lake, upstreams.new_seed())


@pytest.mark.mariadb
@pytest.mark.mysql
def test_a_server_killed_at_some_points_continues_exactly_over_mysql_or_mariadb(
    request: pytest.FixtureRequest, lake: Lake
) -> None:
    """Other points, and perhaps another kind, each time; all of them in `make soak`."""
    kind, seed = upstreams.choose(upstreams.FAMILY)
    points = [p for chain in CHAINS for p in chain if p not in AFTER_ANOTHER]
    chain = sorted(random.Random(seed).sample(points, SAMPLE), key=points.index)
    kill_along(tuple(chain), upstreams.fresh(request, kind), lake, seed)


def kill_along(chain: tuple[str, ...], upstream: Upstream, lake: Lake, seed: int) -> None:
    """Kills the server at one point after the other while writers go on; then every table equals its upstream."""
    upstream.create_schema(rows=200, seed=seed)
    with upstream.writer(seed, rate=40, sessions=4) as writer:
        for i, point in enumerate(chain):
            print(f"point {point}", flush=True)
            lake.file.write_text(upstream.definitions((*LEDGERS, *TABLES[: i + 1])))
            settings = SOON if point in ("base.upkept", "segments.merged") else {}
            once = lake.home.parent / f"{point}.once"
            lake.start(crash=f"{point}:3:{once}" if point == "scan.half" else point, **settings)
            if point.startswith("fold"):
                _fold(lake)
            if point == "scan.half":  # kills one Spark worker: the server lives on and scans again
                lake.wait_live()
                assert once.exists()
                lake.kill()
            else:
                lake.wait_dead()
        lake.start(**TIDY)
        lake.wait_live()
        await_equal(lake.verify)
        check_invariant(*lake.remote().ask(QUERY)[0].rows.to_pylist()[0].values())
        assert not writer.errors
    await_tidy(lake)
    lake.stop()


def _fold(lake: Lake) -> None:
    """Asks for folds until the server has died in one, which may be one of its own."""

    def dead() -> bool:
        assert lake.process is not None
        try:
            lake.remote().ask(f"FOLD TABLE {LEDGERS[0]}")
        except (HeadwaterError, AssertionError):
            return lake.process.poll() is not None
        return False

    wait_for(dead, "the server has died in a fold")


def await_tidy(lake: Lake) -> None:
    """Waits until the server has found everything that those before it left behind."""
    last: set[str] = set()

    def tidy() -> bool:
        assert lake.process is not None and lake.process.poll() is None, lake.log
        last.clear()
        last.update(strays(lake.home))
        return not last

    try:
        wait_for(tidy, "nothing lies about")
    except AssertionError as e:
        raise AssertionError(f"{sorted(last)}") from e
    assert {e.name for e in lake.home.iterdir()} <= {*FOLDERS, *FILES}, "else the home would be taken for another's"


def strays(path: Path) -> set[str]:
    """Files of scans and folds that no version of their base has ever had; runs and segments that are not recorded."""
    home = Home.open(path)
    found = {p for folder in ("warehouse", "runs", "changelog") for p in home.storage.list(folder) if written(p)}
    with home.meta.read() as c:
        known = runs.paths(c) | merged.paths(c)
    for folder in home.storage.folders("warehouse"):
        address = home.storage.address(f"warehouse/{folder}")
        for version in range(DeltaTable(address).version() + 1):
            known |= {f"warehouse/{folder}/{name}" for name in base.files(home.storage, f"warehouse/{folder}", version)}
    home.meta.close()
    return found - known


def test_after_a_kill_nothing_that_was_covered_is_read_again(database: Any, lake: Lake) -> None:
    rows = 20_000
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute(f"INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, {rows}) g")
    lake.file.write_text(
        definitions(database, ()) + "CREATE TABLE t FROM CONNECTION pg WITH (backfill.rate_limit = 2000);"
    )
    home = Home.open(lake.home)
    lake.start()
    wait_for(lambda: _covered_rows(home) >= 3000, "a part is covered")
    lake.kill()
    covered = _covered_rows(home)
    home.meta.close()
    lake.start()
    wait_for(lambda: lake.status().tables, "the server is back")
    lake.remote().ask("ALTER TABLE t SET (backfill.rate_limit = 1000000)")
    lake.wait_live()
    metrics = lake.remote().ask("SHOW METRICS")[0].rows.to_pylist()
    (read,) = (m["value"] for m in metrics if m["name"] == "headwater_scanned_rows_total")
    assert 0 < covered < rows and int(read) == rows - covered
    assert_equal(lake.verify())
    lake.stop()


@pytest.mark.soak
def test_a_kill_while_a_key_is_read_again_leaves_no_file(database: Any, lake: Lake) -> None:
    """A row comes out of the part that is not read yet without its stored-aside column: only its key is read again."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    database.execute("INSERT INTO t SELECT 10 * g, repeat('v', 5000) FROM generate_series(1, 1000) g")
    options = "backfill.rows_per_span = 60, backfill.rate_limit = 60"
    lake.file.write_text(definitions(database, ()) + f"CREATE TABLE t FROM CONNECTION pg WITH ({options});")
    home = Home.open(lake.home)
    lake.start()
    wait_for(lambda: _covered_rows(home) >= 120, "a part is covered")
    lake.remote().ask("PAUSE BACKFILL t")
    database.execute("UPDATE t SET id = 15 WHERE id = 10000")
    wait_for(lambda: _read_again(home), "the key is to be read again")
    lake.kill()
    lake.start(crash="scan.written")
    lake.remote().ask("ALTER TABLE t SET (backfill.rate_limit = 1000000)")
    lake.remote().ask("RESUME BACKFILL t")
    lake.wait_dead()
    assert _read_again(home)
    home.meta.close()
    lake.start(**TIDY)
    lake.wait_live()
    await_equal(lake.verify)
    await_tidy(lake)
    lake.stop()


def _read_again(home: Home) -> bool:
    with home.meta.read() as c:
        relation = relations.find(c, "t")
        return relation is not None and any(s.again for s in spans.all(c, relation.id))


def _covered_rows(home: Home) -> int:
    with home.meta.read() as c:
        relation = relations.find(c, "t")
        return 0 if relation is None else sum(s.rows for s in spans.readable(c, relation.id))
