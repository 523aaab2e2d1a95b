"""A view's fill, killed with slices at different progress, goes on with any parallelism: none is lost or repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import headwater
from headwater.engine.home import Home
from headwater.meta import relations, spans, views
from headwater.model import RelationInfo, SpanState
from headwater.ownership.permit import written
from headwater.relation import base
from support.lake import Lake, await_equal, definitions
from support.wait import wait_for

ROWS, PER_SLICE = 180, 20
LIVES = ((1, "view.slice_written:2"), (2, "view.slice_recorded"), (5, ""))  # parallelism, where it is killed
pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]  # three starts of a server each

DONE = (SpanState.SCANNED, SpanState.COVERED, SpanState.SETTLED)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home", "")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


@pytest.mark.parametrize(
    "query",
    ["SELECT id, v FROM t", "SELECT id % 70 AS k, max(v) AS m, count(*) AS n FROM t GROUP BY id % 70"],
    ids=["by key", "by hash"],
)
def test_slices_of_a_killed_fill_are_kept_whatever_the_parallelism(database: Any, lake: Lake, query: str) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute(f"INSERT INTO t SELECT g, g FROM generate_series(1, {ROWS}) g")
    lake.file.write_text(
        definitions(database, ())
        + f"CREATE TABLE t FROM CONNECTION pg WITH (backfill.rows_per_span = {PER_SLICE});\n"
        + f"CREATE MATERIALIZED VIEW v WITH (backfill.rows_per_span = {PER_SLICE}, backfill.parallelism = 1)\n"
        + f"AS {query};"
    )
    planned: set[str] = set()
    kept: dict[str, set[str]] = {}
    for parallelism, point in LIVES:
        if planned:  # else it is defined so
            with headwater.open(lake.home) as hw:
                hw.sql(f"ALTER MATERIALIZED VIEW v SET (backfill.parallelism = {parallelism})")
        lake.start(crash=point or None)
        if point:
            lake.wait_dead(600.0)  # a busy machine takes minutes to start and write two slices
            states, found = progress(lake.home), files(lake.home)
            planned = planned or set(states)
            assert set(states) == planned and kept.keys() < found.keys() < planned, "further, and not at the end"
            assert {slice for slice, state in states.items() if state in DONE} == found.keys()
            assert {slice: found[slice] for slice in kept} == kept, "what was done stays as it is"
            kept = found
            database.execute(f"UPDATE t SET v = v + 1000 WHERE id % 5 = {parallelism}")
            database.execute(f"DELETE FROM t WHERE id IN ({parallelism}, {ROWS - parallelism})")
    assert len(planned) == ROWS // PER_SLICE
    wait_for(lambda: filled(lake.home), "the view is filled", 600.0)
    found = files(lake.home)
    assert set(found) == planned, "every slice, and nothing else"
    assert {slice: found[slice] for slice in kept} == kept, "what was done is as it was"
    await_equal(lake.verify)
    lake.stop()


def of_view(home: Home) -> RelationInfo:
    with home.meta.read() as c:
        found = relations.find(c, "v")
    assert found is not None
    return found


def progress(path: Path) -> Mapping[str, SpanState]:
    """The state of each slice, by the label of its files."""
    home = Home.open(path)
    with home.meta.read() as c:
        found = {f"scan-{s.id}": s.state for s in spans.all(c, of_view(home).id)}
    home.meta.close()
    return found


def filled(path: Path) -> bool:
    home = Home.open(path)
    with home.meta.read() as c:
        found = bool(views.last_version(c, of_view(home).id))
    home.meta.close()
    return found


def files(path: Path) -> dict[str, set[str]]:
    """The files of each slice that is done: those that the base has, and those that will enter it."""
    home = Home.open(path)
    view = of_view(home)
    names = base.files(home.storage, view.base_path, base.current_version(home.storage, view.base_path))
    with home.meta.read() as c:
        names |= {f.path for s in spans.uncovered(c, view.id) for f in s.files}
    home.meta.close()
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        label = written(name)
        assert label is not None
        found[label.label].add(name)
    return dict(found)
