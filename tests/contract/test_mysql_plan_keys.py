"""Planning on real servers for every shape of key: disjoint, complete, near the step, and every row read once."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.backfill.plan import spans
from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE, locate, one_key
from headwater.decode.literals import key_texts
from headwater.decode.values import arrow_schema
from headwater.model import ScanResult, Span
from support.mysql import MyDatabase
from support.mysql_keys import SHAPES, Shape, fill, in_key_order
from support.mysql_scan import Bench, bench

STEP = 70
# The same two keys, in the order of fixtures
EVERY = [
    pytest.param(name, flavour, id=f"{flavour}-{name}")
    for flavour in ("mariadb", "mysql")
    for name, shape in SHAPES.items()
    if flavour in shape.flavours
]


@pytest.fixture
def database(flavour: str, request: pytest.FixtureRequest) -> MyDatabase:
    found: MyDatabase = request.getfixturevalue(f"{flavour}_database")
    return found


def table_of(database: MyDatabase, home: Path, shape: Shape) -> Bench:
    fill(database, shape)
    return bench(database, home, shape.table)


def assert_end_to_end(planned: list[Span]) -> None:
    """Neighbours without gap or overlap, from the beginning of the key order to its end."""
    assert planned[0].lo is None and planned[-1].hi is None
    assert all(a.hi is not None and a.hi == b.lo for a, b in pairwise(planned))
    ends = [s.hi for s in planned[:-1]]
    assert len(set(ends)) == len(ends)


@pytest.mark.parametrize(("name", "flavour"), EVERY)
def test_every_row_of_every_shape_is_in_one_span_and_read_once(name: str, database: MyDatabase, tmp_path: Path) -> None:
    shape = SHAPES[name]
    table = table_of(database, tmp_path, shape)
    plan = replace(table.plan(span_rows=STEP, span_bytes=1), dense_from=None)  # which may rest on an estimate
    planned = table.spans(plan)
    assert_end_to_end(planned)
    results = [scan_span(table.job(span)) for span in planned]
    whole, rest = divmod(shape.rows, STEP)
    assert [r.rows for r in results] == [STEP] * whole + [rest] * (rest > 0) + [0]
    expected = in_key_order(database, shape)
    assert [row["v"] for r in results for row in table.rows(r)] == expected
    assert_located(table, shape, planned, [[table.home / "base" / f.path for f in r.files] for r in results])
    # The same in pieces that know nothing of the plan: a span that is too large is cut wherever its scan stops.
    assert [row["v"] for row in table.scan_all([WHOLE], max_rows=100)] == expected
    assert_found_alone(table, results[-2])


def assert_located(table: Bench, shape: Shape, planned: list[Span], files: list[list[Path]]) -> None:
    """Where the lake can order keys, it finds each in the span whose scan read it."""
    ordered = all(c.ordered for c in table.key_columns)
    assert shape.ordered is None or ordered == shape.ordered
    if not ordered:
        return
    empty = arrow_schema(table.table.columns).empty_table()
    for place, paths in enumerate(files):
        rows = pa.concat_tables([empty, *(pq.read_table(p) for p in paths)])
        assert set(locate(planned, table.key_columns, rows.select(list(table.table.key))).tolist()) <= {place}


def assert_found_alone(table: Bench, result: ScanResult) -> None:
    """A row whose change was not whole is read alone, by the key that came with the change: as the lake prints it."""
    rows = pa.concat_tables([pq.read_table(table.home / "base" / f.path) for f in result.files]).slice(0, 2)
    texts = [key_texts(rows.column(k)) for k in table.table.key]
    for key, row in zip(zip(*texts, strict=True), rows.to_pylist(), strict=True):
        assert [r["v"] for r in table.scan_all([one_key(key)])] == [row["v"]]


@pytest.mark.parametrize(
    ("name", "flavour"), [("int_sparse", "mysql"), ("varchar_ci", "mariadb"), ("two_columns_first_repeats", "mysql")]
)
def test_keys_that_come_and_go_while_planning_goes_on_are_lost_to_no_span(
    name: str, database: MyDatabase, tmp_path: Path
) -> None:
    shape = replace(SHAPES[name], rows=500)
    table = table_of(database, tmp_path, shape)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    r = random.Random(seed)
    plan = replace(table.plan(span_rows=STEP, span_bytes=1), dense_from=None)
    planned = []
    with table.reach.walk(table.table) as walk:
        for number, span in enumerate(spans(plan, walk.next_bound)):
            planned.append(span)
            database.execute(f"DELETE FROM t WHERE v % 7 = {r.randrange(7)} OR (v = 500 AND {number} = 2)")
            new = [*range(700 + number * 50, 750 + number * 50), *range(r.randrange(200), 201)]
            rows = ", ".join(f"({i}, {shape.values(i)})" for i in new)
            with database.connect(charset="utf8mb4") as session, session.cursor() as cursor:
                cursor.execute(f"INSERT IGNORE INTO t VALUES {rows}")
            (size,) = database.execute("SELECT count(*) FROM t")[0]
            assert len(planned) < size, "planning ends"
    planned.append(plan.beyond)
    assert_end_to_end(planned)
    assert planned[-1].lo == plan.last, "the end stays where it was when planning began"
    found = [row["v"] for row in table.scan_all(planned)]
    assert found == in_key_order(database, shape), f"seed {seed}"


@pytest.mark.parametrize("name", ["int_dense", "three_columns"])
def test_an_empty_table_is_the_one_span_beyond(name: str, my_database: MyDatabase, tmp_path: Path) -> None:
    table = table_of(my_database, tmp_path, replace(SHAPES[name], rows=0))
    plan = table.plan()
    assert table.spans(plan) == [WHOLE] == [plan.beyond]
    assert (plan.beyond_result.rows, plan.beyond_result.files) == (0, ())
    assert scan_span(table.job(WHOLE)).files == ()


@pytest.mark.parametrize("name", ["int_dense", "varchar_ci", "two_columns_first_constant"])
def test_one_row_is_one_closed_span_and_the_one_beyond(name: str, my_database: MyDatabase, tmp_path: Path) -> None:
    table = table_of(my_database, tmp_path, replace(SHAPES[name], rows=1))
    first, beyond = table.spans(table.plan())
    assert first.hi == beyond.lo and first.hi is not None and first.hi.after
    assert [[r["v"] for r in table.scan_all([s])] for s in (first, beyond)] == [[1], []]


COSTS = ["int_sparse", "varchar_ci", "three_columns", "four_columns", "enum", "unique_alone", "unique_among_others"]


@pytest.mark.parametrize("name", COSTS)
def test_a_span_costs_the_upstream_its_own_rows_only(name: str, my_database: MyDatabase, tmp_path: Path) -> None:
    """Conditions on several columns, enums and collated text use the key's index."""
    table = table_of(my_database, tmp_path, replace(SHAPES[name], rows=2000 if name != "four_columns" else 200))
    planned = table.spans(replace(table.plan(span_rows=20, span_bytes=1), dense_from=None))

    def rows_read() -> int:
        found = my_database.execute("SHOW GLOBAL STATUS LIKE 'Handler_read_%'")
        return sum(int(v) for k, v in found if k.lower() in ("handler_read_next", "handler_read_rnd_next"))

    with table.reach.open_scan(table.table, lock_timeout_s=5, batch_bytes=1 << 20, hooks=lambda _: None) as scan:
        before = rows_read()
        assert sum(b.num_rows for b in scan.batches(planned[len(planned) // 2])) == 20
        scan.finish()
    asking = rows_read()
    asking = rows_read() - asking
    assert rows_read() - before - 3 * asking < 60
