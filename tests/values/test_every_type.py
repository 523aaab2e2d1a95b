"""Every type of every upstream: its documented value, the same from scan and log; as text, what the server prints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support import upstreams
from support.upstreams import Postgres16, Upstream
from support.upstreams.base import TableLog

NOT_KEPT = None
Typed = tuple[Upstream, dict[str, str], TableLog]


@pytest.fixture(params=[Postgres16, *upstreams.EVERY], ids=lambda kind: kind.name)
def upstream(request: pytest.FixtureRequest) -> Upstream:
    return upstreams.fresh(request, request.param)


@pytest.fixture
def typed(upstream: Upstream) -> Any:
    """A table with a column for each type, a row for each value, and one of NULLs; the columns' names; its log."""
    for statement in upstream.type_setup:
        upstream.execute(statement)
    types = upstream.types
    names = {t: f"c{i}" for i, t in enumerate(types)}
    columns = ", ".join(f"{name} {t}" for t, name in names.items())
    upstream.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns}) {upstream.table_tail}")
    log = upstream.log("t")
    rows = []
    for row in range(1 + max(len(values) for _, values in types.values())):
        given = {"id": str(row), **{names[t]: v[row][0] for t, (_, v) in types.items() if row < len(v)}}
        rows.append(f"INSERT INTO t ({', '.join(given)}) VALUES ({', '.join(given.values())})")
    upstream.run(*rows)
    yield upstream, names, log
    log.close()


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, and of one type."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and bool(a == b)


def test_every_type_gives_its_documented_value_from_scan_and_log(typed: Typed, tmp_path: Path) -> None:
    upstream, names, log = typed
    table = upstream.bench(tmp_path, "t")
    scanned, lost = table.read()
    changes = log.changes(upstream.columns("t"))
    changes.table.validate(full=True)
    lake_types = {c.name: c.lake_type for c in upstream.columns("t")}
    assert {t: lake_types[names[t]] for t in upstream.types} == {t: lake for t, (lake, _) in upstream.types.items()}
    wrong = []
    for type_, (_, values) in upstream.types.items():
        expected = [v for _, v in values] + [None] * (scanned.num_rows - len(values))
        literals = [text for text, _ in values] + ["NULL"] * 99
        for way, rows in (("scan", scanned), ("log", changes.table)):
            got = rows.column(names[type_]).to_pylist()
            assert len(got) == len(expected)
            wrong += [(way, type_, at, g) for g, e, at in zip(got, expected, literals, strict=False) if not same(g, e)]
    assert not wrong
    unrepresentable = {names[t]: n for t, (_, vs) in upstream.types.items() if (n := sum(v is NOT_KEPT for _, v in vs))}
    assert lost == changes.unrepresentable == unrepresentable
    assert scanned.schema == pa.schema(list(changes.table.schema)[: len(table.columns)])


def test_every_type_may_be_declared_string_and_keeps_the_text_that_the_server_prints(
    typed: Typed, tmp_path: Path
) -> None:
    upstream, names, log = typed
    strings = dict.fromkeys(names.values(), "STRING")
    scanned, lost = upstream.bench(tmp_path, "t", lake=strings).read()
    changes = log.changes(upstream.columns("t", strings))
    assert lost == {} and changes.unrepresentable == {}
    for column in upstream.columns("t")[1:]:
        found = scanned.column(column.name).to_pylist()
        assert found == changes.table.column(column.name).to_pylist(), column.upstream
        assert found == upstream.printed("t", column), column.upstream
