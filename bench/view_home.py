"""What the benchmarks of views share: order lines in PostgreSQL, a running home, and views that move only when told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from headwater.demo.embedded import EmbeddedPostgres
from headwater.engine.query.between import Frames, at
from headwater.engine.view.refresh import plan_step
from headwater.meta import changes, epochs, relations, views
from headwater.meta.views import Refresh
from headwater.model import RelationInfo
from home import running, wait_live

LINES_PER_ORDER = 4
TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int, total numeric(15,2), ordered date);
CREATE TABLE lines (order_id bigint, line int, part int, supplier int, quantity int, price numeric(15,2),
    discount numeric(15,2), note text, PRIMARY KEY (order_id, line));
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO orders SELECT o, hashint8(o) & 65535, o % 100000, '2024-01-01'::date + (o % 700)::int
    FROM generate_series(1, {orders}) o;
INSERT INTO lines SELECT o, l, hashint8(o * 8 + l) & 131071, hashint8(o * 8 + l) & 4095, l, (o * 8 + l) % 90000 + 9.99,
    l * 0.01, 'line ' || l || ' of order ' || o
    FROM generate_series(1, {orders}) o, generate_series(1, {lines}) l;
"""
SUMS = "count(*) AS lines, sum(price * (1 - discount)) AS revenue"
AGGREGATE = f"SELECT supplier, {SUMS} FROM lines GROUP BY supplier"
JOINED = f"SELECT o.customer, {SUMS} FROM lines l JOIN orders o ON l.order_id = o.id GROUP BY o.customer"
NO_FOLDS = {"fold.changes": "1000000000", "fold.age": "24h"}  # one in the middle of a round would be its victim's cost


@dataclass
class Lab:
    """A home whose views stand still between the steps that are measured."""

    pg: EmbeddedPostgres
    hw: Any

    def relation(self, name: str) -> RelationInfo:
        with self.hw._home.meta.read() as c:
            found = relations.find(c, name)
        assert found is not None, name
        return found

    def define(self, name: str, query: str, options: str = "") -> None:
        """A view, filled and standing still."""
        self.hw.sql(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")
        self.await_filled(name)
        self.hw.sql(f"PAUSE MATERIALIZED VIEW {name}")

    def await_filled(self, *names: str) -> None:
        ids = [self.relation(name).id for name in names]
        while True:
            with self.hw._home.meta.read() as c:
                if all(views.last_version(c, id) for id in ids):
                    return
            time.sleep(0.005)

    def change(self, statements: Mapping[str, str]) -> int:
        """Runs one statement per table in one transaction; the epoch of the first barrier that holds all of it."""
        before = self._newest()
        with self.pg.connect() as c, c.transaction():
            made = {table: c.execute(statement).rowcount for table, statement in statements.items()}  # type: ignore
        goals = {self.relation(table).id: count for table, count in made.items()}
        while True:
            with self.hw._home.meta.read() as c:
                for barrier in views.barriers(c):
                    epoch = epochs.get(c, barrier.epoch)
                    if epoch is None or epoch.id <= before.id:
                        continue
                    known = [relations.get(c, id) for id in goals]
                    counts = {r.id: changes.count(c, r, before.index_for(r), epoch.index_for(r)) for r in known}
                    if all(counts[id] >= goal for id, goal in goals.items()):
                        return epoch.id
            time.sleep(0.02)

    def _newest(self) -> Any:
        with self.hw._home.meta.read() as c:
            return epochs.newest(c)

    def step(self, view: str, epoch: int) -> tuple[float, Refresh]:
        """Moves a view to an epoch as the server does; seconds, and what it recorded."""
        relation, began = self.relation(view), time.monotonic()
        with self.hw._home.meta.read() as c:
            planned = plan_step(c, relation, views.last_version(c, relation.id), epoch)
        assert planned is not None and not planned.quiet, view
        self.hw._server.views._step(planned)
        took = time.monotonic() - began
        with self.hw._home.meta.read() as c:
            return took, views.refreshes(c, relation.id)[0]

    def recompute(self, name: str, query: str, tables: Sequence[str], epoch: int) -> float:
        """Computes a query at an epoch into a Delta table; seconds."""
        known, began = [self.relation(table) for table in tables], time.monotonic()
        with self._inputs(known, epoch) as session:
            session.sql(query).write.format("delta").mode("overwrite").save(self._folder(name))
        return time.monotonic() - began

    @contextmanager
    def _inputs(self, known: Sequence[RelationInfo], epoch: int) -> Iterator[Any]:
        """A session in which the relations are views, at an epoch."""
        home, reader = self.hw._home, self.hw._server.reader
        with home.meta.read() as c:
            seen = epochs.get(c, epoch)
            assert seen is not None
            found = [at(c, relation, seen) for relation in known]
        with reader.session_for("bench") as session, ExitStack() as stack:
            frames = Frames(session, home, reader.overlays, stack)
            for each in found:
                assert each is not None
                frames.of(each).createOrReplaceTempView(each.relation.name)
            yield session
            for relation in known:
                session.catalog.dropTempView(relation.name)

    def same(self, view: str, name: str, epoch: int) -> bool:
        """Whether a view at an epoch has the rows of the table that was recomputed there."""
        relation = self.relation(view)
        with self._inputs([relation], epoch) as session:
            visible = ", ".join(c.name for c in relation.shown_columns)
            mine = session.sql(f"SELECT {visible} FROM {view}")
            theirs = session.read.format("delta").load(self._folder(name)).selectExpr(*mine.columns)
            return bool(mine.exceptAll(theirs).isEmpty() and theirs.exceptAll(mine).isEmpty())

    def _folder(self, name: str) -> str:
        return str(self.hw.home / "tmp" / "recomputed" / name)


@contextmanager
def lab(lines: int) -> Iterator[Lab]:
    """A home with that many order lines, and their orders."""
    with EmbeddedPostgres(18, database="bench") as pg, running(pg, NO_FOLDS) as hw:
        orders = max(1, lines // LINES_PER_ORDER)
        for statement in TABLES.format(orders=orders, lines=LINES_PER_ORDER).split(";"):
            if statement.strip():
                pg.execute(statement)
        hw.sql("".join(f"CREATE TABLE {name} FROM CONNECTION pg;" for name in ("orders", "lines", "other")))
        wait_live(hw)
        yield Lab(pg, hw)
