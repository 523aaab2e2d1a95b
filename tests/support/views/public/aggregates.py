"""Aggregates: groups that come, shrink and vanish, values that are taken back, NULL as a group and as a value."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from support.views.material import table
from support.views.public.building import cases, delete, insert, rekey, together, update

SALE = table(
    "sale",
    "id int, store string, item string, qty int, amount decimal(9,2), rate double, paid boolean, at timestamp_ntz",
)


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2024, 5, 1, hour, minute)


SALES = {
    SALE: [
        (1, "north", "tea", 3, Decimal("9.30"), 0.5, True, at(8)),
        (2, "north", "tea", 1, Decimal("3.10"), 0.25, False, at(8, 20)),
        (3, "north", "mug", None, None, None, None, at(9)),
        (4, "south", "mug", 2, Decimal("15.00"), 1.5, True, at(9, 5)),
        (5, None, "tea", 5, Decimal("15.50"), 2.0, True, at(9, 50)),
        (6, None, None, 0, Decimal("0.00"), 0.0, False, at(10)),
        (7, "east", "pot", 1, Decimal("40.00"), 4.0, None, at(11)),
    ]
}
TRADE = [
    insert(
        SALE,
        (8, "south", "mug", 2, Decimal("15.00"), 1.5, False, at(9, 10)),
        (9, "west", "tea", 1, None, None, None, at(12)),
    ),
    together(
        delete(SALE, 7), update(SALE, (1, "north", "tea", 2, Decimal("6.20"), 0.75, True, at(8)))
    ),  # a group vanishes
    together(update(SALE, (4, None, "pot", 4, Decimal("30.00"), 3.5, False, at(10, 30))), delete(SALE, 6)),  # it moves
    together(
        rekey(SALE, 2, (20, "north", "tea", -1, Decimal("-3.10"), 0.125, False, at(8, 40))),
        insert(
            SALE,
            (10, "east", "mug", 7, Decimal("52.50"), 7.0, True, at(13)),
            (11, "north", "mug", None, None, None, None, at(9)),
        ),
    ),
    update(SALE, (3, "north", "mug", 6, Decimal("45.00"), 6.5, True, at(9))),  # NULL becomes a value
]

OF_SALES = {
    "count of all rows": "SELECT count(*) AS n FROM sale",
    "count of values": "SELECT store, count(qty) AS with_qty, count(*) AS n FROM sale GROUP BY store",
    "sum of integers": "SELECT store, sum(qty) AS qty FROM sale GROUP BY store",
    "sum of decimals": "SELECT store, sum(amount) AS amount FROM sale GROUP BY store",
    "sum of doubles": "SELECT store, sum(rate) AS rate FROM sale GROUP BY store",
    "average": "SELECT item, avg(amount) AS mean, avg(qty) AS mean_qty FROM sale GROUP BY item",
    "global aggregates": (
        "SELECT count(*) AS n, sum(amount) AS amount, min(qty) AS least, max(qty) AS most, avg(rate) AS rate FROM sale"
    ),
    "global aggregates over what may be nothing": (
        "SELECT count(*) AS n, sum(qty) AS qty FROM sale WHERE store = 'west'"
    ),
    "minimum and maximum": "SELECT store, min(amount) AS lowest, max(amount) AS highest FROM sale GROUP BY store",
    "minimum of text": "SELECT item, min(store) AS first_store, max(at) AS last_time FROM sale GROUP BY item",
    "aggregate of an expression": "SELECT store, sum(qty * amount) AS weighted FROM sale GROUP BY store",
    "expression of aggregates": (
        "SELECT store, sum(amount) / nullif(sum(qty), 0) AS unit_price, count(*) * 10 AS tens FROM sale GROUP BY store"
    ),
    "group by an expression": "SELECT qty % 2 AS odd, count(*) AS n FROM sale GROUP BY qty % 2",
    "group by two columns": "SELECT store, item, count(*) AS n, sum(qty) AS qty FROM sale GROUP BY store, item",
    "group by a column that is not shown": "SELECT sum(amount) AS amount, count(*) AS n FROM sale GROUP BY item",
    "group by everything": "SELECT store, item, qty, count(*) AS n FROM sale GROUP BY ALL",
    "having a count": "SELECT store, count(*) AS n FROM sale GROUP BY store HAVING count(*) > 1",
    "having an aggregate that is not shown": "SELECT item FROM sale GROUP BY item HAVING sum(qty) >= 3",
    "having on a global aggregate": "SELECT sum(qty) AS qty FROM sale HAVING count(*) > 7",
    "distinct rows": "SELECT DISTINCT store, item FROM sale",
    "distinct of an expression": "SELECT DISTINCT upper(item) AS item, qty > 1 AS many FROM sale",
    "count of distinct values": "SELECT store, count(DISTINCT item) AS items FROM sale GROUP BY store",
    "sum and average of distinct values": (
        "SELECT item, sum(DISTINCT qty) AS qty, avg(DISTINCT qty) AS mean FROM sale GROUP BY item"
    ),
    "distinct and plain aggregates together": (
        "SELECT store, count(DISTINCT item) AS items, count(DISTINCT qty) AS qtys, sum(amount) AS amount, count(*) AS "
        "n FROM sale GROUP BY store"
    ),
    "aggregates with filters": (
        "SELECT store, count(*) FILTER (WHERE paid) AS paid, sum(amount) FILTER (WHERE NOT paid) AS open FROM sale "
        "GROUP BY store"
    ),
    "distinct aggregate with a filter": (
        "SELECT item, count(DISTINCT store) FILTER (WHERE qty > 1) AS stores FROM sale GROUP BY item"
    ),
    "count of what holds": "SELECT store, count_if(paid) AS paid, count_if(qty > 1) AS many FROM sale GROUP BY store",
    "every and some": "SELECT item, bool_and(paid) AS every_paid, bool_or(paid) AS some_paid FROM sale GROUP BY item",
    "value at the maximum": "SELECT store, max_by(item, (amount, id)) AS item FROM sale GROUP BY store",
    "spread of values": (
        "SELECT store, round(stddev_pop(rate), 6) AS spread, round(var_samp(rate), 6) AS variance FROM sale GROUP BY "
        "store"
    ),
    "sorted list of values": (
        "SELECT store, sort_array(collect_list(item)) AS items, sort_array(collect_set(qty)) AS qtys FROM sale GROUP "
        "BY store"
    ),
    "median": "SELECT item, median(qty) AS middle FROM sale GROUP BY item",
    "text of a group": (
        "SELECT store, listagg(item, ',') WITHIN GROUP (ORDER BY item) AS items FROM sale GROUP BY store"
    ),
    "bits": "SELECT store, bit_or(qty) AS bits, bit_xor(qty) AS parity FROM sale GROUP BY store",
    "case inside aggregates": (
        "SELECT store, sum(CASE WHEN item = 'tea' THEN qty ELSE 0 END) AS tea, sum(CASE WHEN item = 'mug' THEN qty "
        "END) AS mugs FROM sale GROUP BY store"
    ),
    "grouping sets": (
        "SELECT store, item, sum(qty) AS qty, grouping_id(store, item) AS kind FROM sale GROUP BY GROUPING SETS "
        "((store, item), (store), ())"
    ),
    "rollup": "SELECT store, item, count(*) AS n, grouping(item) AS total FROM sale GROUP BY ROLLUP (store, item)",
    "cube": "SELECT store, paid, count(*) AS n FROM sale GROUP BY CUBE (store, paid)",
    "pivot": (
        "SELECT store, tea, mug FROM (SELECT store, item, qty FROM sale) AS s PIVOT (sum(qty) FOR item IN ('tea' AS "
        "tea, 'mug' AS mug))"
    ),
    "unpivot": (
        "SELECT id, measure, value FROM (SELECT id, qty, CAST(amount AS INT) AS whole FROM sale) AS s UNPIVOT (value "
        "FOR measure IN (qty, whole))"
    ),
    "aggregate of an aggregate": (
        "SELECT n, count(*) AS stores FROM (SELECT store, count(*) AS n FROM sale GROUP BY store) AS s GROUP BY n"
    ),
    "maximum of sums": "SELECT max(qty) AS most FROM (SELECT item, sum(qty) AS qty FROM sale GROUP BY item) AS s",
    "filter over an aggregate": (
        "SELECT store, n FROM (SELECT store, count(*) AS n FROM sale GROUP BY store) AS s WHERE n >= 2"
    ),
    "distinct over an aggregate": "SELECT DISTINCT n FROM (SELECT item, count(*) AS n FROM sale GROUP BY item) AS s",
    "tumbling windows": (
        "SELECT w.start AS starts, n, qty FROM (SELECT window(at, '1 hour') AS w, count(*) AS n, sum(qty) AS qty FROM "
        "sale GROUP BY window(at, '1 hour')) AS s"
    ),
    "hopping windows": (
        "SELECT w.start AS starts, store, n FROM (SELECT window(at, '2 hours', '1 hour') AS w, store, count(*) AS n "
        "FROM sale GROUP BY window(at, '2 hours', '1 hour'), store) AS s"
    ),
    "windows of their own by truncation": (
        "SELECT date_trunc('HOUR', at) AS hour, sum(amount) AS amount FROM sale GROUP BY date_trunc('HOUR', at)"
    ),
}

CASES = cases(SALES, TRADE, OF_SALES)
