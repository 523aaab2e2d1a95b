"""Random values of many types of every upstream: what a scan gives, the log gives, to the bit."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from support.upstreams import Upstream
from support.upstreams.base import TableLog

ROWS = 15
MOVED = 1000


@pytest.fixture
def stored(upstream: Upstream) -> Iterator[tuple[Upstream, TableLog]]:
    columns = ", ".join(f"c{i} {t}" for i, t in enumerate(upstream.random_values))
    upstream.execute(f"CREATE TABLE r (id int PRIMARY KEY, {columns}) {upstream.table_tail}")
    log = upstream.log("r")
    yield upstream, log
    log.close()


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_scan_and_log_agree_to_the_bit(
    stored: tuple[Upstream, TableLog], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    upstream, log = stored
    types = upstream.random_values
    rows = data.draw(st.lists(st.tuples(*(st.none() | s for s in types.values())), min_size=1, max_size=ROWS))
    upstream.execute("TRUNCATE TABLE r")
    log.read()
    upstream.store("r", rows)
    upstream.execute(f"UPDATE r SET id = id + {MOVED}")
    columns = upstream.columns("r")
    scanned, lost = upstream.bench(tmp_path_factory.mktemp("scan"), "r").read()
    changes = log.changes(columns)
    note(f"unrepresentable: {lost} from the scan, {changes.unrepresentable} from the log")
    names = [c.name for c in columns if c.name != "id"]
    logged = [exact(r) for r in changes.table.select(names).to_pylist()]
    assert [exact(r) for r in scanned.select(names).to_pylist()] == logged[: len(rows)] == logged[len(rows) :]
    assert scanned.column("id").to_pylist() == changes.table.column("id").to_pylist()[len(rows) :]
    assert changes.table.column("__old").to_pylist() == [None] * len(rows) + [{"id": i} for i in range(len(rows))]
    assert {name: 2 * count for name, count in lost.items()} == changes.unrepresentable
    for i, type_ in enumerate(types):
        if type_ in upstream.exact_types:
            assert exact(scanned.column(f"c{i}").to_pylist()) == exact([row[i] for row in rows]), type_


def exact(value: Any) -> Any:
    """A value that is equal only to the same bits (NaN to NaN, but 0 not to -0)."""
    if isinstance(value, dict):
        return {k: exact(v) for k, v in value.items()}
    if isinstance(value, list):
        return [exact(v) for v in value]
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value)
    return value
