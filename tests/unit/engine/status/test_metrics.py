"""Metrics: counted in any thread, named after Prometheus' conventions, written as its text format, served over HTTP."""

from __future__ import annotations

import http.client
import os
import re
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headwater.engine.counters import Counters
from headwater.engine.home import Home
from headwater.engine.live import Lag
from headwater.engine.status.metrics import METRICS, Family, Kind, Metric, Sample, collect, resident_bytes
from headwater.errors import MachineError
from headwater.meta import epochs, relations, views
from headwater.observe.endpoint import MetricsEndpoint, observed
from headwater.observe.exposition import CONTENT_TYPE, text
from headwater.source.upstream import LogEnd
from headwater.sql import listing
from headwater.sql.parse import parse
from support.defined import home_with
from support.exposition import read


class Serving:
    """A server that has nothing to do."""

    pid = os.getpid()

    def waiting_for(self, relation_id: int) -> str:
        return ""

    preparing = waiting_for

    def rate(self, relation_id: int) -> float:
        return 0.0

    def lag(self, connection_id: int, position: str) -> Lag | None:
        return Lag(4096, 1.5)

    def log_end(self, connection_id: int) -> LogEnd | None:
        return LogEnd("0/FF", 0, 1000, 5000)

    def overlay_changes(self, relation_id: int) -> int | None:
        return 7

    def ahead_bytes(self, connection_id: int) -> int | None:
        return 2048

    def paused(self, connection_id: int) -> bool:
        return False

    def processes(self) -> dict[str, list[int]]:
        return {"server": [self.pid], "capture": [], "spark": []}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path / "home", 'Or"ders\\', "zwei\nZeilen", running=False) as opened:
        yield opened


def test_counts_of_many_threads_are_all_there() -> None:
    counters = Counters()
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns all the time

    def work() -> None:
        for i in range(2000):
            counters.add("a", 2, of=i % 3)
            counters.took("b", 0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(usual)
    assert sum(counters.counted("a").values()) == 16_000
    assert (counters.timed("b")[""].count, counters.timed("b")[""].seconds) == (8000, 4000.0)


def test_a_block_is_timed_however_it_ends() -> None:
    counters = Counters()
    with pytest.raises(ValueError), counters.time("read"):
        raise ValueError
    assert counters.timed("read")[""].count == 1


@pytest.mark.parametrize("m", METRICS.values(), ids=lambda m: m.name)
def test_a_name_follows_the_conventions(m: Metric) -> None:
    assert re.fullmatch(r"headwater(_[a-z]+)+", m.name)
    assert m.name.endswith("_total") == (m.kind is Kind.COUNTER)
    assert m.kind is not Kind.SUMMARY or m.name.endswith("_seconds")
    assert not m.name.endswith(("_sum", "_count", "_bucket"))
    assert m.help[0].isupper() or m.help[0].isdigit()
    assert m.help.endswith(".")
    assert ("byte" in m.name) == m.name.endswith("_bytes") and ("second" in m.name) == m.name.endswith("_seconds")


def test_a_page_is_read_back_by_a_strict_reader(home: Home) -> None:
    home.live.counters.took("headwater_fold_seconds", 1.25, of=1)
    home.live.counters.add("headwater_errors_total", of="source.unreachable")
    home.live.counters.add("headwater_capture_restarts_total", of=99)  # of a connection that was dropped
    families = read(text(collect(home, Serving())))
    assert families.keys() <= METRICS.keys()
    quoted, lines = (("table", 'Or"ders\\'),), (("table", "zwei\nZeilen"),)
    folds = families["headwater_fold_seconds"].values
    assert folds["headwater_fold_seconds_sum", quoted] == 1.25 and folds["headwater_fold_seconds_count", quoted] == 1
    assert folds["headwater_fold_seconds_count", lines] == 0, "a table has its number before its first fold"
    assert families["headwater_errors_total"].values == {
        ("headwater_errors_total", (("code", "source.unreachable"),)): 1.0
    }
    assert families["headwater_capture_restarts_total"].values == {
        ("headwater_capture_restarts_total", (("connection", "pg"),)): 0.0
    }
    assert families["headwater_lag_seconds"].values[("headwater_lag_seconds", (("connection", "pg"),))] == 1.5
    states = families["headwater_tables"].values
    assert {dict(labels)["state"]: n for (_, labels), n in states.items()} == {
        **dict.fromkeys(["waiting", "filling", "live", "failed", "paused"], 0.0),
        "defined": 2.0,
    }
    memory = families["headwater_process_memory_bytes"].values
    assert memory["headwater_process_memory_bytes", (("process", "server"),)] > 1e6


def test_a_running_server_has_a_value_for_every_metric_that_is_not_an_error(home: Home) -> None:
    with home.meta.write() as c:
        id = relations.add(
            c,
            name="totals",
            connection_id=0,
            upstream_schema="",
            upstream_table="",
            upstream_id=0,
            columns=(),
            key=(),
            options={},
            statement="",
        )
        views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=None)
        views.add_version(c, id, views.add_barrier(c, epochs.publish(c, [], {}).id).epoch)
        views.record(c, id, views.Refresh(0, 1, "rows", "", 1, 1, 1.0))
    missing = METRICS.keys() - {f.metric.name for f in collect(home, Serving())}
    assert missing == {"headwater_errors_total", "headwater_table_estimated_rows"}


