"""Cases with transactions of their own: several changes of a row at once, keys that swap, tables that become empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from support.views.material import Case, Row, Step, Table, table
from support.views.public.building import delete, insert, rekey, together, update

CASES: list[Case] = []

ACCOUNT = table("account", "id int, owner string, balance decimal(12,2)")
PLACE = table("place", "id int, region string")
CUSTOMER = table("customer", "id int, name string")
ORDERED = table("ordered", "id int, customer int, total int")
PAIR = table("pair", "id int, i int, v string", "id, i")
READING = table("reading", "id int, sensor double, value double")
NAMED = table("named", "id int, name string")
MOMENT = table("moment", "id int, at timestamp, day date")
BIG = table("big", "id int, g int, n bigint, exact decimal(38,2)")
PRICE = table("price", "item int, since int, price int", "item, since")
BOUGHT = table("bought", "id int, item int, at int")


def scene(name: str, tables: Mapping[Table, Sequence[Row]], query: str, *steps: Step) -> None:
    CASES.append(Case(name, tables, query, steps))


def money(amount: int) -> Decimal:
    return Decimal(amount).quantize(Decimal("0.01"))


scene(
    "transfers between accounts",
    {ACCOUNT: [(1, "ann", money(100)), (2, "bob", money(50)), (3, "ann", money(0))]},
    "SELECT owner, sum(balance) AS balance, (SELECT sum(balance) FROM account) AS all_balances FROM account "
    "GROUP BY owner",
    update(ACCOUNT, (1, "ann", money(70)), (2, "bob", money(80))),
    update(ACCOUNT, (2, "bob", money(0)), (3, "ann", money(80))),
    update(ACCOUNT, (3, "cyd", money(81))),
)
scene(
    "rows that move between groups",
    {PLACE: [(1, "x"), (2, "x"), (3, "y")]},
    "SELECT region, count(*) AS n FROM place GROUP BY region",
    update(PLACE, (1, "y"), (2, "y")),  # the group x is gone
    update(PLACE, (3, "x")),  # and comes back
    update(PLACE, (1, None)),
)
scene(
    "several changes of one row in a transaction",
    {PLACE: [(1, "x"), (2, "x")]},
    "SELECT region, count(*) AS n, max(id) AS highest FROM place GROUP BY region",
    together(update(PLACE, (1, "y")), update(PLACE, (1, "z")), update(PLACE, (1, "x"))),  # nothing in the end
    together(insert(PLACE, (3, "w")), delete(PLACE, 3)),
    together(delete(PLACE, 2), insert(PLACE, (2, "v"))),
)
scene(
    "a table that becomes empty and full again",
    {PLACE: [(1, "x"), (2, "y")]},
    "SELECT count(*) AS n, min(region) AS first_region, count(DISTINCT region) AS regions FROM place",
    delete(PLACE, 1, 2),
    insert(PLACE, (1, "z")),
)
scene(
    "a table that was empty",
    {PLACE: [], CUSTOMER: [(1, "ann")]},
    "SELECT c.name, p.region FROM customer c LEFT JOIN place p ON p.id = c.id",
    insert(PLACE, (1, "x"), (2, "y")),
    insert(CUSTOMER, (2, "bob"), (3, "cyd")),
)
scene(
    "keys that swap",
    {CUSTOMER: [(1, "ann"), (2, "bob")], ORDERED: [(10, 1, 5), (11, 2, 7), (12, 2, 9)]},
    "SELECT c.id, c.name, o.total FROM customer c JOIN ordered o ON o.customer = c.id",
    together(rekey(CUSTOMER, 1, (0, "ann")), rekey(CUSTOMER, 2, (1, "bob")), rekey(CUSTOMER, 0, (2, "ann"))),
    together(delete(ORDERED, 11), rekey(ORDERED, 10, (11, 1, 5))),  # into the key of a row that went
)
scene(
    "a parent that goes and comes back",
    {CUSTOMER: [(1, "ann"), (2, "bob")], ORDERED: [(10, 1, 5), (11, 1, 7), (12, 2, 9), (13, None, 1)]},
    "SELECT o.id, o.total, c.name FROM ordered o LEFT JOIN customer c ON o.customer = c.id",
    delete(CUSTOMER, 1),
    together(insert(CUSTOMER, (1, "amy")), delete(CUSTOMER, 2)),
)
scene(
    "the last of several matches",
    {CUSTOMER: [(1, "ann"), (2, "bob")], ORDERED: [(10, 1, 5), (11, 1, 7)]},
    "SELECT c.id, o.id AS order_id FROM customer c FULL JOIN ordered o ON o.customer = c.id",
    delete(ORDERED, 10),
    delete(ORDERED, 11),  # now the customer stands alone
    insert(ORDERED, (12, 2, 1), (13, 9, 1)),
)
scene(
    "both sides of a join in one transaction",
    {CUSTOMER: [(1, "ann")], ORDERED: [(10, 1, 5)]},
    "SELECT c.name, count(*) AS n, sum(o.total) AS total FROM customer c JOIN ordered o ON o.customer = c.id "
    "GROUP BY c.name",
    together(insert(CUSTOMER, (2, "bob")), insert(ORDERED, (11, 2, 3), (12, 1, 4))),
    together(update(CUSTOMER, (1, "bob")), update(ORDERED, (11, 1, 8)), delete(ORDERED, 12)),
    together(delete(CUSTOMER, 1), delete(ORDERED, 10)),
    insert(ORDERED, (20, 2, 2)),
)
scene(
    "two aggregates of one table joined",
    {ORDERED: [(1, 1, 5), (2, 1, 9), (3, 2, 7), (4, None, 3)]},
    "SELECT s.customer, s.total, m.biggest "
    "FROM (SELECT customer, sum(total) AS total FROM ordered GROUP BY customer) AS s "
    "JOIN (SELECT customer, max(total) AS biggest FROM ordered GROUP BY customer) AS m ON s.customer = m.customer",
    together(delete(ORDERED, 2), insert(ORDERED, (5, 2, 8))),
    update(ORDERED, (4, 3, 3)),
)
scene(
    "part of the key is not shown",
    {PAIR: [(1, 1, "a"), (1, 2, "a"), (2, 1, "b")]},
    "SELECT id, v FROM pair ORDER BY id",
    together(insert(PAIR, (2, 2, "b"), (3, 1, None)), delete(PAIR, (1, 1))),
    rekey(PAIR, (2, 1), (2, 9, "b")),
    update(PAIR, (1, 2, "c")),
)
scene(
    "join by part of a key",
    {PAIR: [(1, 1, "a"), (1, 2, "b"), (2, 1, "c")], CUSTOMER: [(1, "ann"), (2, "bob")]},
    "SELECT c.name, p.i, p.v FROM pair p JOIN customer c ON c.id = p.id",
    together(rekey(PAIR, (1, 2), (2, 2, "b")), insert(CUSTOMER, (3, "cyd"))),
    insert(PAIR, (3, 1, "d"), (4, 1, "e")),
)
scene(
    "NaN and minus zero",
    {READING: [(1, 0.0, 1.0), (2, -0.0, 2.0), (3, float("nan"), 4.0), (4, float("nan"), 8.0), (5, None, 16.0)]},
    "SELECT sensor, count(*) AS n, max(value) AS highest, sum(value) AS total FROM reading GROUP BY sensor",
    together(delete(READING, 1), insert(READING, (6, float("nan"), float("inf")))),
    update(READING, (2, None, -0.5), (3, 0.0, 4.0)),
)
scene(
    "join by NaN and minus zero",
    {READING: [(1, 0.0, 1.0), (2, -0.0, 2.0), (3, float("nan"), 4.0)], PLACE: [(0, "zero"), (1, "one")]},
    "SELECT r.id, p.region FROM reading r LEFT JOIN place p ON r.sensor = p.id",
    update(READING, (3, -0.0, 4.0)),
    update(PLACE, (0, "nil")),
)
scene(
    "text that looks alike",
    {NAMED: [(1, "Ann"), (2, "ann"), (3, "ann "), (4, ""), (5, None), (6, "é"), (7, "e\u0301")]},
    "SELECT name, count(*) AS n, min(id) AS first_id FROM named GROUP BY name",
    together(update(NAMED, (1, "ann")), delete(NAMED, 4)),
    together(update(NAMED, (5, "")), insert(NAMED, (8, "e\u0301"), (9, None))),
)
scene(
    "dates and moments",
    {
        MOMENT: [
            (1, datetime(2024, 3, 31, 0, 30, tzinfo=UTC), datetime(2024, 3, 31).date()),
            (2, datetime(2024, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(2024, 2, 29).date()),
            (3, None, None),
        ]
    },
    "SELECT year(day) AS y, month(day) AS m, max(unix_micros(at)) AS last_micros, max(day + 1) AS next_day "
    "FROM moment GROUP BY year(day), month(day)",
    insert(MOMENT, (4, datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2024, 2, 1).date())),
    together(delete(MOMENT, 2), update(MOMENT, (3, None, datetime(2025, 1, 1).date()))),
)
scene(
    "numbers near their limits",
    {BIG: [(1, 1, 2**62, Decimal("99999999999999999999999999999999999.99")), (2, 1, -(2**63), Decimal("-0.01"))]},
    "SELECT g, sum(n) AS n, min(exact) AS lowest, max(exact) AS highest, count(exact) AS c FROM big GROUP BY g",
    insert(BIG, (3, 1, 2**62 - 1, None), (4, 2, 2**63 - 1, Decimal("0.00"))),
    update(BIG, (2, 2, -1, Decimal("-99999999999999999999999999999999999.99"))),
)
scene(
    "the price at the time",
    {PRICE: [(1, 0, 10), (1, 5, 12), (2, 0, 7)], BOUGHT: [(1, 1, 3), (2, 1, 5), (3, 2, 9), (4, 3, 1)]},
    "SELECT b.id, max_by(p.price, p.since) AS price "
    "FROM bought b LEFT JOIN price p ON p.item = b.item AND p.since <= b.at "
    "GROUP BY b.id",
    insert(PRICE, (1, 4, 11), (3, 0, 1)),
    together(delete(PRICE, (1, 5)), update(BOUGHT, (1, 1, 8))),
)
scene(
    "a filter that a row passes and leaves",
    {ORDERED: [(1, 1, 5), (2, 1, 50), (3, 2, None)]},
    "SELECT id, total FROM ordered WHERE total > 10",
    update(ORDERED, (1, 1, 15), (2, 1, 5)),
    update(ORDERED, (3, 2, 11), (2, 9, 5)),  # the second is out before and after
    delete(ORDERED, 2),
)
scene(
    "duplicates that are made and taken away",
    {ORDERED: [(1, 1, 5), (2, 1, 5), (3, 1, 5)]},
    "SELECT customer, total FROM ordered",
    delete(ORDERED, 1),
    together(insert(ORDERED, (4, 1, 5), (5, 2, 6)), update(ORDERED, (2, 2, 6))),
)
