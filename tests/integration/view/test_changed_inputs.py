"""Inputs of views that RESYNC TABLE gives other columns, that are read again during a fill, or whose past is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from headwater.meta import relations
from support import shop as shops
from support import turns
from support.shop import Shop, held
from support.wait import wait_for

pytestmark = pytest.mark.slow

INCREMENTAL = "WITH (refresh = 'incremental')"  # few rows: recomputing them would be faster
ROWS = "VALUES (1, 10, 'a', 'x'), (2, 20, 'b', 'y'), (3, 30, 'c', 'z')"


def resync(shop: Shop, table: str) -> None:
    """Reads the table again, in its present form, until it has taken its own place."""
    before = shop.relation(table).id
    shop.hw.sql(f"RESYNC TABLE {table}")
    wait_for(lambda: shop.relation(table).id != before, f"{table} has been read again")


def await_code(shop: Shop, view: str, code: str) -> str:
    """The error of a view, once it is this one."""
    wait_for(lambda: code in (shop.relation(view).error or {}).get("code", ""), f"{view} says {code}; {shop.of(view)}")
    assert shop.of(view)["state"] == "failed"
    return str((shop.relation(view).error or {})["message"])


def test_columns_that_a_view_does_not_use_come_and_go(shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, n int, s text, u text", ROWS)
    star, query = shop.view(f"SELECT * FROM {t}"), f"SELECT id, n * 2 AS n FROM {t} WHERE s <> 'q'"
    view = shop.view(query, INCREMENTAL)
    total = shop.view(f"SELECT s, sum(n) AS n FROM {t} GROUP BY s", INCREMENTAL)
    shop.write(f"ALTER TABLE {t} ADD added int DEFAULT 7")
    resync(shop, t)
    shop.write(f"INSERT INTO {t} VALUES (4, 40, 'd', 'w', 8)")
    shop.check(star, f"SELECT id, n, s, u FROM {t}")  # what * meant when it was defined
    shop.write(f"ALTER TABLE {t} DROP u")
    resync(shop, t)
    shop.write(f"UPDATE {t} SET n = n + 1, added = 9 WHERE id < 3")
    shop.check(view, query)
    shop.check(total, f"SELECT s, sum(n) AS n FROM {t} GROUP BY s")
    shop.write(f"DELETE FROM {t} WHERE id = 1")
    shop.check(view, query)
    shop.check(total, f"SELECT s, sum(n) AS n FROM {t} GROUP BY s")
    assert shop.of(view)["strategy"] == "rows" and shop.of(total)["strategy"] == "groups", "as before the RESYNCs"
    assert "u" in await_code(shop, star, "view.input_changed")


def test_a_view_that_uses_a_changed_column_and_gives_the_same_columns_is_filled_again(shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, n int, s text, u text", ROWS)
    query = f"SELECT id, CAST(n AS string) AS n FROM {t}"
    view = shop.view(query)
    above = shop.view(f"SELECT count(n) AS c FROM {view}")
    shop.write(f"ALTER TABLE {t} ALTER n TYPE numeric(9,1)")
    resync(shop, t)
    shop.write(f"UPDATE {t} SET n = 1.5 WHERE id = 1")
    wait_for(lambda: shop.of(view)["state"] == "live" and shop.count(view) == 3, "the view goes on")
    assert {row["n"] for row in shop.check(view, query)} == {"1.5", "20.0", "30.0"}
    shop.write(f"DELETE FROM {t} WHERE id = 2")
    shop.check(view, query)
    assert shop.check(above, f"SELECT count(*) AS c FROM {t}") == [{"c": 2}]


def test_a_view_whose_hidden_key_has_another_type_is_filled_again_beside_itself(shop: Shop) -> None:
    """The key is no column of the view, but its rows are told apart by it."""
    t = shop.table("id int PRIMARY KEY, n int, s text, u text", ROWS)
    view = shop.view(f"SELECT n, s FROM {t}", INCREMENTAL)
    above = shop.view(f"SELECT s FROM {view} WHERE n > 10")
    before = shop.relation(view).id
    shop.write(f"ALTER TABLE {t} ALTER id TYPE bigint")
    resync(shop, t)
    shop.write(f"INSERT INTO {t} VALUES (5000000000, 50, 'e', 'v')")
    wait_for(lambda: shop.relation(view).id != before, f"filled again: {shop.states()}")
    shop.check(view, f"SELECT n, s FROM {t}")
    shop.check(above, f"SELECT s FROM {t} WHERE n > 10")
    shop.write(f"DELETE FROM {t} WHERE id = 2", f"UPDATE {t} SET n = 1 WHERE id = 5000000000")
    shop.check(above, f"SELECT s FROM {t} WHERE n > 10")
    assert shop.of(view)["strategy"] == "rows"


@turns.some(1)
@pytest.mark.parametrize(
    "change", ["DROP n", "RENAME n TO m", "ALTER n TYPE text USING n::text"], ids=["dropped", "renamed", "retyped"]
)
def test_a_view_whose_query_no_longer_fits_fails_and_stays_readable(shop: Shop, change: str) -> None:
    t = shop.table("id int PRIMARY KEY, n int, s text, u text", ROWS)
    view, other = shop.view(f"SELECT id, n FROM {t}"), shop.view(f"SELECT id, s FROM {t}")
    shop.write(f"ALTER TABLE {t} {change}")
    resync(shop, t)
    shop.write(f"DELETE FROM {t} WHERE id = 3")
    assert view in await_code(shop, view, "view.input_changed")
    assert shop.rows(f"SELECT sum(n) AS n, count(*) AS c FROM {view}", fresh=False) == [{"n": 60, "c": 3}]
    shop.check(other, f"SELECT id, s FROM {t}")
    with pytest.raises(HeadwaterError) as refused:
        shop.hw.sql(f"REFRESH MATERIALIZED VIEW {view}")
    assert refused.value.code == "view.input_changed"
    back = {"DROP n": "ADD n int", "RENAME n TO m": "RENAME m TO n"}.get(change, "ALTER n TYPE int USING n::int")
    shop.write(f"ALTER TABLE {t} {back}")
    resync(shop, t)
    wait_for(lambda: shop.of(view)["state"] == "live", "it fits again, and goes on")
    shop.check(view, f"SELECT id, n FROM {t}")


@turns.some(1)
@pytest.mark.parametrize("passes", [0, 1, 2], ids=["before", "after one", "after two"])
def test_a_fill_whose_input_is_read_again_meanwhile_ends_exactly(shop: Shop, passes: int) -> None:
    """`passes` slices are in the base when the table at the fill's epoch is gone."""
    t = shop.table(
        "id int PRIMARY KEY, n int",
        "SELECT i, i FROM generate_series(1, 8) i",
        with_="WITH (backfill.rows_per_span = 2)",
    )
    wait_for(lambda: shop.relation(t).state == "live", f"{t} live")
    query = f"SELECT id, n + 1 AS n FROM {t}"
    with held("view.slice_written", passes) as gate:
        sliced = "WITH (backfill.parallelism = 1, backfill.rows_per_span = 2, refresh = 'incremental')"
        view = shop.define(query, sliced)  # recomputing would mend what the fill did wrong
        above = shop.define(f"SELECT sum(n) AS n FROM {view}")
        wait_for(lambda: gate.waiting, "the fill is held at a slice")
        shop.write(f"UPDATE {t} SET n = 100 WHERE id = 1", f"DELETE FROM {t} WHERE id = 8")
        resync(shop, t)
    shop.await_filled(view, above)
    shop.write(f"INSERT INTO {t} VALUES (9, 9)")
    shop.check(view, query)
    shop.check(above, f"SELECT sum(n + 1) AS n FROM {t}")
    assert shop.of(view)["error"] in (None, "")


