"""Small cases: what public engines with incremental views (streaming databases, pg_ivm, Flink, DBSP) are tested for.

Each case is written anew: tables with rows, one view, and a few transactions that go through what such views get wrong.
Cases of one file mostly share tables and transactions, as the same objects, so that they can be run together.
"""

from __future__ import annotations

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
