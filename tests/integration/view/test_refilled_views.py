"""Views that are filled again beside themselves, by REFRESH or because so much changed: no reader notices."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from headwater.engine.view import refresh
from headwater.engine.view.refusal import MOST_RESULT, is_too_large
from headwater.meta import relations, views
from headwater.view.shape import WEIGHT
from support.shop import Shop, busy, held
from support.wait import wait_for

pytestmark = pytest.mark.slow

ROWS = "SELECT i, i % 3, i FROM generate_series(1, 30) i"
COLUMNS = "id int PRIMARY KEY, k int, v int"


def replaced(shop: Shop) -> int:
    """How many views are kept that others have replaced."""
    with shop.hw._home.meta.read() as c:
        return len(relations.replaced(c))


def await_replaced(shop: Shop, view: str, before: int) -> None:
    wait_for(lambda: shop.relation(view).id != before, f"{view} has been filled again; {shop.of(view)}")


def test_a_refreshed_view_is_read_with_a_view_over_it_that_has_not_followed_yet(shop: Shop) -> None:
    t = shop.table(COLUMNS, ROWS)
    view = shop.view(f"SELECT k, sum(v) AS total FROM {t} GROUP BY k")
    above, other = shop.view(f"SELECT sum(total) AS total FROM {view}"), shop.view(f"SELECT count(*) AS n FROM {t}")
    shop.rows(f"SELECT * FROM {view}, {above}, {other}")  # all are where the table is
    for each in (above, other):
        shop.hw.sql(f"PAUSE MATERIALIZED VIEW {each}")
    shop.write(f"DELETE FROM {t} WHERE id = 30")
    shop.await_published()
    before = shop.relation(view).id
    shop.hw.sql(f"REFRESH MATERIALIZED VIEW {view}")
    await_replaced(shop, view, before)
    both = f"SELECT (SELECT sum(total) FROM {view}) AS mine, (SELECT total FROM {above}) AS above"
    assert shop.rows(both, fresh=False) == [{"mine": 465, "above": 465}], "as both were"
    alone = f"SELECT (SELECT sum(total) FROM {view}) AS mine, (SELECT count(*) FROM {t}) AS n"
    assert shop.rows(alone) == [{"mine": 435, "n": 29}], "without the others it is as new as it can be"
    with_other = f"SELECT (SELECT sum(total) FROM {view}) AS mine, (SELECT n FROM {other}) AS n"
    assert shop.rows(with_other, fresh=False) == [{"mine": 465, "n": 30}]
    assert replaced(shop) == 1
    for each in (above, other):
        shop.hw.sql(f"RESUME MATERIALIZED VIEW {each}")
    assert shop.rows(both) == [{"mine": 435, "above": 435}]
    assert shop.rows(with_other) == [{"mine": 435, "n": 29}]
    wait_for(lambda: replaced(shop) == 0, "the old one is gone once nobody needs it")
    shop.check(view, f"SELECT k, sum(v) AS total FROM {t} GROUP BY k")


def test_nobody_who_reads_while_views_are_refreshed_gets_an_error_or_a_mixture(shop: Shop) -> None:
    t = shop.table(COLUMNS, ROWS)
    view = shop.view(f"SELECT id, k, v FROM {t} WHERE v > 0")
    above = shop.view(f"SELECT k, sum(v) AS total FROM {view} GROUP BY k")
    top = shop.view(f"SELECT max(total) AS most, sum(total) AS total FROM {above}")
    sums = (
        f"SELECT (SELECT sum(v) FROM {t}) AS a, (SELECT sum(v) FROM {view}) AS b, "
        f"(SELECT sum(total) FROM {above}) AS c, (SELECT total FROM {top}) AS d"
    )
    read = list[tuple[int, ...]]()

    def look() -> None:
        (row,) = shop.rows(sums, fresh=False)
        assert len(set(row.values())) == 1, row
        read.append(tuple(row.values()))

    with busy(look):
        for number, each in enumerate((view, above, view, top)):
            before = shop.relation(each).id
            shop.write(f"UPDATE {t} SET v = v + 1 WHERE id % 4 = {number}")
            shop.hw.sql(f"REFRESH MATERIALIZED VIEW {each}")
            await_replaced(shop, each, before)
    shop.check(top, f"SELECT max(s) AS most, sum(s) AS total FROM (SELECT sum(v) AS s FROM {t} GROUP BY k)")
    assert len(set(read)) > 1
    wait_for(lambda: replaced(shop) == 0, "nothing is kept")


def test_a_resynced_table_is_read_with_a_view_that_has_not_followed_yet(shop: Shop) -> None:
    t = shop.table(COLUMNS, ROWS)
    view = shop.view(f"SELECT count(*) AS n FROM {t}")
    shop.rows(f"SELECT * FROM {view}")
    shop.hw.sql(f"PAUSE MATERIALIZED VIEW {view}")
    shop.write(f"DELETE FROM {t} WHERE id = 30")
    wait_for(lambda: shop.count(t) == 29, "the table has followed")
    before = shop.relation(t).id
    shop.hw.sql(f"RESYNC TABLE {t}")
    wait_for(lambda: shop.relation(t).id != before, "it has been read again")
    shop.write(f"DELETE FROM {t} WHERE id = 29")
    wait_for(lambda: shop.count(t) == 28, "by itself it is as new as it can be")
    both = f"SELECT (SELECT count(*) FROM {t}) AS mine, (SELECT n FROM {view}) AS n"
    assert shop.rows(both, fresh=False) == [{"mine": 30, "n": 30}], "where the view is"
    assert replaced(shop) == 1
    shop.hw.sql(f"RESUME MATERIALIZED VIEW {view}")
    assert shop.rows(both) == [{"mine": 28, "n": 28}]
    wait_for(lambda: replaced(shop) == 0, "the old one is gone once nobody needs it")


def test_dropping_a_view_takes_along_what_it_has_replaced(shop: Shop) -> None:
    t = shop.table(COLUMNS, ROWS)
    view = shop.view(f"SELECT k, sum(v) AS total FROM {t} GROUP BY k")
    above = shop.view(f"SELECT sum(total) AS total FROM {view}")
    shop.rows(f"SELECT * FROM {view}, {above}")
    shop.hw.sql(f"PAUSE MATERIALIZED VIEW {above}")
    shop.write(f"DELETE FROM {t} WHERE id = 30")
    shop.await_published()  # filled where the view above it stands, the new one would be all that anybody needs
    before = shop.relation(view).id
    shop.hw.sql(f"REFRESH MATERIALIZED VIEW {view}")
    await_replaced(shop, view, before)
    assert replaced(shop) == 1
    shop.hw.sql(f"DROP MATERIALIZED VIEW {view} CASCADE")
    with shop.hw._home.meta.read() as c:
        assert not {before, shop.relation(t).id + 1} & relations.ids(c) and replaced(shop) == 0


def test_a_view_of_which_much_changes_gets_a_new_base(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "LARGE_ROWS", 20)
    t = shop.table(COLUMNS, ROWS)
    query = f"SELECT id, v * 2 AS v FROM {t}"
    view = shop.view(query, "WITH (refresh = 'full')")
    above = shop.view(f"SELECT count(*) AS n, sum(v) AS total FROM {view}")
    before = shop.relation(view)
    shop.write(f"UPDATE {t} SET v = v + 1 WHERE id < 4")
    shop.check(view, query)
    assert shop.relation(view).id == before.id and shop.of(view)["reason"] == "refresh = 'full'"
    with held("view.slice_written") as gate:
        shop.write(f"UPDATE {t} SET v = v + 1")
        wait_for(lambda: gate.waiting, "it is filled beside itself")
        line = shop.of(view)
        assert line["state"] == "live" and "its refresh" in line["waits_for"], line
        assert "so much changed that the view is filled again beside itself" in line["reason"]
        assert shop.rows(f"SELECT count(*) AS n FROM {view}", fresh=False) == [{"n": 30}], "readable as it was"
        both = f"SELECT (SELECT sum(v) FROM {view}) AS a, (SELECT total FROM {above}) AS b"
        (row,) = shop.rows(both, fresh=False)
        assert row["a"] == row["b"]
    await_replaced(shop, view, before.id)
    shop.check(view, query)
    shop.check(above, f"SELECT count(*) AS n, sum(v * 2) AS total FROM {t}")
    now = shop.relation(view)
    assert now.base_path != before.base_path and now.options == before.options
    with shop.hw._home.meta.read() as c:
        assert any("so much changed" in r.reason for r in views.refreshes(c, now.id)), "what is known goes along"
    shop.write(f"DELETE FROM {t} WHERE id = 1")
    shop.check(view, query)
    assert shop.relation(view).id == now.id, "a small change is a difference again"


def test_a_change_that_spark_refuses_to_send_is_recognised(spark: SparkSession) -> None:
    conf = spark.sparkContext._jsc.sc().conf()  # type: ignore[attr-defined]
    conf.set(MOST_RESULT, "1m")
    try:
        with pytest.raises(Exception, match=MOST_RESULT) as refused:
            spark.range(2_000_000).toArrow()
    finally:
        conf.remove(MOST_RESULT)
    assert is_too_large(refused.value) and not is_too_large(ValueError(MOST_RESULT))
    assert spark.range(2_000_000).toArrow().num_rows == 2_000_000


def test_a_difference_that_is_too_large_is_never_collected(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh, "LARGE_ROWS", 1000)
    rows = spark.range(100_000).withColumn(WEIGHT, fn.lit(1))
    assert refresh._collected(rows) is None
    found = refresh._collected(rows.where("id < 1000"))
    assert found is not None and found.num_rows == 1000
