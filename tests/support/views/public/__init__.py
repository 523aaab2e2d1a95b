"""Small cases: what public engines with incremental views (streaming databases, pg_ivm, Flink, DBSP) are tested for.

Each case is written anew: tables with rows, one view, and a few transactions that go through what such views get wrong.
"""

from __future__ import annotations

from itertools import groupby

from support.views.material import Case
from support.views.public import aggregates, joins, scenes, sets, subqueries, windows

CASES: list[Case] = [
    *joins.CASES,
    *aggregates.CASES,
    *sets.CASES,
    *subqueries.CASES,
    *windows.CASES,
    *scenes.CASES,
]

# Cases over the same rows and transactions, which can be run together.
SCENES: list[tuple[Case, ...]] = [
    tuple(same) for _, same in groupby(CASES, key=lambda case: (id(case.tables), id(case.steps)))
]