def test_a_view_that_stood_still_for_too_long_says_so_until_it_is_refreshed(
    spark: SparkSession, pg: EmbeddedPostgres, tmp_path: Path
) -> None:
    with shops.opened(spark, pg, tmp_path / "home", "stale_views", {"retention.hours": "0"}) as shop:
        t = shop.table("id int PRIMARY KEY, n int", "VALUES (1, 1), (2, 2)")
        query = f"SELECT id, n FROM {t}"
        # a view may be four intervals behind before it counts as standing still
        view = shop.view(query, "WITH (refresh.interval = '5s')")
        other = shop.view(f"SELECT count(*) AS c FROM {t}", "WITH (refresh.interval = '5s')")
        shop.hw.sql(f"PAUSE MATERIALIZED VIEW {view}")
        shop.write(f"DELETE FROM {t} WHERE id = 1")
        message = await_code(shop, view, "view.stale")
        assert "stood still for more than 0 h" in message
        shop.hw.sql(f"RESUME MATERIALIZED VIEW {view}")
        shop.write(f"INSERT INTO {t} VALUES (3, 3)")
        shop.check(other, f"SELECT count(*) AS c FROM {t}")
        assert shop.of(view)["state"] == "failed", "what it would need is gone"
        shop.hw.sql(f"REFRESH MATERIALIZED VIEW {view}")
        wait_for(lambda: shop.of(view)["state"] == "live", "computed anew")
        assert len(shop.check(view, query)) == 2
        with shop.hw._home.meta.read() as c:
            assert len([r for r in relations.all(c) if r.view is not None]) == 2
