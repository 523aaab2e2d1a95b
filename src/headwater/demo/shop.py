"""A small shop in PostgreSQL: five tables, about 300,000 rows, and business that never stops."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Any, Self

from headwater.demo.embedded import EmbeddedPostgres

CUSTOMERS = 20_000
PRODUCTS = 1_000
ORDERS = 80_000
ACCOUNTS = 1_000
OPENING_BALANCE = 1_000
TOTAL_BALANCE = ACCOUNTS * OPENING_BALANCE  # transfers move money, none appears or disappears
RATE = 150  # transactions per second of the business
TABLES = ("customers", "products", "orders", "order_items", "accounts")

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


def create(server: EmbeddedPostgres) -> int:
    """Fills the shop; returns how many rows it has."""
    with server.connect() as connection:
        connection.execute(SCHEMA)
        counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES]
    return sum(counts)


def definitions(server: EmbeddedPostgres, *, connection: str = "shop") -> str:
    """The statements that bring the shop into the lake."""
    tables = "\n".join(
        f"CREATE TABLE {table} FROM CONNECTION {connection} TABLE 'public.{table}' "
        f"WITH (backfill.rows_per_span = '50000');"
        for table in TABLES
    )
    return (
        f"CREATE CONNECTION {connection} WITH (\n"
        f"    type='postgres-cdc', hostname='{server.host}', port='{server.port}', username='{server.user}',\n"
        f"    password='{server.password}', database.name='{server.database}',\n);\n{tables}\n"
    )


class Business:
    """The shop's day: orders are placed, changed and cancelled, money moves between accounts, all the time.

    Use as a context manager. `transactions` counts what was committed; an error ends the block with it.
    """

    def __init__(self, server: EmbeddedPostgres, *, rate: float = RATE, seed: int = 1) -> None:
        self._server = server
        self._pause_s = 1 / rate
        self._pick = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="shop business", daemon=True)
        self._next_order = ORDERS + 1_000_000
        self._error: BaseException | None = None
        self.transactions = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)
        if self._error is not None and kind is None:
            raise self._error

    def _work(self) -> None:
        steps = [self._transfer] * 4 + [self._order] * 3 + [self._ship] * 2 + [self._cancel, self._reprice]
        try:
            with self._server.connect(application_name="shop") as session:
                while not self._stop.is_set():
                    with session.transaction():
                        self._pick.choice(steps)(session)
                    self.transactions += 1
                    self._stop.wait(self._pick.expovariate(1 / self._pause_s))
        except BaseException as e:
            self._error = e

    def _transfer(self, session: Any) -> None:
        amount = self._pick.randint(1, 5000) / 100
        source, target = self._pick.sample(range(1, ACCOUNTS + 1), 2)
        change = "UPDATE accounts SET balance = balance + %s::numeric(12,2) WHERE id = %s"
        session.execute(change, (f"{-amount:.2f}", source))
        session.execute(change, (f"{amount:.2f}", target))

    def _order(self, session: Any) -> None:
        order, self._next_order = self._next_order, self._next_order + 1
        session.execute(
            "INSERT INTO orders VALUES (%s, %s, 'placed', now())", (order, self._pick.randint(1, CUSTOMERS))
        )
        for line in range(1, self._pick.randint(2, 5)):
            sku = f"SKU-{self._pick.randint(1, PRODUCTS):05}"
            session.execute(
                "INSERT INTO order_items SELECT %s, %s, sku, %s, price FROM products WHERE sku = %s",
                (order, line, self._pick.randint(1, 5), sku),
            )
            session.execute("UPDATE products SET stock = stock - 1 WHERE sku = %s", (sku,))

    def _ship(self, session: Any) -> None:
        session.execute("UPDATE orders SET status = 'shipped' WHERE id = %s", (self._some_order(),))

    def _cancel(self, session: Any) -> None:
        order = self._some_order()
        session.execute("DELETE FROM order_items WHERE order_id = %s", (order,))
        session.execute("DELETE FROM orders WHERE id = %s", (order,))

    def _reprice(self, session: Any) -> None:
        sku = f"SKU-{self._pick.randint(1, PRODUCTS):05}"
        session.execute("UPDATE products SET price = round(price * 1.01, 2) WHERE sku = %s", (sku,))

    def _some_order(self) -> int:
        newest = self._next_order - 1
        fresh = newest > ORDERS + 1_000_000 and self._pick.random() < 0.5
        return self._pick.randint(ORDERS + 1_000_000, newest) if fresh else self._pick.randint(1, ORDERS)
