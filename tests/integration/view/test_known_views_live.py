"""TPC-H and the auction house through a server over PostgreSQL: after each transaction every view equals its query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from headwater.errors import HeadwaterError
from support import turns
from support.shop import Shop
from support.views import auction, auction_views, tpch, tpch_views
from support.views.changes import Writer
from support.views.material import Model, Row, Table, statement

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SEED = 21
STEPS = 2
AT_ONCE = 4  # views beside each other; all of them would share two cores for minutes


def groups(queries: Mapping[str, str]) -> list[tuple[str, ...]]:
    names = tuple(queries)
    return [names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)]


@dataclass(frozen=True, slots=True)
class Live:
    """Tables of the material in an upstream and in the lake, and random transactions over them."""

    shop: Shop
    writer: Writer

    def write(self) -> None:
        """One transaction, on the model and upstream."""
        with self.shop.upstream.transaction():
            for change in self.writer.step():
                self.shop.upstream.execute(*statement(self.writer.model.tables[change.table], change))
        self.shop.note_written()

    def follow(self, queries: Mapping[str, str]) -> None:
        """Views of the queries, compared with them when they are filled and after each of several transactions."""
        for name, query in queries.items():
            define(self.shop, name, query)
        self.shop.await_filled(*queries)
        for step in range(STEPS + 1):
            if step:
                self.write()
            for name, query in queries.items():
                self.shop.check(name, query)
        print({name: self.shop.of(name)["strategy"] for name in queries})
        for name in queries:
            self.shop.hw.sql(f"DROP MATERIALIZED VIEW {name}")


def define(shop: Shop, name: str, query: str) -> None:
    """A view that follows changes even where recomputing tiny tables would be faster, if it can."""
    try:
        shop.hw.sql(f"CREATE MATERIALIZED VIEW {name} WITH (refresh = 'incremental') AS {query}")
    except HeadwaterError as e:
        assert e.code == "view.not_incremental", e
        shop.hw.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def begin(shop: Shop, tables: Mapping[Table, Sequence[Row]], writer: Callable[[Model, int], Writer]) -> Live:
    """The tables with their first rows upstream, and followed by the lake."""
    for t, rows in tables.items():
        shop.upstream.execute(t.postgres_ddl)
        with shop.upstream.cursor() as cursor, cursor.copy(f'COPY "{t.name}" FROM STDIN') as copy:
            for row in rows:
                copy.write_row(row)
        shop.hw.sql(f"CREATE TABLE {t.name} FROM CONNECTION pg")
    return Live(shop, writer(Model.of(tables), SEED))


@pytest.fixture(scope="module")
def tpch_live(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    yield begin(shop, tpch.generated(tmp_path_factory.mktemp("tpch")), tpch.writer)


@pytest.fixture(scope="module")
def auction_live(shop: Shop) -> Iterator[Live]:
    yield begin(shop, auction.generated(SEED), auction.writer)


@pytest.mark.soak
@pytest.mark.parametrize("names", groups(tpch_views.QUERIES), ids="-".join)
def test_views_of_tpch_equal_their_queries_after_each_transaction(tpch_live: Live, names: tuple[str, ...]) -> None:
    tpch_live.follow({name: tpch_views.QUERIES[name] for name in names})


@turns.some(1)
@pytest.mark.parametrize("names", groups(auction_views.QUERIES), ids=lambda names: names[0])
def test_views_of_the_auction_house_equal_their_queries_after_each_transaction(
    auction_live: Live, names: tuple[str, ...]
) -> None:
    auction_live.follow({name: auction_views.QUERIES[name] for name in names})
