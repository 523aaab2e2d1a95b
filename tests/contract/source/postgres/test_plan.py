"""Planning over keys that only PostgreSQL has."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.backfill.read_span import scan_span
from headwater.errors import DataError
from headwater.model import Bound
from support import key_shapes
from support.key_shapes import Shape
from support.upstreams import Postgres

STEP = 140


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_infinity_is_planned_like_any_key_and_refused_by_the_scan_that_meets_it(
    kind: str, database: Any, tmp_path: Path
) -> None:
    """The lake has no such value, and a key may not become NULL: the table stops with a reason."""
    values = "CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' ELSE '2020-01-01'::date + i END"
    upstream = Postgres(database)
    table = upstream.bench(tmp_path, "t", schema=key_shapes.fill(database, Shape(f"id {kind}", "id", values, 500)))
    planned = table.spans(table.plan(span_rows=STEP, span_bytes=1))
    assert planned[0].lo is None and planned[-1].hi is None and all(a.hi == b.lo for a, b in pairwise(planned))
    assert planned[-1].lo == Bound(("infinity",))
    for span in (planned[0], planned[-2]):
        with pytest.raises(DataError) as e:
            scan_span(table.job(span))
        assert e.value.code == "data.key_value"
    between = slice(STEP, len(planned[1:-2]) * STEP + STEP)
    assert [r["v"] for r in table.scan_all(planned[1:-2])] == upstream.in_key_order(table)[between]
