"""A backfill as its user sees it: what it waits for, how far it is, how far behind; over the socket and as metrics."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.engine.serve.remote import Remote
from support.exposition import Read, read
from support.lake import definitions
from support.wait import wait_for

ROWS = 600


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def scrape(port: int) -> dict[str, Read]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return read(answer.read().decode())


def value(found: dict[str, Read], name: str, **labels: str) -> float:
    family = found[name] if name in found else found[name.rsplit("_", 1)[0]]
    return family.values[name, tuple(labels.items())]


def backfill(server: Remote, name: str) -> dict[str, Any]:
    rows = server.ask("SHOW BACKFILLS")[0].rows
    assert rows is not None
    return next(dict(r) for r in rows.to_pylist() if r["table"] == name)


def test_a_backfill_tells_what_it_waits_for_how_far_it_is_and_what_was_counted(
    database: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CAPTURE_SILENCE_S", "600")  # it is stopped until its lag was seen
    database.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
    database.execute(f"INSERT INTO orders SELECT i, 'v' || i FROM generate_series(1, {ROWS}) i")
    database.execute("ANALYZE orders")
    database.execute("CREATE TABLE other (id int PRIMARY KEY)")
    port = free_port()
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running(metrics_port=port):
        server = Remote(tmp_path / "home")
        hw.sql(definitions(database, []))
        wait_for(lambda: server.status().connections[0].state == "running", "the connection runs")
        with database.connect() as older:
            older.execute("BEGIN")
            older.execute("INSERT INTO other VALUES (1)")
            (pid,) = older.execute("SELECT pg_backend_pid()").fetchone()
            hw.sql("CREATE TABLE orders FROM CONNECTION pg WITH (backfill.rows_per_span = 200)")
            waits = wait_for(lambda: backfill(server, "orders")["waits_for"], "the older transaction is named", 60.0)
            assert f"process {pid}" in waits and "s old" in waits
            assert backfill(server, "orders")["state"] == "waiting"
            older.execute("ROLLBACK")
        wait_for(lambda: backfill(server, "orders")["state"] == "live", "the table is filled")
        done = backfill(server, "orders")
        assert (done["covered"], done["scanned_rows"], done["estimated_rows"]) == ("100 %", ROWS, ROWS)
        assert done["waits_for"] is None and done["error"] is None and done["position"]
        wait_for(lambda: backfill(server, "orders")["lag_bytes"] == 0, "the changelog has caught up")

        database.execute("UPDATE orders SET v = 'w' WHERE id <= 100")
        wait_for(lambda: value(scrape(port), "headwater_overlay_changes", table="orders") >= 100, "changes are counted")
        hw.sql("FOLD TABLE orders; SELECT count(*) FROM orders")
        found = scrape(port)
        assert value(found, "headwater_scanned_rows_total", table="orders") == ROWS
        assert value(found, "headwater_scan_seconds_count", table="orders") >= ROWS / 200
        assert value(found, "headwater_table_estimated_rows", table="orders") == ROWS
        assert value(found, "headwater_captured_changes_total", connection="pg") >= 100
        assert value(found, "headwater_fold_seconds_count", table="orders") >= 1
        assert value(found, "headwater_epoch_publish_seconds_count") >= 1
        assert value(found, "headwater_read_seconds_count") >= 1
        assert value(found, "headwater_slot_bytes", connection="pg") >= 0
        assert value(found, "headwater_tables", state="live") == 1
        assert value(found, "headwater_process_memory_bytes", process="capture") > 1e6
        assert all(v == 0 for v in found["headwater_capture_restarts_total"].values.values())
        shown = server.ask("SHOW METRICS")[0].rows
        assert shown is not None
        scanned = [r for r in shown.to_pylist() if r["name"] == "headwater_scanned_rows_total"]
        assert {"table=orders": float(ROWS)}.items() <= {r["labels"]: r["value"] for r in scanned}.items()

        (capture,) = hw._server.supervisor.pids()  # type: ignore[union-attr]
        os.kill(capture, signal.SIGSTOP)
        try:
            database.execute("INSERT INTO other SELECT generate_series(1, 5000)")
            late = wait_for(
                lambda: x if (x := server.status().connections[0]).lag_bytes else None, "the lag is seen", 60.0
            )
            assert late.lag_bytes > 100_000 and late.lag_s > 0 and late.slot_bytes > 100_000
        finally:
            os.kill(capture, signal.SIGCONT)
        wait_for(lambda: server.status().connections[0].lag_bytes == 0, "the changelog has caught up again", 60.0)

        x = hw.status().connections[0]
        assert x.lag_s is not None and x.lag_s < 60 and x.slot_bytes is not None and x.slot_limit_bytes is None
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        names = {r["name"] for r in hw.sql("SHOW METRICS")[0].rows.to_pylist()}
    assert "headwater_table_rows" in names and "headwater_scanned_rows_total" not in names
