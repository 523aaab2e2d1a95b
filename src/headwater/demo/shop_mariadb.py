"""The shop in MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.demo import shop
from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.demo.shop import ACCOUNTS, CUSTOMERS, OPENING_BALANCE, ORDERS, PRODUCTS, TABLES

SCHEMA = f"""
CREATE TABLE customers (
  id int PRIMARY KEY, name varchar(80) NOT NULL, email varchar(80) NOT NULL, city varchar(40) NOT NULL,
  joined date NOT NULL, note text);
CREATE TABLE products (
  sku varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PRIMARY KEY, title varchar(80) NOT NULL,
  category varchar(20) NOT NULL, price decimal(10,2) NOT NULL, stock int NOT NULL);
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer_id int NOT NULL, status varchar(20) NOT NULL, placed timestamp(6) NOT NULL);
CREATE TABLE order_items (
  order_id bigint, line smallint, sku varchar(20) NOT NULL, quantity int NOT NULL, price decimal(10,2) NOT NULL,
  PRIMARY KEY (order_id, line));
CREATE TABLE accounts (id int PRIMARY KEY, owner varchar(80) NOT NULL, balance decimal(12,2) NOT NULL);
INSERT INTO customers
SELECT seq, concat('Customer ', seq), concat('c', seq, '@example.com'),
       elt(1 + seq % 5, 'Berlin', 'Kyōto', 'Lima', 'Oslo', 'Tunis'), date '2015-01-01' + INTERVAL seq % 4000 DAY,
       CASE WHEN seq % 3 = 0 THEN repeat('likes water ', seq % 7) END
FROM seq_1_to_{CUSTOMERS};
INSERT INTO products
SELECT concat('SKU-', lpad(seq, 5, '0')), concat('Product ', seq),
       elt(1 + seq % 5, 'books', 'garden', 'music', 'tools', 'toys'), round((1 + seq * 7919 % 20000) / 100.0, 2), 1000
FROM seq_1_to_{PRODUCTS};
INSERT INTO orders
SELECT seq, 1 + seq * 7919 % {CUSTOMERS}, elt(1 + seq % 4, 'placed', 'paid', 'shipped', 'delivered'),
       timestamp '2026-01-01 00:00:00' + INTERVAL seq * 97 SECOND
FROM seq_1_to_{ORDERS};
INSERT INTO order_items
SELECT o.seq, l.seq, concat('SKU-', lpad(1 + (o.seq * 31 + l.seq * 17) % {PRODUCTS}, 5, '0')), 1 + (o.seq + l.seq) % 5,
       round((1 + ((o.seq * 31 + l.seq * 17) % {PRODUCTS} + 1) * 7919 % 20000) / 100.0, 2)
FROM seq_1_to_{ORDERS} o JOIN seq_1_to_3 l ON l.seq <= 2 + o.seq % 2;
INSERT INTO accounts SELECT seq, concat('Customer ', seq), {OPENING_BALANCE} FROM seq_1_to_{ACCOUNTS};
"""


class MariaDBShop:
    """`shop.Shop` on an embedded MariaDB."""

    kind = "MariaDB"

    def __init__(self, server: EmbeddedMariaDB) -> None:
        self.server = server
        self.address = (
            f"mariadb -h {server.host} -P {server.port} -u {server.user} -p{server.password} {server.database}"
        )

    def create(self) -> int:
        with self.till() as session:
            for statement in SCHEMA.split(";\n"):
                if statement.strip():
                    session.execute(statement)
        return sum(int(self.execute(f"SELECT count(*) FROM {table}")[0][0]) for table in TABLES)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement)

    @contextmanager
    def till(self) -> Iterator[Any]:
        with self.server.connect() as connection, connection.cursor() as cursor:
            yield cursor

    def definitions(self, connection: str = "shop") -> str:
        return shop.definitions(self.server, "mysql-cdc", self.server.database, connection)
