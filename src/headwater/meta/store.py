"""Opens meta and runs transactions on it: SQLite in the home by default, PostgreSQL by URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from headwater.errors import MachineError
from headwater.meta import tables

BUSY_TIMEOUT_S = 30  # three writers never wait this long; longer means a stuck process

# version → what brings a home of that version to the next one
MIGRATIONS: dict[int, Callable[[Connection], None]] = {}


class Meta:
    """The meta database. `read()` sees one snapshot; `write()` holds the write lock from its first statement."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _engine(url)
        self._prepare()

    def __reduce__(self) -> tuple[object, ...]:
        return (Meta, (self.url,))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction: everything in it is of one moment."""
        with self._engine.connect() as c:
            c.info["write"] = False
            with c.begin():
                yield c

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction: commits at the end, rolls back when the block raises."""
        try:
            with self._engine.connect().execution_options(write=True) as c, c.begin():
                yield c
        except sa.exc.OperationalError as e:
            if "locked" in str(e.orig) or "busy" in str(e.orig):
                raise MachineError(
                    "meta.busy",
                    f"meta did not answer within {BUSY_TIMEOUT_S} s",
                    "End the process that holds the meta database open in a transaction.",
                ) from e
            raise

    def _prepare(self) -> None:
        with self.write() as c:
            tables.home.create(c, checkfirst=True)
            version = c.execute(sa.select(tables.home.c.version)).scalar()
            if version is None:
                tables.metadata.create_all(c)
                c.execute(sa.insert(tables.home).values(version=tables.VERSION))
                return
            if version > tables.VERSION:
                raise MachineError(
                    "home.newer",
                    f"the home has format {version}, this Headwater knows up to {tables.VERSION}",
                    "Install the Headwater that wrote it, or a newer one.",
                )
            for step in range(version, tables.VERSION):
                MIGRATIONS[step](c)
            c.execute(sa.update(tables.home).values(version=tables.VERSION))


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        return sa.create_engine(url, isolation_level="REPEATABLE READ", pool_pre_ping=True)
    engine = sa.create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}, poolclass=sa.pool.QueuePool
    )

    @sa.event.listens_for(engine, "connect")
    def _configure(raw: Any, _record: Any) -> None:
        raw.isolation_level = None  # pysqlite's own BEGIN handling would start a read that cannot become a write
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA synchronous = FULL")

    @sa.event.listens_for(engine, "begin")
    def _begin(c: Connection) -> None:
        c.exec_driver_sql("BEGIN IMMEDIATE" if c.get_execution_options().get("write") else "BEGIN")

    return engine
