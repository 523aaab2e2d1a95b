"""Views that are filled while their inputs change: in slices, beside the stream, exact in the end.

Most of these are the examples of "Backfilling 101" and "Arrangement Backfill": what a view over a table or another
view must get right when rows go and come between the parts of its history.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from headwater.errors import HeadwaterError
from headwater.meta import spans
from support.shop import Gate, Shop, busy, held
from support.wait import wait_for

pytestmark = pytest.mark.slow

WRITTEN = "view.slice_written"
# A refresh that recomputed these few rows would mend what a fill did wrong.
ONE_BY_ONE = "WITH (backfill.parallelism = 1, backfill.rows_per_span = 2, refresh = 'incremental')"


def await_held(gate: Gate) -> None:
    wait_for(lambda: gate.waiting, "the fill is held at a slice")


def in_spans(shop: Shop, columns: str, rows: str, per_span: int = 2) -> str:
    """A live table whose base has a file per so many rows, so that fills over it are cut by its key."""
    made = shop.table(columns, rows, with_=f"WITH (backfill.rows_per_span = {per_span})")
    wait_for(lambda: shop.relation(made).state == "live", f"{made} live")
    return made


def test_rows_that_go_and_come_while_a_view_is_filled_are_all_right_in_the_end(shop: Shop) -> None:
    """Rows 1 and 2 are read; then 1 goes, 4 and 100 come, 99 goes, and rows of both parts change."""
    t = in_spans(
        shop,
        "id int PRIMARY KEY, name text",
        "VALUES (1, 'a'), (2, 'b'), (3, 'c'), (5, 'e'), (98, 'y'), (99, 'zzz')",
    )
    with held(WRITTEN, passes=1) as gate:
        view = shop.define(f"SELECT * FROM {t}", ONE_BY_ONE)
        await_held(gate)
        fill = shop.fill(view)
        assert fill is not None and fill.slices == 3 and fill.cuts == (3, 98), "by ranges of the key, 1 and 2 first"
        with pytest.raises(HeadwaterError) as early:
            shop.rows(f"SELECT * FROM {view}", fresh=False)
        assert early.value.code == "view.not_filled" and "1 of 3 slices" in early.value.message
        shop.write(
            f"INSERT INTO {t} VALUES (4, 'd')",
            f"DELETE FROM {t} WHERE id IN (1, 99)",
            f"INSERT INTO {t} VALUES (100, 'zzzz')",
            f"UPDATE {t} SET name = upper(name) WHERE id IN (2, 5)",
            f"UPDATE {t} SET id = 0 WHERE id = 98",  # from a part that is not read into one that is
        )
        wait_for(lambda: shop.count(t) == 6, "the table goes on")
    shop.await_filled(view)
    found = {(row["id"], row["name"]) for row in shop.check(view, f"SELECT * FROM {t}")}
    assert found == {(0, "y"), (2, "B"), (3, "c"), (4, "d"), (5, "E"), (100, "zzzz")}


@pytest.mark.parametrize(
    "query", ["SELECT id, n FROM {t}", "SELECT n, count(*) AS c, max(id) AS m FROM {t} GROUP BY n"]
)
def test_changes_between_any_two_slices_are_in_the_view_once(shop: Shop, query: str) -> None:
    """The fill is held at every slice, and what was read and what was not changes before it goes on."""
    t = in_spans(shop, "id int PRIMARY KEY, n int", "SELECT i, i % 3 FROM generate_series(1, 10) i")
    query, slices = query.format(t=t), 0
    with held(WRITTEN) as gate:
        view = shop.define(query, ONE_BY_ONE)
        while wait_for(lambda: gate.waiting or shop.of(view)["state"], "the next slice, or the end") != "live":
            if gate.waiting:
                slices += 1
                shop.write(
                    f"UPDATE {t} SET n = n + 1 WHERE id % 3 = {slices % 3}",
                    f"DELETE FROM {t} WHERE id = {slices}",
                    f"INSERT INTO {t} VALUES ({100 + slices}, {slices})",
                )
                gate.let_one_pass()
                wait_for(lambda: not gate.waiting, "it goes on")
    assert slices == 5
    shop.check(view, query)


def test_a_paused_fill_goes_on_where_it_stood(shop: Shop) -> None:
    t = in_spans(shop, "id int PRIMARY KEY, n int", "SELECT i, i FROM generate_series(1, 8) i")
    with held(WRITTEN, passes=1) as gate:
        view = shop.define(f"SELECT id, n * 2 AS n FROM {t}", ONE_BY_ONE)
        await_held(gate)
        shop.hw.sql(f"PAUSE MATERIALIZED VIEW {view}")
    wait_for(lambda: slices(shop, view)["scanning"] == 0, "the slice in flight is finished")
    shop.write(f"DELETE FROM {t} WHERE id < 3", f"INSERT INTO {t} VALUES (20, 20)")
    wait_for(lambda: shop.count(t) == 7, "the table goes on")
    assert slices(shop, view)["pending"] == 2 and slices(shop, view).total() == 4
    shop.hw.sql(f"RESUME MATERIALIZED VIEW {view}")
    shop.await_filled(view)
    shop.check(view, f"SELECT id, n * 2 AS n FROM {t}")


def slices(shop: Shop, view: str) -> Counter[str]:
    """How many slices of a fill are in each state."""
    with shop.hw._home.meta.read() as c:
        return Counter(str(s.state) for s in spans.all(c, shop.relation(view).id))


@pytest.mark.parametrize("key", ["id", "id, i"])
def test_a_view_of_a_view_lacks_part_of_the_order_and_of_the_key(shop: Shop, key: str) -> None:
    """`mv2` shows one column of `mv1`, which is ordered by two: rows that look the same stay as many as they are."""
    t1 = shop.table(f"id bigint, i bigint, PRIMARY KEY ({key})", "SELECT i, i % 3 FROM generate_series(1, 12) i")
    mv1 = shop.view(f"SELECT id, i FROM {t1} ORDER BY id, i")
    mv2 = shop.view(f"SELECT id FROM {mv1}", "WITH (refresh = 'incremental')")  # few rows: full would be faster
    shown = [row["id"] for row in shop.rows(f"SELECT id FROM {mv1}")]
    assert shown == sorted(shown)
    again = "id + 100, i" if key == "id" else "id, i + 10"
    shop.write(
        f"INSERT INTO {t1} SELECT {again} FROM {t1} WHERE id < 6",
        f"DELETE FROM {t1} WHERE id = 2 AND i < 10",
        f"UPDATE {t1} SET i = i + 50 WHERE id = 3",  # moves in mv1, and changes nothing that mv2 shows
    )
    shop.check(mv1, f"SELECT id, i FROM {t1} ORDER BY id, i")
    found = Counter(row["id"] for row in shop.check(mv2, f"SELECT id FROM {t1}"))
    assert sum(found.values()) == 16 and (key == "id") == (max(found.values()) == 1)
    assert shop.of(mv2)["strategy"] in ("rows", "append")
    late = shop.view(f"SELECT id FROM {mv1}")  # filled from what mv1 is by now
    shop.write(f"DELETE FROM {t1} WHERE id = 1")
    shop.check(late, f"SELECT id FROM {t1}")


def test_a_view_with_reordered_and_missing_columns_reads_history_and_log_alike(shop: Shop) -> None:
    """Jill is in the base of the table, Jack only in its log when the view is filled."""
    people = shop.table(
        "id int PRIMARY KEY, name text, age int, drivers_license_id int",
        "VALUES (30, 'Jill', 30, 2), (31, 'Joe', 44, 3)",
    )
    wait_for(lambda: shop.relation(people).state == "live", f"{people} live")
    shop.write(f"INSERT INTO {people} VALUES (29, 'Jack', NULL, 1)", f"DELETE FROM {people} WHERE id = 31")
    wait_for(lambda: {r["id"] for r in shop.rows(f"SELECT id FROM {people}", fresh=False)} == {29, 30}, "both rows")
    query = f"SELECT drivers_license_id, name, id FROM {people}"
    view = shop.view(query)
    jack, jill = (
        {"drivers_license_id": 1, "name": "Jack", "id": 29},
        {"drivers_license_id": 2, "name": "Jill", "id": 30},
    )
    found = sorted(shop.check(view, query), key=lambda row: row["id"])
    assert found == [jack, jill] and list(found[0]) == ["drivers_license_id", "name", "id"]
    shop.write(f"UPDATE {people} SET age = 31 WHERE id = 30")  # a column that the view does not have
    shop.write(f"UPDATE {people} SET name = 'Jacky', age = 1 WHERE id = 29")
    shop.check(view, query)
    above = shop.view(f"SELECT id, name FROM {view}")
    shop.write(f"UPDATE {people} SET id = 28, name = NULL WHERE id = 30")
    shop.check(above, f"SELECT id, name FROM {people}")


def test_a_fill_blocks_nobody_and_keeps_no_changes_in_memory(shop: Shop) -> None:
    """The input is written all the time: the fill is held while many times the memory that it may take goes by."""
    t = in_spans(shop, "id int PRIMARY KEY, n int, s text", "SELECT i, 0, '' FROM generate_series(1, 300) i", 100)
    total = f"SELECT sum(n) AS n FROM {t}"
    other = shop.view(total)
    with held(WRITTEN, passes=1) as gate:
        view = shop.define(f"SELECT id, n, s FROM {t}", ONE_BY_ONE.replace("span = 2", "span = 100"))
        await_held(gate)
        before = pa.total_allocated_bytes()
        with busy(lambda: shop.write(f"UPDATE {t} SET n = n + 1 WHERE id < 10")):
            for _ in range(30):  # a hundred rows of 10 kB each
                shop.write(f"UPDATE {t} SET s = repeat(md5(random()::text), 300) WHERE id % 3 = 0")
            written = shop.rows(total, fresh=False)[0]["n"]
            wait_for(lambda: shop.rows(total, fresh=False)[0]["n"] > written, "the table goes on")
        assert shop.check(other, total), "and so do the views over it"
        wait_for(lambda: pa.total_allocated_bytes() < before + 8_000_000, "no change is held in memory")
        assert shop.of(view)["state"] == "filling"
    shop.await_filled(view)
    shop.check(view, f"SELECT id, n, s FROM {t}")
