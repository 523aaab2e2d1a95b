"""Aggregates that can be added up are filled from partial rows: each part of the input is read once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headwater.engine.commit.sweep import Sweeper
from headwater.meta import spans
from headwater.model import SpanState
from support.shop import Shop, held
from support.wait import wait_for

pytestmark = pytest.mark.slow

ROWS = 60
SLICED = "WITH (backfill.rows_per_span = 10, backfill.parallelism = 2)"


@pytest.fixture(scope="module")
def table(shop: Shop) -> str:
    """A table in several files. The values of its first ten rows add up to nothing."""
    made = shop.table(
        "id int PRIMARY KEY, k int, v numeric(10,2), s text",
        f"SELECT i, i % 2, CASE WHEN i > 10 THEN i WHEN i % 4 < 2 THEN 1 ELSE -1 END, 'x' || i % 7 "
        f"FROM generate_series(1, {ROWS}) i WHERE i NOT IN (9, 10)",
        with_="WITH (backfill.rows_per_span = 10)",
    )
    wait_for(lambda: shop.relation(made).state == "live", f"{made} live")
    return made


def files_of(shop: Shop, view: str) -> set[str]:
    folder = Path(shop.hw._home.path) / shop.relation(view).base_path
    return {p.name for p in folder.glob("*.parquet")}


def base_files(shop: Shop, view: str) -> set[str]:
    folder = Path(shop.hw._home.path) / shop.relation(view).base_path
    return {Path(f).name for f in DeltaTable(str(folder)).file_uris()}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(*) AS n, count(s) AS c, avg(v) AS mean, 100 / sum(v) AS share FROM {t} GROUP BY k",
        "SELECT s, sum(v) AS total, 100 / sum(v) AS share FROM {t} GROUP BY s HAVING sum(v) > 250",
        "SELECT count(*) AS n, 100 / sum(v) AS share, bool_or(v > 59) AS late FROM {t}",
        "SELECT s, count(*) AS n FROM {t} WHERE id < 0 GROUP BY s",
    ],
    ids=["groups", "having", "everything", "empty"],
)
def test_an_aggregate_is_filled_from_partial_rows_of_its_input(shop: Shop, table: str, query: str) -> None:
    query = query.format(t=table)
    view = shop.view(query, SLICED)
    fill = shop.fill(view)
    assert fill is not None and fill.partial and fill.slices >= 3 and fill.input == shop.relation(table).id
    shop.check(view, query)
    wait_for(lambda: files_of(shop, view) == base_files(shop, view), "the files of partial rows are gone")
    folder = Path(shop.hw._home.path) / shop.relation(view).base_path
    stored = sum(pq.read_metadata(folder / name).num_rows for name in base_files(shop, view))
    with shop.hw._home.meta.read() as c:
        (settled,) = spans.all(c, shop.relation(view).id)
        assert spans.rows(c, shop.relation(view).id) == stored, "partial rows do not count"
    assert settled.state is SpanState.SETTLED
    shop.write(f"UPDATE {table} SET v = v + 1 WHERE id % 5 = 0", f"DELETE FROM {table} WHERE id = {ROWS - 1}")
    shop.check(view, query)
    shop.write(f"INSERT INTO {table} VALUES ({ROWS - 1}, 1, 59, 'again')")


def test_nothing_is_readable_before_the_parts_are_put_together(shop: Shop, table: str) -> None:
    query = f"SELECT k, sum(v) AS total FROM {table} GROUP BY k"
    with held("view.slice_recorded", passes=2) as gate:
        view = shop.define(query, "WITH (backfill.rows_per_span = 10, backfill.parallelism = 1)")
        wait_for(lambda: gate.waiting, "the third slice is recorded")
        assert len(files_of(shop, view)) == 3 and not base_files(shop, view)
        (line,) = [r for r in shop.rows("SHOW BACKFILLS", fresh=False) if r["table"] == view]
        done, total = map(int, line["spans"].split("/"))
        assert done == 3 and total > 4 and line["state"] == "filling"
    shop.await_filled(view)
    shop.check(view, query)


def test_files_of_partial_rows_that_a_crash_leaves_are_swept(shop: Shop, table: str) -> None:
    view = shop.view(f"SELECT k, sum(v) AS total FROM {table} GROUP BY k", SLICED)
    folder = Path(shop.hw._home.path) / shop.relation(view).base_path
    kept = base_files(shop, view)
    wait_for(lambda: files_of(shop, view) == kept, "the files of partial rows are gone")
    name = next(iter(kept))
    label, rest = name.split("-f", 1)
    stray = folder / f"{label.rsplit('-', 1)[0]}-1-f{rest}"
    stray.write_bytes((folder / name).read_bytes())
    server = shop.hw._server
    Sweeper(shop.hw._home, server._leases).sweep()
    assert files_of(shop, view) == kept
