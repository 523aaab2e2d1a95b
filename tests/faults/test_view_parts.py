"""An aggregate's fill from partial rows, killed between its slices and in its last step, repeats none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.engine.home import Home
from headwater.meta import relations, spans, views
from headwater.model import RelationInfo, SpanState
from headwater.relation import base
from support.lake import Lake, await_equal, definitions
from support.wait import wait_for

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]  # three starts of a server

ROWS, PER_SLICE = 120, 20
SLICES = ROWS // PER_SLICE


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home", "")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def test_partial_rows_of_a_killed_fill_are_kept_and_put_together_once(database: Any, lake: Lake) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute(f"INSERT INTO t SELECT g, g FROM generate_series(1, {ROWS}) g")
    lake.file.write_text(
        definitions(database, ())
        + f"CREATE TABLE t FROM CONNECTION pg WITH (backfill.rows_per_span = {PER_SLICE});\n"
        + f"CREATE MATERIALIZED VIEW v WITH (backfill.rows_per_span = {PER_SLICE}, backfill.parallelism = 1)\n"
        + "AS SELECT id % 7 AS k, sum(v) AS total, avg(v) AS mean, count(*) AS n FROM t GROUP BY id % 7;"
    )
    kept: dict[int, tuple[str, ...]] = {}
    for point, done in (("view.slice_written:3", 2), (f"view.slice_written:{SLICES - 1}", SLICES)):
        lake.start(crash=point)
        lake.wait_dead(240.0)
        now = parts(lake.home)
        assert len(now) == done and {id: now[id] for id in kept} == kept, "what was done stays as it is"
        assert not in_base(lake.home), "partial rows are no rows of the view"
        kept = now
        database.execute(f"UPDATE t SET v = v + 1000 WHERE id % 5 = {done % 5}")
    lake.start()
    wait_for(lambda: bool(in_base(lake.home)), "the view is filled")
    await_equal(lake.verify)
    gone = {name for names in kept.values() for name in names}
    wait_for(lambda: not gone & on_disk(lake.home), "files of partial rows are removed")
    lake.stop()


def of_view(home: Home) -> RelationInfo:
    with home.meta.read() as c:
        found = relations.find(c, "v")
    assert found is not None
    return found


def parts(path: Path) -> dict[int, tuple[str, ...]]:
    """The files of each slice that is written, by its span."""
    home = Home.open(path)
    with home.meta.read() as c:
        id = of_view(home).id
        fill, states = views.fill(c, id), [s.state for s in spans.all(c, id)]
        found = {s.id: tuple(f.path for f in s.files) for s in spans.uncovered(c, id)}
    home.meta.close()
    assert fill is not None and fill.partial and fill.slices == SLICES and len(states) == SLICES + 1
    assert set(states) <= {SpanState.PENDING, SpanState.SCANNING, SpanState.SCANNED}
    return found


def in_base(path: Path) -> set[str]:
    home = Home.open(path)
    view = of_view(home)
    found = base.files(home.storage, view.base_path, base.current_version(home.storage, view.base_path))
    home.meta.close()
    return found


def on_disk(path: Path) -> set[str]:
    home = Home.open(path)
    folder = path / of_view(home).base_path
    home.meta.close()
    return {p.name for p in folder.glob("*.parquet")}
