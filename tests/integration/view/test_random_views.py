"""Random queries over random tables: after each of several random steps the view equals its query."""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from support.view_moves import View, settle
from support.view_random import Queries, random_change, random_tables

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("HEADWATER_SOAK_SEED", "0")) or random.SystemRandom().randrange(1 << 32)


def follow_random_views(session: SparkSession, seed: int, views: int, steps: int, depth: int) -> set[str]:
    """Strategies that were met."""
    print(f"seed {seed}")
    source = random.Random(seed)
    tables = random_tables(source)
    queries = Queries(source, tables)
    made = []
    for _ in range(views):
        query = queries.query(source.randrange(1, depth + 1))
        print(query)
        made.append(View(session, query, tables))
    for _ in range(steps):
        random_change(source, tables)
        for view in made:
            view.follow()
            view.check()
        settle(tables)
    return {strategy for view in made for strategy in view.strategies}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_views_follow_random_changes(quick: SparkSession, seed: int) -> None:
    follow_random_views(quick, seed, views=4, steps=2, depth=3)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(100))
def test_many_random_views_follow_random_changes(quick: SparkSession, number: int) -> None:
    follow_random_views(quick, SEED + number, views=5, steps=4, depth=4)