def test_without_a_server_only_what_meta_knows_is_reported(home: Home) -> None:
    home.live.counters.add("headwater_errors_total", of="source.unreachable")
    names = {f.metric.name for f in collect(home, None)}
    assert "headwater_tables" in names and "headwater_captured_changes_total" in names
    assert not names & {"headwater_errors_total", "headwater_read_seconds", "headwater_lag_bytes"}


@given(some.text(), some.text(), some.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_any_label_and_any_number_survive(label: str, help: str, value: float) -> None:
    metric = Metric("headwater_x", Kind.GAUGE, "Help.", ("a", "b"))
    page = text([Family(metric, (Sample("headwater_x", (label.replace("\r", ""), "fix"), value),))])
    ((_, labels), found) = next(iter(read(page)["headwater_x"].values.items()))
    assert (dict(labels)["a"], dict(labels)["b"], found) == (label.replace("\r", ""), "fix", value)


def test_numbers_keep_all_their_digits() -> None:
    values = (0, 3.0, 2**53, 123456789012.25, 0.1, 1e-7)
    metric = Metric("headwater_x_total", Kind.COUNTER, "Help.", ("a",))
    page = text([Family(metric, tuple(Sample("headwater_x_total", (str(i),), v) for i, v in enumerate(values)))])
    assert tuple(read(page)["headwater_x_total"].values.values()) == values


def test_a_family_is_its_help_its_type_and_its_numbers() -> None:
    counter = Metric("headwater_x_total", Kind.COUNTER, "All\\of\nit.", ("a",))
    summary = Metric("headwater_y_seconds", Kind.SUMMARY, "How long.")
    gauge = Metric("headwater_info", Kind.GAUGE, "1.", ("version",))
    page = text(
        [
            Family(counter, (Sample("headwater_x_total", ('q"',), 2),)),
            Family(summary, (Sample("headwater_y_seconds_count", (), 3), Sample("headwater_y_seconds_sum", (), 0.5))),
            Family(gauge, (Sample("headwater_info", ("0.1",), 1),)),
        ]
    )
    assert page.splitlines() == [
        "# HELP headwater_x_total All\\\\of\\nit.",
        "# TYPE headwater_x_total counter",
        'headwater_x_total{a="q\\""} 2.0',
        "# HELP headwater_y_seconds How long.",
        "# TYPE headwater_y_seconds summary",
        "headwater_y_seconds_count 3.0",
        "headwater_y_seconds_sum 0.5",
        "# HELP headwater_info 1.",
        "# TYPE headwater_info gauge",
        'headwater_info{version="0.1"} 1.0',
    ]


def test_the_endpoint_answers_on_the_loopback_address_until_it_is_closed(home: Home) -> None:
    port = free_port()
    with observed(home, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert "headwater_tables" in read(answer.read().decode())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("HEAD", "/metrics")
        head = connection.getresponse()
        assert head.status == 200 and head.read() == b""
        connection.close()
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        assert e.value.code == 404
        with pytest.raises(MachineError) as taken:
            MetricsEndpoint(port, str)
        assert taken.value.code == "server.port" and taken.value.exit_status == 3
    MetricsEndpoint(port, str).close()  # the port is free again
    with pytest.raises(urllib.error.URLError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
    assert isinstance(refused.value.reason, ConnectionRefusedError)


def test_a_page_that_cannot_be_made_is_an_error_of_that_scrape_alone() -> None:
    pages = iter([RuntimeError("secret"), "fine\n"])

    def page() -> str:
        value = next(pages)
        if isinstance(value, Exception):
            raise value
        return value

    endpoint = MetricsEndpoint(0, page)
    try:
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(endpoint.url, timeout=5)
        assert e.value.code == 500 and b"secret" not in e.value.read()
        assert urllib.request.urlopen(endpoint.url, timeout=5).read() == b"fine\n"
    finally:
        endpoint.close()


def test_no_port_is_no_endpoint(home: Home) -> None:
    before = threading.active_count()
    with observed(home, 0):
        assert threading.active_count() == before


def test_show_metrics_lists_names_labels_values_and_meanings(home: Home) -> None:
    home.live.server = Serving()
    (statement,) = parse("SHOW METRICS")
    result = listing.run(home, statement)
    assert result.columns == ("name", "labels", "value", "help") and result.rows is not None
    rows = result.rows.to_pylist()
    assert {"name": "headwater_slot_limit_bytes", "labels": "connection=pg", "value": 5000.0} in [
        {k: v for k, v in r.items() if k != "help"} for r in rows
    ]
    assert all(METRICS[re.sub("_(sum|count)$", "", r["name"])].help == r["help"] for r in rows)


def test_show_backfills_lists_every_table(home: Home) -> None:
    (statement,) = parse("SHOW BACKFILLS")
    result = listing.run(home, statement)
    assert result.rows is not None and result.rows.num_rows == 2
    row = result.rows.to_pylist()[0]
    assert (row["state"], row["covered"], row["spans"], row["time_left"]) == ("defined", "0 %", "0/0", None)
    assert row["waits_for"] == "a server: start `headwater run`"


def test_memory_of_a_process_that_is_gone_is_none() -> None:
    assert resident_bytes(os.getpid()) > 1e6 and resident_bytes(2**22 + 1) == 0


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
