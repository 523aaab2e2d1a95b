"""Where a home stands, from meta alone and with what a server knows; and what it costs to ask."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.engine.live import Lag
from headwater.engine.status.status import status_of
from headwater.errors import Retry, SourceError
from headwater.meta import connections, epochs, relations, spans
from headwater.meta import tables as meta_tables
from headwater.model import (
    Bound,
    Column,
    ConnectionState,
    Control,
    EpochEntry,
    ScanResult,
    Span,
    SpanState,
    TableState,
    UpstreamType,
)
from headwater.source.upstream import LogEnd
from support.defined import add_table, home_with

COLUMNS = tuple(Column(f"c{i}", "BIGINT", UpstreamType("int8", 20, ordered=True)) for i in range(12))


@dataclass
class Serving:
    """A server that says what it is told to."""

    waits: dict[int, str] = field(default_factory=dict)
    rates: dict[int, float] = field(default_factory=dict)
    pid: int = 42

    def waiting_for(self, relation_id: int) -> str:
        return self.waits.get(relation_id, "")

    def preparing(self, connection_id: int) -> str:
        return ""

    def rate(self, relation_id: int) -> float:
        return self.rates.get(relation_id, 0.0)

    def lag(self, connection_id: int, position: str) -> Lag | None:
        return Lag(4096, 1.5)

    def log_end(self, connection_id: int) -> LogEnd | None:
        return LogEnd("0/FF", 0, 1000, 5000, "commits there wait for us")

    def overlay_changes(self, relation_id: int) -> int | None:
        return 7

    def ahead_bytes(self, connection_id: int) -> int | None:
        return 2048

    def paused(self, connection_id: int) -> bool:
        return False

    def processes(self) -> dict[str, list[int]]:
        return {"server": [self.pid]}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path / "home") as opened:
        yield opened


def table(home: Home, name: str, state: TableState = TableState.FILLING, *, block: int = 0, replaces: int = 0) -> int:
    with home.meta.write() as c:
        id = add_table(c, name, COLUMNS, ("c0",), upstream_id=100, block=block, replaces=replaces)
        relations.set_state(c, id, state)
    return id


def plan(home: Home, id: int, count: int, scanned: int = 0, covered: int = 0, rows: int = 1000) -> None:
    """Spans of which some are scanned, and of these some covered."""
    with home.meta.write() as c:
        spans.add(c, id, [Span(Bound((str(i),)), Bound((str(i + 1),))) for i in range(count)], 1.0)
        for i, s in enumerate(spans.all(c, id)[:scanned]):
            spans.scanned(c, s.id, ScanResult("1:1:", "0/9", (), rows), 0, "life")
            if i < covered:
                spans.cover(c, s.id, 5)
        relations.set_planned(c, id, True)


def one(home: Home, server: Serving | None = None, name: str = "orders"):  # type: ignore[no-untyped-def]
    return next(t for t in status_of(home, server).tables if t.name == name)


def test_progress_is_counted_in_spans_rows_and_estimates(home: Home) -> None:
    id = table(home, "orders")
    plan(home, id, 5, scanned=3, covered=2)
    with home.meta.write() as c:
        relations.set_rows_estimate(c, id, 9000)
    t = one(home, Serving(rates={id: 100.0}))
    assert (t.spans_done, t.spans_total, t.scanned_rows, t.covered) == (2, 5, 3000, 0.25)  # the last one was empty
    assert (t.rows_estimate, t.rate, t.left_s) == (9000, 100.0, 60.0)
    assert (t.lag_s, t.lag_bytes, t.overlay, t.connection) == (1.5, 4096, 7, "pg")
    assert (one(home).rate, one(home).left_s, one(home).lag_bytes) == (0.0, None, None)


def test_the_cut_of_an_idle_upstream_moves_without_an_epoch(home: Home) -> None:
    id = table(home, "orders", TableState.LIVE)
    plan(home, id, 2, 2, 2)
    with home.meta.write() as c:
        epochs.publish(c, [EpochEntry(1, 0, "0/10")], {})
        connections.advance(c, 1, "0/20")
    assert one(home).position == "0/20"
    with home.meta.write() as c:
        c.execute(sa.update(meta_tables.connection).values(committed_index=3))
    assert one(home).position == "0/10", "changes that no epoch shows yet are not in the cut"


def test_what_a_table_waits_for_is_shown_as_text(home: Home) -> None:
    id = table(home, "orders", TableState.WAITING)
    assert one(home).waiting_for == "a server: start `headwater run`"
    assert one(home, Serving({id: "process 4711, 12 s old"})).waiting_for == "process 4711, 12 s old"
    with home.meta.write() as c:
        relations.set_control(c, id, Control.PAUSED)
    paused = one(home, Serving({id: "process 4711"}))
    assert (paused.state, paused.waiting_for) == ("paused", "RESUME BACKFILL orders")
    with home.meta.write() as c:
        relations.set_control(c, id, Control.RUN)
        connections.set_state(c, 1, ConnectionState.RETRYING)
    assert one(home, Serving()).waiting_for == "connection pg"


def test_a_rate_limit_is_reported_and_0_waits_for_another(home: Home) -> None:
    id = table(home, "orders")
    for limit, waits, note in (("8000", "", "limited to 8,000 rows/s"), ("0", "ALTER TABLE orders SET", "")):
        with home.meta.write() as c:
            relations.set_options(c, id, {"backfill.rate_limit": limit})
        t = one(home, Serving({id: f"backfill.rate_limit = {limit}"}))
        assert t.waiting_for.startswith(waits) and bool(t.waiting_for) == bool(waits) and t.note.startswith(note)


def test_a_paused_backfill_has_no_rate_and_no_end(home: Home) -> None:
    id = table(home, "orders")
    plan(home, id, 5, scanned=3, covered=2)
    with home.meta.write() as c:
        relations.set_control(c, id, Control.PAUSED)
    t = one(home, Serving(rates={id: 100.0}))
    assert (t.state, t.rate, t.left_s) == ("paused", 0.0, None)


def test_a_complete_table_of_a_block_waits_for_the_others(home: Home) -> None:
    a, b = table(home, "a", TableState.LIVE, block=7), table(home, "b", block=7)
    plan(home, a, 2, 2, 2)
    plan(home, b, 2, 2, 1)
    assert one(home, Serving(), "a").waiting_for == "the other tables of its block: b"
    assert one(home, Serving(), "b").waiting_for == ""


def test_a_relation_that_takes_a_tables_place_is_its_resync(home: Home) -> None:
    old = table(home, "Orders", TableState.LIVE)
    new = table(home, relations.BESIDE + "orders", replaces=old)
    plan(home, new, 4, 1, 1)
    names = {t.name: t.state for t in status_of(home, Serving()).tables}
    assert names == {"Orders": "live", "Orders (resync)": "filling"}


def test_a_cancelled_backfill_says_what_its_rows_do_not_hold(home: Home) -> None:
    id = table(home, "orders", TableState.LIVE)
    plan(home, id, 2, 2, 2)
    assert one(home).note == ""
    with home.meta.write() as c:
        relations.set_control(c, id, Control.CANCELLED)
    assert "cancelled" in one(home).note


def test_an_error_comes_with_its_way_out_and_whether_it_is_retried(home: Home) -> None:
    table(home, "orders")
    failure = SourceError("source.unreachable", "no answer", "Start it.", Retry.AUTO)
    with home.meta.write() as c:
        connections.set_state(c, 1, ConnectionState.RETRYING, failure)
    for shown in (one(home), status_of(home, None).connections[0]):
        assert (shown.code, shown.error, shown.hint, shown.retry) == (
            *("source.unreachable", "no answer", "Start it."),
            "auto",
        )


def test_without_a_server_nothing_runs_and_the_lag_is_the_silence(home: Home) -> None:
    x = status_of(home, Serving()).connections[0]
    assert x.state == "running"
    assert (x.lag_s, x.lag_bytes, x.slot_bytes, x.slot_limit_bytes) == (1.5, 4096, 1000, 5000)
    assert x.note == "commits there wait for us"
    with home.meta.write() as c:
        c.execute(sa.update(meta_tables.connection).values(position_at=time.time() - 100))
    for state, shown in ((ConnectionState.RUNNING, "defined"), (ConnectionState.FAILED, "failed")):
        with home.meta.write() as c:
            connections.set_state(c, 1, state)
        x = status_of(home, None).connections[0]
        assert x.state == shown and x.lag_s == pytest.approx(100, abs=10)


def test_the_lag_behind_a_silent_upstream_is_the_time_without_progress(home: Home) -> None:
    class Serves(Serving):
        def lag(self, connection_id: int, position: str) -> Lag | None:
            return None

    with home.meta.write() as c:
        c.execute(sa.update(meta_tables.connection).values(position_at=time.time() - 100))
    assert status_of(home, Serves()).connections[0].lag_s is None, "it is about to be known"
    silence = SourceError("source.unreachable", "the upstream has not answered since noon", "Wait.", Retry.AUTO)
    home.live.failures.failed(Who("answer", connection=1), silence)
    x = status_of(home, Serves()).connections[0]
    assert (x.state, x.error) == ("running", silence.message) and x.lag_s == pytest.approx(100, abs=10)


def test_a_status_of_many_tables_with_many_spans_is_cheap(home: Home) -> None:
    ids = [table(home, f"t{i}") for i in range(200)]
    bounds = '{"lo": {"key": ["1"], "after": true}, "hi": {"key": ["2"], "after": true}}'
    row = {"bounds": bounds, "state": SpanState.COVERED, "saw": "1:1:" + "7," * 200, "again": 0, "rows": 9}
    with home.meta.write() as c:
        c.execute(
            sa.insert(meta_tables.span),
            [{**row, "relation_id": id, "ordinal": i, "log_index": 3} for id in ids for i in range(50)],
        )
        epochs.publish(c, [EpochEntry(1, 10, "0/10")], {})
    took = []
    for _ in range(7):
        began = time.process_time()
        found = status_of(home, Serving())
        took.append(time.process_time() - began)
    assert len(found.tables) == 200 and found.tables[0].spans_done == 50
    print(f"status of 200 tables with 50 spans: {statistics.median(took) * 1000:.1f} ms")
    assert statistics.median(took) < 0.05
