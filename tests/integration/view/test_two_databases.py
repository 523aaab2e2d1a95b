"""Views over tables of PostgreSQL and of MySQL or MariaDB: one epoch for both, under random changes of both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support import turns, upstreams
from support.lake import definitions
from support.shop import Shop
from support.upstreams import Mysql

pytestmark = [pytest.mark.slow, turns.TAKEN, pytest.mark.timeout(1200)]

STEPS = 2
QUERIES = {
    "rows_of_both": "SELECT p.name, c.name AS city, c.size FROM person p JOIN city c ON p.city = c.id",
    "left_rows": "SELECT p.id, p.name, c.name AS city FROM person p LEFT JOIN city c ON p.city = c.id AND c.size > 3",
    "sums": "SELECT c.name, count(*) AS n, sum(p.money) AS money FROM person p JOIN city c ON p.city = c.id "
    "GROUP BY c.name",
    "largest": "SELECT p.city, max(c.size) AS size, min(p.money) AS least, count(DISTINCT c.name) AS names "
    "FROM person p FULL JOIN city c ON p.city = c.id GROUP BY p.city",
    "names_of_both": "SELECT name FROM person UNION SELECT name FROM city",
    "empty_cities": "SELECT id, name FROM city c WHERE NOT EXISTS (SELECT 1 FROM person p WHERE p.city = c.id)",
}


@dataclass(frozen=True, slots=True)
class Two:
    """The shop's PostgreSQL has persons, the other database their cities."""

    shop: Shop
    other: Mysql

    def write(self, chance: random.Random) -> None:
        """A transaction in each database, or in one."""
        which = chance.choice(("both", "both", "person", "city"))
        if which != "city":
            self.shop.write(*(self.person(chance) for _ in range(chance.randrange(1, 6))))
        if which != "person":
            with self.other.session() as run:
                for statement in ("BEGIN", *(self.city(chance) for _ in range(chance.randrange(1, 5))), "COMMIT"):
                    run(statement)

    @staticmethod
    def person(chance: random.Random) -> str:
        id, city = chance.randrange(1, 40), chance.choice(["NULL", *map(str, range(1, 12))])
        money = chance.choice(["NULL", f"{chance.randrange(900) / 100}"])
        return chance.choice(
            (
                f"INSERT INTO person VALUES ({id}, 'p{id % 7}', {city}, {money}) "
                f"ON CONFLICT (id) DO UPDATE SET money = {money}",
                f"UPDATE person SET city = {city}, money = {money} WHERE id = {id}",
                f"UPDATE person SET id = {id + 100} WHERE id = {id} AND {id + 100} NOT IN (SELECT id FROM person)",
                f"DELETE FROM person WHERE id = {id}",
            )
        )

    @staticmethod
    def city(chance: random.Random) -> str:
        id, size = chance.randrange(1, 12), chance.choice(["NULL", str(chance.randrange(8))])
        return chance.choice(
            (
                f"INSERT INTO city VALUES ({id}, 'c{id % 5}', {size}) ON DUPLICATE KEY UPDATE size = {size}",
                f"UPDATE city SET name = 'c{chance.randrange(5)}', size = {size} WHERE id = {id}",
                f"UPDATE IGNORE city SET id = id + 20 WHERE id = {id} AND id < 10",
                f"DELETE FROM city WHERE id = {id}",
            )
        )


@pytest.fixture
def two(shop: Shop, request: pytest.FixtureRequest) -> Iterator[Two]:
    """Both tables with rows, followed."""
    kind = request.param
    other = upstreams.fresh(request, kind)
    shop.write("DROP TABLE IF EXISTS person")
    shop.write("CREATE TABLE person (id bigint PRIMARY KEY, name text, city bigint, money numeric(10,2))")
    shop.write("INSERT INTO person SELECT i, 'p' || i % 7, i % 10, i FROM generate_series(1, 30) i")
    other.execute("CREATE TABLE city (id bigint PRIMARY KEY, name varchar(40), size int)")
    other.fill("city", 9, "i, concat('c', i % 5), i")
    shop.hw.sql("CREATE TABLE person FROM CONNECTION pg")
    shop.hw.sql(definitions(other.database, ["city"], connection="other", type=kind.type))
    yield Two(shop, other)
    shop.hw.sql("DROP CONNECTION other CASCADE")  # the views too
    shop.hw.sql("DROP TABLE person")


@pytest.mark.parametrize("two", upstreams.FAMILY, indirect=True, ids=lambda kind: kind.name)
def test_views_over_two_databases_equal_their_queries_under_changes_of_both(two: Two) -> None:
    chance = random.Random(upstreams.new_seed())
    for name, query in QUERIES.items():
        two.shop.hw.sql(f"CREATE MATERIALIZED VIEW {name} WITH (refresh = 'incremental') AS {query}")
    two.shop.hw.sql("CREATE MATERIALIZED VIEW above AS SELECT name, money FROM sums WHERE n > 1")
    two.shop.await_filled(*QUERIES, "above")
    for _ in range(STEPS):
        two.write(chance)
        for name, query in QUERIES.items():
            two.shop.check(name, query)
        two.shop.check("above", f"SELECT name, money FROM ({QUERIES['sums']}) WHERE n > 1")
    assert {v.table for v in two.shop.hw.verify() if v.equal} >= {*QUERIES, "above", "person", "city"}
