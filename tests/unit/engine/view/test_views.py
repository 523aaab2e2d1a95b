"""The loop of views without Spark: what a tick asks meta for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Queue

import pytest
import sqlalchemy as sa

from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.view.views import Views
from headwater.meta import epochs, relations, views
from headwater.model import TableState
from support.defined import add_table, home_with
from support.followed import followed, layout
from support.owned import serving


def no_spark() -> None:
    raise AssertionError("nothing here needs Spark")


def queries(home: Home, work: Callable[[], object]) -> int:
    """How many queries to meta a piece of work makes."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    sa.event.listen(home.meta._engine, "before_cursor_execute", counted)
    work()
    sa.event.remove(home.meta._engine, "before_cursor_execute", counted)
    return count


def with_views(path: Path, number: int) -> tuple[Home, Views]:
    """A home with live views and nothing to do for them."""
    home = Home.open(path)
    with home.meta.write() as c:
        leases, epoch = serving(c), epochs.publish(c, [], {}).id
        views.add_barrier(c, epoch)
        for i in range(number):
            id = add_table(c, f"v{i}", connection_id=0)
            views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=None)
            views.add_version(c, id, epoch)
            relations.set_state(c, id, TableState.LIVE)
    reader = Reader(home, no_spark)  # type: ignore[arg-type]
    return home, Views(home, leases, reader, None, no_spark, lambda: None)  # type: ignore[arg-type]


def test_a_tick_with_nothing_to_do_costs_the_same_however_many_views_there_are(tmp_path: Path) -> None:
    found = set()
    for number in (1, 20):
        home, loop = with_views(tmp_path / str(number), number)
        loop.tick(spark=False)  # looks for views that stood still, which it does only now and then
        found.add(queries(home, partial(loop.tick, spark=False)))
        home.meta.close()
    assert len(found) == 1


@pytest.mark.parametrize("state", [TableState.LIVE, TableState.FAILED])
def test_a_view_passes_over_a_barrier_of_high_rank_at_which_a_table_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: TableState
) -> None:
    """Nothing else is written: a barrier of a higher rank comes late, or never."""
    begun = Queue[int]()
    monkeypatch.setattr(Views, "_slots", lambda _: 1)
    monkeypatch.setattr(Views, "_step", lambda _, step: begun.put(step.target.id))
    home = Home.open(tmp_path)
    with home.meta.write() as c:
        leases, (table, view, _) = serving(c), followed(c)
        relations.set_state(c, view, state)
        missing = epochs.publish(c, [], {table: layout(table, 3, complete=False)}).id
        whole = epochs.publish(c, [], {table: layout(table, 3)}).id
        numbers = [views.add_barrier(c, id).number for id in (*[missing] * 63, whole)]
        assert numbers[-2:] == [64, 65]
    loop = Views(home, leases, Reader(home, no_spark), None, no_spark, lambda: None)  # type: ignore[arg-type]
    for _ in range(3):
        loop.tick()
    assert begun.get(timeout=60) == whole
    loop.stop()
    home.meta.close()


@pytest.mark.parametrize("names", [("t1",), ("t1", "t2")])
def test_a_statement_asks_only_for_what_it_names_however_many_tables_there_are(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    def read(home: Home) -> None:
        with Reader(home, no_spark).at_epoch(names) as (_, seen):  # type: ignore[arg-type]
            assert sorted(s.relation.name for s in seen) == list(names)

    found = set()
    for number in (3, 30):
        with home_with(tmp_path / str(number), *(f"t{i}" for i in range(number))) as home:
            found.add(queries(home, partial(read, home)))
    assert len(found) == 1
