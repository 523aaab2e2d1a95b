"""A home with a running server over real databases, for tests of views: write upstream, compare in one statement."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

import headwater
from headwater import crash
from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from headwater.meta import connections, epochs, relations, views
from headwater.meta.views import Fill
from headwater.model import ConnectionInfo, RelationInfo
from headwater.relation.schema import quoted
from headwater.source.connected import passed
from support.lake import definitions
from support.view_moves import unlike
from support.wait import wait_for

_numbers = itertools.count(1)


class Shop:
    """A home with a running server over one PostgreSQL database."""

    def __init__(self, hw: Any, upstream: Any) -> None:
        self.hw = hw
        self.upstream = upstream
        self._writing = threading.Lock()
        self._written = ""  # a position after the last transaction of `write`

    def write(self, *statements: str) -> None:
        """Runs the statements in one transaction of the upstream; any thread may."""
        with self._writing:
            with self.upstream.transaction():
                for statement in statements:
                    self.upstream.execute(statement)
            self.note_written()

    def note_written(self) -> None:
        """Lets fresh statements wait for all that has been written upstream by now."""
        after = self.upstream.execute("SELECT pg_logical_emit_message(true, 'written', '')").fetchone()
        self._written = str(after[0])

    def await_published(self) -> None:
        """Waits until an epoch has what `write` has written: a fresh statement waits for no more than is published."""
        target = self._written  # others may write meanwhile

        def captured() -> list[ConnectionInfo]:
            with self.hw._home.meta.read() as c:
                found = connections.find(c, "pg")
            assert found is not None
            return [found] if passed(found.type, found.position, target) else []

        def published() -> bool:
            with self.hw._home.meta.read() as c:
                newest = epochs.newest(c)
            return newest is not None and newest.index_of(connection.id) >= connection.committed_index

        if target:
            (connection,) = wait_for(captured, f"everything up to {target} in the changelog", 120.0)
            wait_for(published, f"everything up to {connection.committed_index} in an epoch", 120.0)

    def table(self, columns: str, *rows: str, options: str = "", with_: str = "") -> str:
        """A new upstream table with rows, followed by the lake; returns its name."""
        name = f"t{next(_numbers)}"
        self.write(f"CREATE TABLE {name} ({columns})", *(f"INSERT INTO {name} {row}" for row in rows))
        if options:
            self.write(f"ALTER TABLE {name} {options}")
        self.hw.sql(f"CREATE TABLE {name} FROM CONNECTION pg {with_}")
        return name

    def define(self, query: str, options: str = "") -> str:
        """A new view, which may not be filled yet."""
        name = f"v{next(_numbers)}"
        self.hw.sql(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")
        return name

    def view(self, query: str, options: str = "") -> str:
        """A new view, filled."""
        name = self.define(query, options)
        self.await_filled(name)
        return name

    def await_filled(self, *names: str) -> None:
        def filled() -> bool:
            with self.hw._home.meta.read() as c:
                found = [relations.find(c, name) for name in names]
                return all(r is not None and views.last_version(c, r.id) for r in found)

        wait_for(filled, f"{names} filled; {self.states()}", 240.0)

    def relation(self, name: str) -> RelationInfo:
        """What meta has of a table or view."""
        with self.hw._home.meta.read() as c:
            found = relations.find(c, name)
        assert found is not None, name
        return found

    def fill(self, view: str) -> Fill | None:
        """How a view is being filled, or was."""
        with self.hw._home.meta.read() as c:
            return views.fill(c, self.relation(view).id)

    def states(self) -> list[Any]:
        found: list[Any] = self.hw.sql("SHOW MATERIALIZED VIEWS")[0].rows.to_pylist()
        return found

    def of(self, view: str) -> Any:
        return next(s for s in self.states() if s["name"] == view)

    def rows(self, query: str, fresh: bool = True) -> list[dict[str, Any]]:
        """The rows of a query; `fresh`: once its views hold what is upstream, however long a busy machine takes."""

        def found() -> list[list[dict[str, Any]]]:
            try:
                return [self.hw.sql(query, fresh=fresh)[0].rows.to_pylist()]
            except HeadwaterError as e:
                if not fresh or e.code != "view.not_fresh":
                    raise
                return []

        if fresh:
            self.await_published()
        rows: list[dict[str, Any]] = wait_for(found, f"fresh views; {self.states()}", 480.0)[0]
        return rows

    def count(self, table: str) -> int:
        """The rows of a table or view as it is read now."""
        return int(self.rows(f"SELECT count(*) AS n FROM {table}", fresh=False)[0]["n"])

    def check(self, view: str, query: str) -> list[dict[str, Any]]:
        """The view's rows, fresh, after comparing them with the query in the same statement."""
        columns = ", ".join(quoted(name) for name in self.hw.sql(f"SELECT * FROM {view} LIMIT 0")[0].columns)
        both = f"(SELECT 'view' side, {columns} FROM {view}) UNION ALL (SELECT 'query', {columns} FROM ({query}))"
        found = self.rows(both)
        sides: dict[str, list[dict[str, Any]]] = {"view": [], "query": []}
        for row in found:
            sides[row.pop("side")].append(row)
        problem = unlike(*([tuple(row.values()) for row in rows] for rows in sides.values()))
        assert not problem, f"{view} as {query}\n{self.of(view)}\n{problem}"
        return sides["view"]


@contextmanager
def opened(
    spark: SparkSession, pg: EmbeddedPostgres, home: Path, database: str, settings: Mapping[str, str] | None = None
) -> Iterator[Shop]:
    """A shop with the connection `pg` to a new database; it is dropped at the end."""
    pg.execute(f"CREATE DATABASE {database}")
    upstream = pg.connect(database)
    upstream.autocommit = True
    with headwater.open(home, spark=spark, settings=settings) as hw:
        hw.sql(definitions(_Database(pg, database), []))
        with hw.running():
            yield Shop(hw, upstream)
            hw.sql("DROP CONNECTION pg CASCADE")
    upstream.close()
    pg.execute(f"DROP DATABASE {database} WITH (FORCE)")


class _Database(NamedTuple):
    server: EmbeddedPostgres
    name: str


@contextmanager
def busy(work: Callable[[], None]) -> Iterator[None]:
    """Repeats the work in a thread while the block runs; its error ends the test."""
    stop, failed = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failed:
            raise failed[0]


class Gate:
    """A named point of the code at which whoever comes there waits until it may go on; the first ones pass."""

    def __init__(self, passes: int) -> None:
        self._allowed = passes
        self._open = False
        self._changed = threading.Condition()
        self.waiting = 0  # how many stand here now

    def reach(self) -> None:
        with self._changed:
            self.waiting += 1
            self._changed.wait_for(lambda: self._open or self._allowed > 0)
            self._allowed -= 1
            self.waiting -= 1

    def let_one_pass(self) -> None:
        with self._changed:
            self._allowed += 1
            self._changed.notify()

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()


@contextmanager
def held(point: str, passes: int = 0) -> Iterator[Gate]:
    """Holds this process's server at a crash point during the block; `passes` get through before that."""
    assert point in crash.POINTS
    gate, original = Gate(passes), crash.here

    def here(name: str) -> None:
        if name == point:
            gate.reach()
        original(name)

    crash.here = here
    try:
        yield gate
    finally:
        gate.open()
        crash.here = original
