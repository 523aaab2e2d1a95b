"""Planning on a real PostgreSQL for every shape of key: disjoint, complete, near the step, and every row read once."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.backfill.plan import Plan, spans
from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE, locate
from headwater.decode.values import arrow_schema
from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import DataError
from headwater.model import Bound, Span
from headwater.source.postgres.extent import KeyWalk
from headwater.source.postgres.session import quote_identifier
from support.backfill import Bench, bench
from support.key_shapes import SETUP, SHAPES, Shape, can_compile_locale, compile_locale

STEP = 140
_numbers = count(1)


class Server:
    """The database of a server of its own, in the shape of the shared fixture."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.server, self.name = server, "postgres"
        self.execute, self.connect = server.execute, server.connect


@pytest.fixture(scope="module")
def upstream() -> Iterator[Server]:
    """A server that finds a collated locale where the machine can make one."""
    with tempfile.TemporaryDirectory(prefix="headwater-locales-") as folder, pytest.MonkeyPatch.context() as patch:
        Path(folder).chmod(0o755)  # the server may run as another user
        if can_compile_locale():
            compile_locale(Path(folder))
        patch.setenv("LOCPATH", folder)
        with EmbeddedPostgres(18, {"fsync": "off", "autovacuum": "off"}) as server:
            patch.delenv("LOCPATH")
            for statement in SETUP:
                server.execute(statement)
            yield Server(server)


def table_of(upstream: Server, home: Path, shape: Shape) -> Bench:
    """A table of that shape in a schema of its own, filled; `v` numbers the rows."""
    schema = f"s{next(_numbers)}"
    name = f"{schema}.{quote_identifier(shape.table)}"
    upstream.execute(f"CREATE SCHEMA {schema}")
    upstream.execute(f"CREATE TABLE {name} (v int, {shape.columns}, PRIMARY KEY ({shape.key})) {shape.tail}")
    for statement in shape.more:
        upstream.execute(statement.format(table=name, schema=schema))
    # Rows arrive in no order of the key.
    numbers = f"(SELECT g FROM generate_series(1, {shape.rows}) g ORDER BY g * 31 % 101, g) x(i)"
    upstream.execute(f"INSERT INTO {name} SELECT i, {shape.values} FROM {numbers}")
    if shape.analysed:
        upstream.execute(f"ANALYZE {name}")
    return bench(upstream, home, shape.table, schema)


def in_key_order(upstream: Server, table: Bench) -> list[int]:
    """The rows' numbers in the database's own order of the key."""
    key = ", ".join(quote_identifier(k) for k in table.key)
    name = f"{quote_identifier(table.schema)}.{quote_identifier(table.table)}"
    return [v for (v,) in upstream.execute(f"SELECT v FROM {name} ORDER BY {key}")]


def assert_end_to_end(planned: list[Span]) -> None:
    """Neighbours without gap or overlap, from the beginning of the key order to its end."""
    assert planned[0].lo is None and planned[-1].hi is None
    assert all(a.hi is not None and a.hi == b.lo for a, b in pairwise(planned))
    ends = [s.hi for s in planned[:-1]]
    assert len(set(ends)) == len(ends)


