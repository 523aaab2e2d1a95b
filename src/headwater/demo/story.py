"""What the demo shows, in order: a busy database, its lake filling under load, freshness, a query, the proof."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headwater.demo import shop
from headwater.errors import DataError, JobError, MachineError

if TYPE_CHECKING:
    from headwater.engine.results import Result, TableStatus
    from headwater.facade import Headwater

FRESHNESS_PROBES = 10
PROBE_TIMEOUT_S = 30.0
FILL_TIMEOUT_S = 300.0
PROGRESS_S = 0.25

QUERY = """
SELECT p.category, count(DISTINCT i.order_id) AS orders, sum(i.quantity * i.price) AS revenue
FROM order_items i JOIN products p ON p.sku = i.sku
GROUP BY p.category ORDER BY revenue DESC
"""


class Stage(Protocol):
    """Where the demo is shown."""

    def say(self, text: str) -> None: ...

    def done(self, text: str) -> None: ...

    def result(self, result: Result) -> None: ...

    def progress(self, tables: list[TableStatus]) -> None: ...


@contextlib.contextmanager
def open_shop(source: str) -> Iterator[shop.Shop]:
    """A server of this kind, with room for a shop."""
    if source == "mysql":
        from headwater.demo.mariadb import EmbeddedMariaDB
        from headwater.demo.shop_mariadb import MariaDBShop

        with EmbeddedMariaDB(database="shop") as server:
            yield MariaDBShop(server)
    else:
        from headwater.demo.embedded import EmbeddedPostgres
        from headwater.demo.shop_postgres import PostgresShop

        with EmbeddedPostgres(18, database="shop") as postgres:
            yield PostgresShop(postgres)


def tell(stage: Stage, *, source: str = "postgres", home: Path | None = None, keep: bool = False) -> None:
    """Runs the whole demo; with `keep` until the user ends it. Its home is removed unless kept."""
    from headwater.facade import open_home

    started = time.monotonic()
    with _ends_cleanly(), _home(home, keep) as directory, open_shop(source) as server:
        stage.say(f"A {server.kind} server with a small shop in it")
        rows = server.create()
        stage.done(f"{len(shop.TABLES)} tables, {rows:,} rows; orders and transfers keep coming from now on")
        with shop.Business(server) as business, open_home(directory) as hw, hw.running():
            _fill(stage, hw, server, business)
            fresh = _freshness(stage, hw, server)
            stage.say("\nRevenue by category, queried from the lake while the shop keeps writing")
            stage.result(hw.sql(QUERY)[-1])
            _invariant(stage, hw)
            compared = _verify(stage, hw, server)
            stage.say("")
            stage.done(
                f"{rows:,} rows filled under load, {business.transactions:,} transactions meanwhile, fresh in "
                f"{fresh:.2f} s, {compared:,} rows equal to the upstream; {time.monotonic() - started:.0f} s in all"
            )
            if keep:
                _stay(stage, hw, server)


def _fill(stage: Stage, hw: Headwater, server: shop.Shop, business: shop.Business) -> None:
    statements = server.definitions()
    stage.say("\nCopying it into the lake (the shop does not stop)\n")
    stage.say(re.sub(r"password='[^']*'", "password='***'", statements))
    began, before = time.monotonic(), business.transactions
    hw.sql(statements)
    while True:
        tables = list(hw.status().tables)
        stage.progress(tables)
        for table in tables:
            if table.state == "failed":
                raise JobError("job.failed", f"{table.name}: {table.error}", table.hint)
        if tables and all(t.state == "live" for t in tables):
            break
        if time.monotonic() - began > FILL_TIMEOUT_S:
            raise JobError("job.failed", f"the tables were not filled within {FILL_TIMEOUT_S:.0f} s")
        time.sleep(PROGRESS_S)
    stage.done(
        f"all tables live after {time.monotonic() - began:.1f} s; "
        f"the shop made {business.transactions - before:,} transactions meanwhile"
    )


def _freshness(stage: Stage, hw: Headwater, server: shop.Shop) -> float:
    """Seconds from the return of COMMIT to the start of the first SELECT that sees the row: the median."""
    stage.say("\nFreshness: from COMMIT upstream to the SELECT that sees it")
    _value(hw, "SELECT count(*) FROM customers")  # the first query warms up Spark
    times = []
    for i in range(FRESHNESS_PROBES):
        customer = 900_000 + i
        row = f"({customer}, 'Probe', 'p@example.com', 'Here', current_date)"
        server.execute(f"INSERT INTO customers (id, name, email, city, joined) VALUES {row}")
        committed = time.monotonic()
        while True:
            asked = time.monotonic()
            if _value(hw, f"SELECT count(*) FROM customers WHERE id = {customer}"):
                break
            if asked - committed > PROBE_TIMEOUT_S:
                raise JobError("job.failed", f"a committed row was not visible after {PROBE_TIMEOUT_S:.0f} s")
        times.append(asked - committed)
    median = statistics.median(times)
    stage.done(f"median {median:.2f} s, slowest {max(times):.2f} s of {len(times)} rows")
    return median


def _invariant(stage: Stage, hw: Headwater) -> None:
    """Transfers never stop; a cut with half a transfer would show another sum."""
    sums = {_value(hw, "SELECT sum(balance) FROM accounts") for _ in range(5)}
    if sums != {shop.TOTAL_BALANCE}:
        raise DataError("data.differs", f"the balances sum to {sorted(map(str, sums))}, not to {shop.TOTAL_BALANCE}")
    stage.done(f"five reads of the balances during transfers: the sum was always {shop.TOTAL_BALANCE:,}")


def _verify(stage: Stage, hw: Headwater, server: shop.Shop) -> int:
    stage.say(f"\nEvery row of every table against {server.kind}, at one cut, while both keep running")
    found = hw.verify()
    for table in found:
        if not table.equal:
            raise DataError("data.differs", f"{table.table} differs from the upstream", "Please report this as a bug.")
        stage.done(f"{table.table}: {table.upstream_rows:,} rows equal at {table.position} ({table.seconds:.1f} s)")
    return sum(t.upstream_rows for t in found)


def _stay(stage: Stage, hw: Headwater, server: shop.Shop) -> None:
    stage.say(
        f"\nEverything keeps running until Ctrl-C. In other terminals:\n"
        f"  headwater sql --home {hw.home}\n"
        f"  headwater verify --home {hw.home}\n"
        f"  {server.address}"
    )
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)


def _value(hw: Headwater, query: str) -> Any:
    """The one value of a query."""
    rows = hw.sql(query)[-1].rows
    assert rows is not None
    return rows.column(0)[0].as_py()


@contextlib.contextmanager
def _ends_cleanly() -> Iterator[None]:
    """Makes SIGTERM end the demo like Ctrl-C, so that no server is left behind."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _home(given: Path | None, keep: bool) -> Iterator[Path]:
    if given is not None and (given / "meta.db").exists():
        raise MachineError("home.unusable", f"{given} is already in use", "Choose a new directory with --home DIR.")
    home = given or Path(tempfile.mkdtemp(prefix="headwater-demo-"))
    try:
        yield home
    finally:
        if not keep and given is None:
            shutil.rmtree(home, ignore_errors=True)
