"""The demo's shop: enough rows, business that goes on, and a sum that stays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.demo import shop
from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.demo.shop_mariadb import MariaDBShop
from headwater.demo.shop_postgres import PostgresShop

pytestmark = [pytest.mark.postgres, pytest.mark.mariadb]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(18, database="shop") as server:
        yield server


def test_the_shop_is_filled_and_its_business_keeps_the_sum(server: EmbeddedPostgres) -> None:
    assert 250_000 < PostgresShop(server).create() < 350_000
    with shop.Business(PostgresShop(server), rate=1000) as business, server.connect() as session:
        while business.transactions < 200:
            assert session.execute("SELECT sum(balance) FROM accounts").fetchone() == (shop.TOTAL_BALANCE,)
    orphans = "SELECT count(*) FROM order_items i LEFT JOIN orders o ON o.id = i.order_id WHERE o.id IS NULL"
    assert server.execute(orphans) == [(0,)]


def test_an_error_of_the_business_is_not_swallowed(server: EmbeddedPostgres) -> None:
    server.execute("CREATE DATABASE empty")
    server.database, before = "empty", server.database
    try:
        with pytest.raises(Exception, match="does not exist"), shop.Business(PostgresShop(server)) as business:
            business._thread.join(20)
    finally:
        server.database = before


def test_the_definitions_name_every_table(server: EmbeddedPostgres) -> None:
    text = PostgresShop(server).definitions()
    assert all(f"CREATE TABLE {table} FROM CONNECTION shop" in text for table in shop.TABLES)
    assert f"port='{server.port}'" in text


def test_the_same_shop_stands_in_mariadb() -> None:
    with EmbeddedMariaDB(database="shop") as server:
        there = MariaDBShop(server)
        assert 250_000 < there.create() < 350_000
        with shop.Business(there, rate=1000) as business:
            while business.transactions < 200:
                assert there.execute("SELECT sum(balance) FROM accounts") == [(shop.TOTAL_BALANCE,)]
