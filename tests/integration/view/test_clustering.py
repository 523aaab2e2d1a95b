"""`cluster.by`: the files of a view's base are ordered by other columns than its key, and stay so."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater.model import RelationInfo
from headwater.relation import rewrite
from headwater.relation.upkeep import TARGET_BYTES, Rewrite, Way
from support.shop import Shop
from support.wait import wait_for

pytestmark = pytest.mark.slow

ROWS, FILES = 4000, 8


def files_read(spark: SparkSession, shop: Shop, view: str, condition: str) -> tuple[int, int]:
    """How many of a base's files a query with this condition reads, and how many there are."""
    path = str(Path(shop.hw._home.path) / shop.relation(view).base_path)
    rows = spark.read.format("delta").load(path)
    return len(rows.where(condition).inputFiles()), len(rows.inputFiles())


WHOLE = Rewrite(Way.WHOLE, FILES * TARGET_BYTES)  # into so many files


def rewritten(shop: Shop, view: str, way: Rewrite = WHOLE) -> None:
    """Rewrites a base as upkeep does, once it is not busy with something else."""
    server, before = shop.hw._server, shop.relation(view).base_version

    def work(current: RelationInfo) -> None:
        rewrite.rewrite(server.session(), shop.hw._home.storage, current, way)

    wait_for(lambda: server.committer.upkeep(shop.relation(view).id, work) is not None, "the base is rewritten")
    assert shop.relation(view).base_version > before


def test_a_query_by_the_chosen_columns_reads_few_files_also_after_rewrites(spark: SparkSession, shop: Shop) -> None:
    t = shop.table(
        "id int PRIMARY KEY, day date, place text, v int",
        f"SELECT i, date '2024-01-01' + (i * 7919) % 100, 'p' || (i * 31) % 50, i FROM generate_series(1, {ROWS}) i",
    )
    query = f"SELECT id, day, place, v FROM {t}"
    view = shop.view(query, "WITH (cluster.by = 'day, id')")
    by_day, by_place, by_id = "day = date '2024-02-03'", "place = 'p7'", "id = 17"
    rewritten(shop, view)
    assert files_read(spark, shop, view, by_day) == (1, FILES)
    assert files_read(spark, shop, view, by_id) == (FILES, FILES), "ids are everywhere"
    shop.write(f"UPDATE {t} SET v = v + 1, day = day + 1 WHERE id % 10 = 0")
    shop.check(view, query)
    shop.hw.sql(f"FOLD MATERIALIZED VIEW {view}")
    rewritten(shop, view)
    few, all = files_read(spark, shop, view, by_day)
    assert few <= 2 and all == FILES, "after changes and a fold"
    shop.hw.sql(f"ALTER MATERIALIZED VIEW {view} SET (cluster.by = 'place')")
    rewritten(shop, view)
    few, all = files_read(spark, shop, view, by_place)
    assert few <= 2 and all == FILES, "altered, from the next rewrite on"
    assert files_read(spark, shop, view, by_day)[0] > FILES // 2, "days are nearly everywhere"
    shop.check(view, query)


def test_a_fill_orders_its_files(spark: SparkSession, shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, k int", f"SELECT i, (i * 7919) % 1000 FROM generate_series(1, {ROWS}) i")
    view = shop.view(f"SELECT id, k FROM {t}", "WITH (cluster.by = 'k')")
    few, all = files_read(spark, shop, view, "k = 500")
    assert few == 1 and all >= 1, (few, all)


def test_a_range_of_the_chosen_column_is_rewritten_alone(spark: SparkSession, shop: Shop) -> None:
    t = shop.table(
        "id int PRIMARY KEY, k int", f"SELECT i, nullif((i * 7919) % 1000, 7) FROM generate_series(1, {ROWS}) i"
    )
    query = f"SELECT id, k FROM {t}"
    view = shop.view(query, "WITH (cluster.by = 'k')")
    rewritten(shop, view)
    _, files = rewrite.look(shop.hw._home.storage, shop.relation(view))
    ranges = sorted((f.low, f.high) for f in files)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges)), "by the column, not by the key"
    rewritten(shop, view, Rewrite(Way.RANGE, TARGET_BYTES, ranges[2][0], ranges[3][1]))
    assert len(rewrite.look(shop.hw._home.storage, shop.relation(view))[1]) == FILES - 1
    shop.check(view, query)


def test_what_has_no_order_is_refused(shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, k int", "VALUES (1, 1)")
    with pytest.raises(HeadwaterError) as refused:
        shop.hw.sql(f"CREATE MATERIALIZED VIEW m WITH (cluster.by = 'm') AS SELECT id, map('a', k) AS m FROM {t}")
    assert refused.value.code == "sql.bad_option" and "m holds maps" in refused.value.message
