"""A small shop: five tables, about 300,000 rows, and a business that never stops. The same in every database."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol, Self

CUSTOMERS = 20_000
PRODUCTS = 1_000
ORDERS = 80_000
ACCOUNTS = 1_000
OPENING_BALANCE = 1_000
TOTAL_BALANCE = ACCOUNTS * OPENING_BALANCE  # transfers move money; none appears or disappears
RATE = 150  # transactions per second of the business
TABLES = ("customers", "products", "orders", "order_items", "accounts")


class Till(Protocol):
    """A session in autocommit mode."""

    def execute(self, query: Any, params: Sequence[Any] = ...) -> Any: ...


class Shop(Protocol):
    """The shop in one kind of database, with its own server."""

    kind: str  # the database, as people call it
    address: str  # a command for the database's own client

    def create(self) -> int:
        """Fills the shop; returns its number of rows."""

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement on a new session."""

    def till(self) -> AbstractContextManager[Till]:
        """A session."""

    def definitions(self, connection: str = "shop") -> str:
        """The statements that copy the shop into the lake."""


def definitions(server: Any, type: str, schema: str, connection: str) -> str:
    """The statements that copy a shop into the lake."""
    tables = "\n".join(
        f"CREATE TABLE {table} FROM CONNECTION {connection} TABLE '{schema}.{table}' "
        f"WITH (backfill.rows_per_span = '50000');"
        for table in TABLES
    )
    return (
        f"CREATE CONNECTION {connection} WITH (\n"
        f"    type='{type}', hostname='{server.host}', port='{server.port}', username='{server.user}',\n"
        f"    password='{server.password}', database.name='{server.database}',\n);\n{tables}\n"
    )


class Business:
    """The shop's business: orders are placed, changed and cancelled, money moves between accounts, all the time.

    Use as a context manager. `transactions` counts the commits; an error is raised at the end of the block.
    """

    def __init__(self, shop: Shop, *, rate: float = RATE, seed: int = 1) -> None:
        self._shop = shop
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
            with self._shop.till() as session:
                while not self._stop.is_set():
                    session.execute("BEGIN")
                    self._pick.choice(steps)(session)
                    session.execute("COMMIT")
                    self.transactions += 1
                    self._stop.wait(self._pick.expovariate(1 / self._pause_s))
        except BaseException as e:
            self._error = e

    def _transfer(self, session: Till) -> None:
        amount = self._pick.randint(1, 5000) / 100
        source, target = self._pick.sample(range(1, ACCOUNTS + 1), 2)
        change = "UPDATE accounts SET balance = balance + CAST(%s AS DECIMAL(12,2)) WHERE id = %s"
        session.execute(change, (f"{-amount:.2f}", source))
        session.execute(change, (f"{amount:.2f}", target))

    def _order(self, session: Till) -> None:
        order, self._next_order = self._next_order, self._next_order + 1
        session.execute(
            "INSERT INTO orders VALUES (%s, %s, 'placed', current_timestamp)", (order, self._pick.randint(1, CUSTOMERS))
        )
        for line in range(1, self._pick.randint(2, 5)):
            sku = f"SKU-{self._pick.randint(1, PRODUCTS):05}"
            session.execute(
                "INSERT INTO order_items SELECT %s, %s, sku, %s, price FROM products WHERE sku = %s",
                (order, line, self._pick.randint(1, 5), sku),
            )
            session.execute("UPDATE products SET stock = stock - 1 WHERE sku = %s", (sku,))

    def _ship(self, session: Till) -> None:
        session.execute("UPDATE orders SET status = 'shipped' WHERE id = %s", (self._some_order(),))

    def _cancel(self, session: Till) -> None:
        order = self._some_order()
        session.execute("DELETE FROM order_items WHERE order_id = %s", (order,))
        session.execute("DELETE FROM orders WHERE id = %s", (order,))

    def _reprice(self, session: Till) -> None:
        sku = f"SKU-{self._pick.randint(1, PRODUCTS):05}"
        session.execute("UPDATE products SET price = round(price * 1.01, 2) WHERE sku = %s", (sku,))

    def _some_order(self) -> int:
        newest = self._next_order - 1
        fresh = newest > ORDERS + 1_000_000 and self._pick.random() < 0.5
        return self._pick.randint(ORDERS + 1_000_000, newest) if fresh else self._pick.randint(1, ORDERS)