@pytest.mark.parametrize("name", SHAPES)
def test_every_row_of_every_shape_is_in_one_span_and_read_once(name: str, upstream: Server, tmp_path: Path) -> None:
    shape = SHAPES[name]
    table = table_of(upstream, tmp_path, shape)
    plan = table.plan(span_rows=STEP, span_bytes=1)
    assert (plan.step, plan.dense_from is not None) == (STEP, shape.dense)
    planned = table.spans(plan)
    assert_end_to_end(planned)
    expected = in_key_order(upstream, table)
    assert len(planned) == -(-shape.rows // STEP) + 1
    results = [scan_span(table.job(span)) for span in planned]
    assert [r.rows for r in results] == [STEP] * (shape.rows // STEP) + [shape.rows % STEP] * (
        shape.rows % STEP > 0
    ) + [0]
    assert [row["v"] for r in results for row in table.rows(r)] == expected
    assert_located(table, shape, planned, [[table.home / "base" / f.path for f in r.files] for r in results])
    # The same in pieces that know nothing of the plan: a span that is too large is cut wherever its scan stops.
    assert [row["v"] for row in table.scan_all([WHOLE], max_rows=300)] == expected


def assert_located(table: Bench, shape: Shape, planned: list[Span], files: list[list[Path]]) -> None:
    """Where the lake can order keys, it finds each in the span whose scan read it."""
    by_name = {c.name: c for c in table.columns}
    key = [by_name[k] for k in table.key]
    ordered = all(c.ordered for c in key)
    assert shape.ordered is None or ordered == shape.ordered
    if not ordered:
        return
    empty = arrow_schema(table.columns).empty_table()
    for place, paths in enumerate(files):
        rows = pa.concat_tables([empty, *(pq.read_table(p) for p in paths)])
        assert set(locate(planned, key, rows.select(list(table.key))).tolist()) <= {place}


@pytest.mark.parametrize("name", ["int4_dense", "text_C", "four_columns_in_another_order"])
def test_the_first_span_is_there_before_the_second_bound_is_asked_for(
    name: str, upstream: Server, tmp_path: Path
) -> None:
    table = table_of(upstream, tmp_path, SHAPES[name])
    asked = 0
    with KeyWalk(table.endpoint, table.job(WHOLE).table) as walk:

        def next_bound(after: Bound | None, upto: Bound, rows: int) -> Bound | None:
            nonlocal asked
            asked += 1
            return walk.next_bound(after, upto, rows)

        found = spans(table.plan(span_rows=STEP, span_bytes=1), next_bound)
        for number in (1, 2, 3):
            next(found)
            assert asked == (0 if SHAPES[name].dense else number)


@pytest.mark.parametrize("name", ["int4_dense", "int8_sparse", "text_default"])
def test_the_number_of_spans_is_capped(name: str, upstream: Server, tmp_path: Path) -> None:
    table = table_of(upstream, tmp_path, replace(SHAPES[name], analysed=True))
    assert 9 <= len(table.spans(table.plan(span_rows=1, span_bytes=1, max_spans=10))) <= 10


def test_ten_thousand_spans_end_where_the_database_counts(upstream: Server, tmp_path: Path) -> None:
    """Nobody ever counted the table, so nothing but the walk knows how many there will be."""
    table = table_of(upstream, tmp_path, replace(SHAPES["text_C"], values="md5(i::text)", rows=20_400))
    planned = table.spans(table.plan(span_rows=2, span_bytes=1))
    assert_end_to_end(planned)
    keys = [k for (k,) in upstream.execute(f"SELECT id FROM {table.schema}.t ORDER BY id")]
    place = {k: i for i, k in enumerate(keys)}
    ends = [-1, *(place[s.hi.key[0]] for s in planned[:-1] if s.hi is not None)]
    assert [b - a for a, b in pairwise(ends)] == [2] * 10_000 + [4] * 100, "steps grow once there are too many"


@pytest.mark.parametrize("never_analysed", [True, False])
def test_an_empty_table_is_the_one_span_beyond(never_analysed: bool, upstream: Server, tmp_path: Path) -> None:
    table = table_of(upstream, tmp_path, replace(SHAPES["text_C"], rows=0, analysed=not never_analysed))
    plan = table.plan()
    assert table.spans(plan) == [WHOLE] == [plan.beyond]
    assert (plan.beyond_result.rows, plan.beyond_result.files) == (0, ())


@pytest.mark.parametrize("name", ["int4_dense", "uuid", "two_columns_first_constant"])
def test_one_row_is_one_closed_span_and_the_one_beyond(name: str, upstream: Server, tmp_path: Path) -> None:
    table = table_of(upstream, tmp_path, replace(SHAPES[name], rows=1))
    first, beyond = table.spans(table.plan())
    assert first.hi == beyond.lo and first.hi is not None and first.hi.after
    assert [[r["v"] for r in table.scan_all([s])] for s in (first, beyond)] == [[1], []]


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_infinity_is_planned_like_any_key_and_refused_by_the_scan_that_meets_it(
    kind: str, upstream: Server, tmp_path: Path
) -> None:
    """The lake has no such value, and a key may not become NULL: the table stops with a reason."""
    values = "CASE i WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' ELSE '2020-01-01'::date + i END"
    table = table_of(upstream, tmp_path, Shape(f"id {kind}", "id", values))
    planned = table.spans(table.plan(span_rows=STEP, span_bytes=1))
    assert_end_to_end(planned)
    assert planned[-1].lo == Bound(("infinity",))
    for span in (planned[0], planned[-2]):
        with pytest.raises(DataError) as e:
            scan_span(table.job(span))
        assert e.value.code == "data.key_value"
    assert [r["v"] for r in table.scan_all(planned[1:-2])] == in_key_order(upstream, table)[
        STEP : len(planned[1:-2]) * STEP + STEP
    ]


@pytest.mark.parametrize("name", ["int4_dense", "int8_sparse", "text_default", "two_columns_first_repeats"])
def test_keys_that_come_and_go_while_planning_goes_on_are_lost_to_no_span(
    name: str, upstream: Server, tmp_path: Path
) -> None:
    shape = SHAPES[name]
    table = table_of(upstream, tmp_path, shape)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    r = random.Random(seed)
    plan = table.plan(span_rows=STEP, span_bytes=1)
    planned = []
    with KeyWalk(table.endpoint, table.job(WHOLE).table) as walk:
        for number, span in enumerate(spans(plan, walk.next_bound)):
            planned.append(span)
            at = f"{table.schema}.t"
            upstream.execute(f"DELETE FROM {at} WHERE v % 7 = {r.randrange(7)} OR (v = {shape.rows} AND {number} = 2)")
            new = f"generate_series({700 + number * 50}, {749 + number * 50})"
            back = f"generate_series({r.randrange(200)}, 200)"
            rows = f"SELECT i, {shape.values} FROM (SELECT {new} UNION SELECT {back}) x(i)"
            upstream.execute(f"INSERT INTO {at} {rows} ON CONFLICT DO NOTHING")
            (size,) = upstream.execute(f"SELECT count(*) FROM {at}")[0]
            assert len(planned) < size, "planning ends"
    planned.append(plan.beyond)
    assert_end_to_end(planned)
    assert planned[-1].lo == plan.last, "the end stays where it was when planning began"
    assert [row["v"] for row in table.scan_all(planned)] == in_key_order(upstream, table), f"seed {seed}"


def test_a_plan_goes_on_by_questions_where_it_began_by_arithmetic(upstream: Server, tmp_path: Path) -> None:
    """After a restart the first key is not the plan's any more."""
    table = table_of(upstream, tmp_path, SHAPES["int4_dense"])
    plan = table.plan(span_rows=STEP, span_bytes=1)
    begun = table.spans(plan)[:3]
    rest = table.spans(replace(plan, dense_from=None), after=begun[-1].hi, done=len(begun))
    assert_end_to_end([*begun, *rest])
    assert [row["v"] for row in table.scan_all([*begun, *rest])] == in_key_order(upstream, table)


def test_a_plan_knows_only_what_its_first_transaction_saw(upstream: Server, tmp_path: Path) -> None:
    table = table_of(upstream, tmp_path, SHAPES["text_C"])
    plan: Plan = table.plan(span_rows=STEP, span_bytes=1)
    upstream.execute(f"INSERT INTO {table.schema}.t VALUES (1000, E'\\U0010FFFF')")  # beyond every other key
    planned = table.spans(plan)
    assert planned[-1] == plan.beyond
    assert [row["v"] for row in table.scan_all(planned[:-1])] == in_key_order(upstream, table)[:-1]
