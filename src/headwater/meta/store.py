"""Opens meta and runs transactions on it: SQLite in the home by default, PostgreSQL by URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from headwater.errors import MachineError, Retry, disk_full
from headwater.meta import tables
from headwater.ownership import lease
from headwater.ownership.lease import Lease
from headwater.ownership.names import Name

BUSY_TIMEOUT_S = 30  # three writers never wait this long; longer means a stuck process
WRITE_LOCK = 0x6865616477  # the advisory lock of meta's writers on PostgreSQL


def _control_of_backfills(c: Connection) -> None:
    for column in ("control TEXT NOT NULL DEFAULT ''", "block BIGINT NOT NULL DEFAULT 0"):
        c.exec_driver_sql(f"ALTER TABLE relation ADD COLUMN {column}")
    c.exec_driver_sql("ALTER TABLE relation ADD COLUMN replaces BIGINT NOT NULL DEFAULT 0")
    c.exec_driver_sql("ALTER TABLE relation ADD COLUMN rows_estimate BIGINT NOT NULL DEFAULT -1")
    tables.retired_segment.create(c)
    c.exec_driver_sql("ALTER TABLE span ADD COLUMN joined INTEGER NOT NULL DEFAULT 1")
    c.exec_driver_sql("CREATE INDEX span_progress ON span (relation_id, state, ordinal, rows, log_index, joined)")


def _counted_notices(c: Connection) -> None:
    c.exec_driver_sql("ALTER TABLE relation ADD COLUMN counted_index BIGINT NOT NULL DEFAULT 0")


def _renamed_notices(c: Connection) -> None:
    """Renames the notice for unrepresentable values as the code does."""
    renamed = sa.update(tables.notice).where(tables.notice.c.code == "value.unkept")
    c.execute(renamed.values(code="value.unrepresentable"))


def _schema_versions(c: Connection) -> None:
    """Adds versions of columns; the base that a run was made for; the time of a segment's oldest change."""
    for table in ("relation", "run"):
        c.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN schema_version INTEGER NOT NULL DEFAULT 1")
    c.exec_driver_sql("ALTER TABLE run ADD COLUMN base_index BIGINT NOT NULL DEFAULT -1")
    c.exec_driver_sql("ALTER TABLE segment ADD COLUMN oldest_at FLOAT")


def _named_leases(c: Connection) -> None:
    """A capture's lease has the name of its connection. Fences continue, and nobody waits for a lease to expire."""
    for name in list(c.execute(sa.select(tables.lease.c.name)).scalars()):
        kind, _, id = name.partition(":")
        new = str(Name.connection(int(id))) if kind == "capture" else name
        c.execute(sa.update(tables.lease).where(tables.lease.c.name == name).values(name=new, expires_at=0.0))


def _known_lake(c: Connection) -> None:
    c.exec_driver_sql("ALTER TABLE home ADD COLUMN lake TEXT")


def _folded_runs(c: Connection) -> None:
    c.exec_driver_sql("ALTER TABLE run ADD COLUMN folded INTEGER NOT NULL DEFAULT 0")


def _views(c: Connection) -> None:
    c.exec_driver_sql("ALTER TABLE run ADD COLUMN before_path TEXT NOT NULL DEFAULT ''")
    for table in (tables.view, tables.barrier, tables.version, tables.refresh, tables.plain_view):
        table.create(c)


def _replaced_views(c: Connection) -> None:
    c.exec_driver_sql("ALTER TABLE relation ADD COLUMN replaced_by BIGINT NOT NULL DEFAULT 0")
    if "input_replaced" not in {x["name"] for x in sa.inspect(c).get_columns("view")}:  # `_views` makes today's table
        c.exec_driver_sql("ALTER TABLE view ADD COLUMN input_replaced INTEGER NOT NULL DEFAULT 0")


# version → what migrates a home of that version to the next one
MIGRATIONS: dict[int, Callable[[Connection], None]] = {
    1: _control_of_backfills,
    2: _counted_notices,
    3: _renamed_notices,
    4: _schema_versions,
    5: _named_leases,
    6: _known_lake,
    7: _folded_runs,
    8: _views,
    9: _replaced_views,
}


