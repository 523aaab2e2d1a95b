"""What benchmarks of a whole server share: a table to fill, a running home, waiting for it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headwater
from headwater.demo.embedded import EmbeddedPostgres

TABLE = """CREATE TABLE load (id bigint PRIMARY KEY, customer int, ordered timestamptz, amount numeric(12,2),
status smallint, note text, paid boolean)"""
FILL = """INSERT INTO load SELECT g, g % 1000, '2024-01-01'::timestamptz + g * interval '1 s', g % 100000 / 100.0,
g % 5, 'order number ' || g, g % 2 = 0 FROM generate_series(1, {}) g"""


def connection(pg: EmbeddedPostgres) -> str:
    """The statement that connects a home to the server."""
    return (
        f"CREATE CONNECTION pg WITH (type='postgres-cdc', hostname='{pg.host}', port='{pg.port}', "
        f"username='{pg.user}', password='{pg.password}', database.name='{pg.database}');\n"
    )


@contextmanager
def running(pg: EmbeddedPostgres, settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A new home with a running server and a connection."""
    with (
        TemporaryDirectory(prefix="headwater-bench-") as folder,
        headwater.open(Path(folder), settings=settings) as hw,
        hw.running(),
    ):
        hw.sql(connection(pg))
        yield hw


def wait_live(hw: Any) -> float:
    """Seconds until every table is live."""
    began = time.monotonic()
    while not all(t.state == "live" for t in hw.status().tables):
        time.sleep(0.05)
    return time.monotonic() - began
