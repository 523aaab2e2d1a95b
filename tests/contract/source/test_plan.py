"""What planning promises for every upstream and shape of key: disjoint, complete, near the step, each row read once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.backfill.plan import Plan, spans
from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE, locate, one_key
from headwater.config import MAX_SPANS
from headwater.decode.literals import key_texts
from headwater.decode.values import arrow_schema
from headwater.model import Bound, ScanResult, Span
from support import turns, upstreams
from support.scanned import Bench
from support.upstreams import Upstream
from support.upstreams.base import KEY_SHAPES
from support.wait import wait_for

pytestmark = turns.TAKEN

STEP = 70

Made = dict[type[Upstream], Upstream]


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Made, ExitStack]]:
    with ExitStack() as stack:
        yield {}, stack


@pytest.fixture(params=upstreams.EVERY, ids=lambda kind: kind.name)
def upstream(request: pytest.FixtureRequest, made: tuple[Made, ExitStack]) -> Upstream:
    """A database of each kind that all tests of this file share; each has a table of its own."""
    kind: type[Upstream] = request.param
    found, stack = made
    if kind not in found:
        found[kind] = stack.enter_context(kind.serve_shapes(request))
    return found[kind]


def planned_by_steps(upstream: Upstream, table: Bench, shape: Any) -> Plan:
    plan = table.plan(span_rows=STEP, span_bytes=1)
    if upstream.can.count_rows:
        assert (plan.step, plan.dense_from is not None) == (STEP, shape.dense)
        return plan
    return replace(plan, dense_from=None)  # which may rest on an estimate


def assert_end_to_end(planned: list[Span]) -> None:
    """Neighbours without gap or overlap, from the beginning of the key order to its end."""
    assert planned[0].lo is None and planned[-1].hi is None
    assert all(a.hi is not None and a.hi == b.lo for a, b in pairwise(planned))
    ends = [s.hi for s in planned[:-1]]
    assert len(set(ends)) == len(ends)


def test_every_kind_has_the_shapes_that_tests_pick(upstream: Upstream) -> None:
    assert upstream.key_shapes.keys() >= KEY_SHAPES


@upstreams.each(lambda kind: kind.key_shapes, "name")
def test_every_row_of_every_shape_is_in_one_span_and_read_once(upstream: Upstream, name: str, tmp_path: Path) -> None:
    shape = upstream.key_shapes[name]
    table = upstream.shaped(tmp_path, shape)
    planned = table.spans(planned_by_steps(upstream, table, shape))
    assert_end_to_end(planned)
    results = [scan_span(table.job(span)) for span in planned]
    whole, rest = divmod(shape.rows, STEP)
    assert [r.rows for r in results] == [STEP] * whole + [rest] * (rest > 0) + [0]
    expected = upstream.in_key_order(table)
    assert [row["v"] for r in results for row in table.rows(r)] == expected
    assert_located(table, shape, planned, results)
    # The same in pieces that know nothing of the plan: a span that is too large is cut wherever its scan stops.
    assert [row["v"] for row in table.scan_all([WHOLE], max_rows=100)] == expected
    assert [row["v"] for row in table.scan_all([WHOLE], scan_s=0.0, batch_bytes=3_000)] == expected
    if shape.alone:
        assert_found_alone(table, results[-2])


def assert_located(table: Bench, shape: Any, planned: list[Span], results: list[ScanResult]) -> None:
    """Where the lake can order keys, it finds each in the span whose scan read it."""
    ordered = all(c.ordered for c in table.key_columns)
    assert shape.ordered is None or ordered == shape.ordered
    if not ordered:
        return
    empty = arrow_schema(table.columns).empty_table()
    for place, result in enumerate(results):
        rows = pa.concat_tables([empty, *(pq.read_table(p) for p in table.files(result))])
        assert set(locate(planned, table.key_columns, rows.select(list(table.key))).tolist()) <= {place}


def assert_found_alone(table: Bench, result: ScanResult) -> None:
    """A row whose change was not whole is read alone, by the key that came with the change: as the lake prints it."""
    rows = pa.concat_tables([pq.read_table(p) for p in table.files(result)]).slice(0, 2)
    texts = [key_texts(rows.column(k)) for k in table.key]
    for key, row in zip(zip(*texts, strict=True), rows.to_pylist(), strict=True):
        assert [r["v"] for r in table.scan_all([one_key(key)])] == [row["v"]]


@pytest.mark.parametrize("name", ["int_dense", "text", "two_columns_first_repeats"])
def test_the_first_span_is_there_before_the_second_bound_is_asked_for(
    name: str, upstream: Upstream, tmp_path: Path
) -> None:
    shape = upstream.key_shapes[name]
    table = upstream.shaped(tmp_path, shape)
    plan = planned_by_steps(upstream, table, shape)
    asked = 0
    with table.reach.walk(table.table) as walk:

        def next_bound(after: Bound | None, upto: Bound, rows: int) -> Bound | None:
            nonlocal asked
            asked += 1
            return walk.next_bound(after, upto, rows)

        found = spans(plan, next_bound)
        for number in (1, 2, 3):
            next(found)
            assert asked == (0 if plan.dense_from is not None else number)


@pytest.mark.parametrize("name", ["int_dense", "int_sparse", "text"])
@upstreams.over(where=lambda can: can.count_rows)
def test_the_number_of_spans_is_capped(name: str, upstream: Upstream, tmp_path: Path) -> None:
    table = upstream.shaped(tmp_path, replace(upstream.key_shapes[name], analysed=True))
    assert 9 <= len(table.spans(table.plan(span_rows=1, span_bytes=1, max_spans=10))) <= 10


def test_steps_grow_once_there_are_too_many_spans(upstream: Upstream, tmp_path: Path) -> None:
    """Nobody may ever have counted the table, so nothing but the walk knows how many there will be."""
    table = upstream.shaped(tmp_path, replace(upstream.key_shapes["text"], rows=180))
    plan = replace(table.plan(span_rows=2, span_bytes=1), step=2, dense_from=None)
    planned = table.spans(plan, done=MAX_SPANS - 40)
    assert_end_to_end(planned)
    sizes = [scan_span(table.job(span)).rows for span in planned[35:50]]
    assert sizes == [2] * 5 + [4] * 10


@pytest.mark.parametrize("name", ["int_dense", "two_columns_first_constant"])
def test_an_empty_table_is_the_one_span_beyond(name: str, upstream: Upstream, tmp_path: Path) -> None:
    for analysed in (False, True):
        table = upstream.shaped(tmp_path, replace(upstream.key_shapes[name], rows=0))
        if analysed:
            upstream.analyse(upstream.named(table))
        plan = table.plan()
        assert table.spans(plan) == [WHOLE] == [plan.beyond]
        assert (plan.beyond_result.rows, plan.beyond_result.files) == (0, ())
        assert scan_span(table.job(WHOLE)).files == ()


@pytest.mark.parametrize("name", ["int_dense", "text", "two_columns_first_constant"])
def test_one_row_is_one_closed_span_and_the_one_beyond(name: str, upstream: Upstream, tmp_path: Path) -> None:
    table = upstream.shaped(tmp_path, replace(upstream.key_shapes[name], rows=1))
    first, beyond = table.spans(table.plan())
    assert first.hi == beyond.lo and first.hi is not None and first.hi.after
    assert [[r["v"] for r in table.scan_all([s])] for s in (first, beyond)] == [[1], []]


def test_a_composite_key_whose_first_column_repeats_is_cut_inside_it(upstream: Upstream, tmp_path: Path) -> None:
    table = upstream.shaped(tmp_path, replace(upstream.key_shapes["two_columns_first_constant"], rows=500))
    parts = table.spans(replace(table.plan(span_rows=70, span_bytes=1), step=70))
    assert len(parts) == 9
    found = table.scan_all(parts, scan_s=0.0, batch_bytes=500)
    assert [r["v"] for r in found] == upstream.in_key_order(table)


def test_planning_resumes_at_the_last_planned_bound(upstream: Upstream, tmp_path: Path) -> None:
    table = upstream.shaped(tmp_path, replace(upstream.key_shapes["text"], rows=500))
    plan = replace(table.plan(span_rows=50, span_bytes=1), step=50)
    everything = table.spans(plan)
    assert len(everything) == 11
    assert everything[:4] + table.spans(plan, after=everything[3].hi, done=4) == everything
    assert table.spans(plan, after=plan.last, done=10) == [plan.beyond]


@pytest.mark.parametrize("name", ["int_dense", "int_sparse", "text", "two_columns_first_repeats"])
def test_keys_that_come_and_go_while_planning_continues_are_lost_to_no_span(
    name: str, upstream: Upstream, tmp_path: Path
) -> None:
    shape = replace(upstream.key_shapes[name], rows=500)
    table = upstream.shaped(tmp_path, shape)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    r = random.Random(seed)
    plan = planned_by_steps(upstream, table, shape)
    planned = []
    with table.reach.walk(table.table) as walk:
        for number, span in enumerate(spans(plan, walk.next_bound)):
            planned.append(span)
            gone = f"v % 7 = {r.randrange(7)} OR (v = {shape.rows} AND {number} = 2)"
            upstream.execute(f"DELETE FROM {upstream.named(table)} WHERE {gone}")
            come = [*range(700 + number * 50, 750 + number * 50), *range(r.randrange(200), 201)]
            upstream.add_shaped(table, shape, come)
            (size,) = upstream.execute(f"SELECT count(*) FROM {upstream.named(table)}")[0]
            assert len(planned) < size, "planning ends"
    planned.append(plan.beyond)
    assert_end_to_end(planned)
    assert planned[-1].lo == plan.last, "the end stays where it was when planning began"
    assert [row["v"] for row in table.scan_all(planned)] == upstream.in_key_order(table), f"seed {seed}"


@upstreams.over(where=lambda can: can.count_rows)
def test_a_plan_continues_by_questions_where_it_began_by_arithmetic(upstream: Upstream, tmp_path: Path) -> None:
    """After a restart the first key is not the plan's any more."""
    table = upstream.shaped(tmp_path, upstream.key_shapes["int_dense"])
    plan = table.plan(span_rows=STEP, span_bytes=1)
    assert plan.dense_from is not None
    begun = table.spans(plan)[:2]
    rest = table.spans(replace(plan, dense_from=None), after=begun[-1].hi, done=len(begun))
    assert_end_to_end([*begun, *rest])
    assert [row["v"] for row in table.scan_all([*begun, *rest])] == upstream.in_key_order(table)