class Meta:
    """The meta database. `read()` sees one snapshot; `write()` holds the write lock from its first statement."""

    def __init__(self, url: str, *, create: bool = True) -> None:
        """Opens meta and migrates it if needed; without `create` it must exist."""
        self.url = url
        self._engine = _engine(url)
        self._prepare(create)

    def __reduce__(self) -> tuple[object, ...]:
        return (Meta, (self.url,))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction: everything in it is from one moment."""
        with _translated(), self._engine.connect() as c, c.begin():
            yield c

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction: commits at the end, rolls back if the block raises.

        If the commit's response is lost, nobody knows whether it happened: what is written must be conditional on
        the previous state, so that it can be retried.
        """
        with _translated(), self._engine.connect().execution_options(write=True) as c, c.begin():
            yield c

    @contextmanager
    def owned(self, owned: Lease) -> Iterator[Connection]:
        """A write transaction of an owner: FencedError unless the lease is still its own, which this renews."""
        asked_at = lease.clock()
        with self.write() as c:
            lease.renew(c, owned)
            yield c
        owned.renewed(asked_at)

    def _prepare(self, create: bool) -> None:
        with self.read() as c:  # every command opens the home: it must not wait for, nor hold up, a writer
            known = sa.inspect(c).has_table("home")
            if known and c.execute(sa.select(tables.home.c.version)).scalar() == tables.VERSION:
                return
        if not known and not create:
            raise MachineError(
                "home.missing",
                "meta is empty: nothing was ever defined in it",
                "Correct the setting meta.url, or run `headwater run FILE.sql`, which creates a home.",
            )
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
                    f"the home has format {version}, this Headwater supports up to {tables.VERSION}",
                    "Install the Headwater that wrote it, or a newer one.",
                )
            for step in range(version, tables.VERSION):
                MIGRATIONS[step](c)
            c.execute(sa.update(tables.home).values(version=tables.VERSION))


@contextmanager
def _translated() -> Iterator[None]:
    """Translates the database's own failures into our errors; a mistake in a statement is raised unchanged."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.PendingRollbackError) as e:
        text = str(e.orig if isinstance(e, sa.exc.DBAPIError) else e).strip().splitlines()[0]
        raise _refusal(text) from e
    except sa.exc.DatabaseError as e:
        if not any(words in str(e.orig) for words in ("not a database", "malformed")):
            raise
        raise MachineError(
            "meta.unreachable",
            f"meta cannot be read: {e.orig}",
            "Restore meta.db from a backup; if this directory is not a home, choose another with --home.",
        ) from e


def _refusal(text: str) -> MachineError:
    if "locked" in text or "busy" in text:
        return MachineError(
            "meta.busy",
            f"meta did not answer within {BUSY_TIMEOUT_S} s",
            "End the process that holds the meta database open in a transaction.",
            Retry.AUTO,
        )
    if "full" in text or "disk I/O" in text:
        return disk_full(f"meta: {text}")
    hint = "Start its database, or correct the setting meta.url; a running server retries."
    return MachineError("meta.unreachable", f"meta does not answer: {text}", hint, Retry.AUTO)


# One writer at a time, as on SQLite; and what is committed is on disk, whatever the server's or role's settings.
_FIRST = f"""
SELECT pg_advisory_xact_lock({WRITE_LOCK}), CASE WHEN current_setting('synchronous_commit') = 'off'
THEN set_config('synchronous_commit', 'on', true) END
"""


def _postgres_engine(url: str) -> Engine:
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)

    @sa.event.listens_for(engine, "begin")
    def _begin(c: Connection) -> None:
        if c.get_execution_options().get("write"):
            c.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED")
            c.exec_driver_sql(_FIRST)
        else:
            c.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @sa.event.listens_for(engine, "commit")
    def _commit(c: Connection) -> None:
        c.exec_driver_sql("COMMIT")

    @sa.event.listens_for(engine, "rollback")
    def _rollback(c: Connection) -> None:
        if not c.invalidated:  # otherwise the database is gone, and the transaction with it
            c.exec_driver_sql("ROLLBACK")

    return engine


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite"):
        return _postgres_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
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
