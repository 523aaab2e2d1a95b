"""TPC-H, the auction house and what public engines are tested for, through the algebra: equal after every step.

`test_material.py` says that the material itself is sound; `test_known_views_live.py` runs it through a server.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from support import turns
from support.views import auction, auction_views, tpch, tpch_views
from support.views.following import History
from support.views.material import Case, Model
from support.views.public import CASES

pytestmark = pytest.mark.spark

SEED = 20
STEPS = 4  # of TPC-H and the auction house; the writers have touched every table in every way by then


@pytest.fixture(scope="module")
def tpch_history(quick: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    model = Model.of(tpch.generated(tmp_path_factory.mktemp("tpch")))
    return History.written(quick, tpch.writer(model, SEED), STEPS)


@pytest.fixture(scope="module")
def auction_history(quick: SparkSession) -> History:
    model = Model.of(auction.generated(SEED))
    return History.written(quick, auction.writer(model, SEED), STEPS)


@pytest.fixture(scope="module")
def history_of(quick: SparkSession) -> Callable[[Case], History]:
    """The history of a case, once for all cases that have the same."""
    known: dict[tuple[int, int], History] = {}

    def find(case: Case) -> History:
        same = (id(case.tables), id(case.steps))
        if same not in known:
            known[same] = History.of_case(quick, case)
        return known[same]

    return find


@turns.some(1)
@pytest.mark.parametrize("name", tpch_views.QUERIES)
def test_a_view_of_tpch_follows_every_transaction(tpch_history: History, name: str) -> None:
    view = tpch_history.follow(tpch_views.QUERIES[name])
    print(name, view.strategies)


@turns.some(1)
@pytest.mark.parametrize("name", auction_views.QUERIES)
def test_a_view_of_the_auction_house_follows_every_transaction(auction_history: History, name: str) -> None:
    view = auction_history.follow(auction_views.QUERIES[name])
    print(name, view.strategies)


@turns.some(3)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_public_case_follows_every_transaction(history_of: Callable[[Case], History], case: Case) -> None:
    view = history_of(case).follow(case.query)
    print(case.name, view.strategies)
