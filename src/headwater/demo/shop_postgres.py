"""The shop in PostgreSQL."""

from __future__ import annotations

from typing import Any

from headwater.demo import shop
from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.shop import ACCOUNTS, CUSTOMERS, OPENING_BALANCE, ORDERS, PRODUCTS, TABLES

SCHEMA = f"""
CREATE TABLE customers (
  id int PRIMARY KEY, name text NOT NULL, email text NOT NULL, city text NOT NULL, joined date NOT NULL, note text);
CREATE TABLE products (
  sku text COLLATE "C" PRIMARY KEY, title text NOT NULL, category text NOT NULL, price numeric(10,2) NOT NULL,
  stock int NOT NULL);
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer_id int NOT NULL, status text NOT NULL, placed timestamptz NOT NULL);
CREATE TABLE order_items (
  order_id bigint, line smallint, sku text NOT NULL, quantity int NOT NULL, price numeric(10,2) NOT NULL,
  PRIMARY KEY (order_id, line));
CREATE TABLE accounts (id int PRIMARY KEY, owner text NOT NULL, balance numeric(12,2) NOT NULL);

INSERT INTO customers
SELECT i, 'Customer ' || i, 'c' || i || '@example.com', (ARRAY['Berlin', 'Kyōto', 'Lima', 'Oslo', 'Tunis'])[1 + i % 5],
       date '2015-01-01' + i % 4000, CASE WHEN i % 3 = 0 THEN repeat('likes water ', i % 7) END
FROM generate_series(1, {CUSTOMERS}) i;
INSERT INTO products
SELECT 'SKU-' || lpad(i::text, 5, '0'), 'Product ' || i,
       (ARRAY['books', 'garden', 'music', 'tools', 'toys'])[1 + i % 5],
       round((1 + i * 7919 % 20000) / 100.0, 2), 1000
FROM generate_series(1, {PRODUCTS}) i;
INSERT INTO orders
SELECT i, 1 + i * 7919 % {CUSTOMERS}, (ARRAY['placed', 'paid', 'shipped', 'delivered'])[1 + i % 4],
       timestamptz '2026-01-01' + i * interval '97 seconds'
FROM generate_series(1, {ORDERS}) i;
INSERT INTO order_items
SELECT i, l, 'SKU-' || lpad((1 + (i * 31 + l * 17) % {PRODUCTS})::text, 5, '0'), 1 + (i + l) % 5,
       round((1 + ((i * 31 + l * 17) % {PRODUCTS} + 1) * 7919 % 20000) / 100.0, 2)
FROM generate_series(1, {ORDERS}) i, generate_series(1, 2 + i % 2) l;
INSERT INTO accounts SELECT i, 'Customer ' || i, {OPENING_BALANCE} FROM generate_series(1, {ACCOUNTS}) i;
ANALYZE;
"""


class PostgresShop:
    """`shop.Shop` on an embedded PostgreSQL."""

    kind = "PostgreSQL"

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server = server
        self.address = f"psql {server.dsn()}"

    def create(self) -> int:
        with self.server.connect() as session:
            session.execute(SCHEMA)
            return sum(session.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement)

    def till(self) -> Any:
        return self.server.connect(application_name="shop")

    def definitions(self, connection: str = "shop") -> str:
        return shop.definitions(self.server, "postgres-cdc", "public", connection)