def test_rows_above_the_planned_end_belong_to_the_open_span_only(upstream: Upstream, tmp_path: Path) -> None:
    """A plan knows only what its first transaction saw."""
    shape = upstream.key_shapes["int_sparse"]
    table = upstream.shaped(tmp_path, shape)
    plan = planned_by_steps(upstream, table, shape)
    largest = upstream.execute(f"SELECT max(id) FROM {upstream.named(table)}")[0][0]
    txn = upstream.commit(f"INSERT INTO {upstream.named(table)} VALUES (1000, {largest + 1})")
    planned = table.spans(plan)
    assert planned[-1] == plan.beyond and planned[-1].lo == Bound((str(largest),))
    assert [row["v"] for row in table.scan_all(planned[:-1])] == upstream.in_key_order(table)[:-1]
    assert not upstream.seam().sees(plan.beyond_result.saw, np.array([txn], np.int64))[0]


@upstreams.each(lambda kind: kind.costly_shapes, "name")
def test_a_span_costs_the_upstream_its_own_rows_only(upstream: Upstream, name: str, tmp_path: Path) -> None:
    """Conditions on several columns, and keys in an order of the database's own, use the key's index."""
    shape = upstream.key_shapes[name]
    table = upstream.shaped(tmp_path, replace(shape, rows=2000 if shape.rows >= 230 else 200))
    planned = table.spans(replace(table.plan(span_rows=20, span_bytes=1), step=20, dense_from=None))
    with table.open_scan() as scan:
        before = upstream.rows_read(upstream.named(table))
        assert sum(b.num_rows for b in scan.batches(planned[len(planned) // 2])) == 20
        scan.finish()
    read = wait_for(lambda: upstream.rows_read(upstream.named(table)) - before, "the server counts")
    assert 20 <= read < 60
