"""The metrics of a home: their names, meanings and current values. `docs/metrics.md` lists them all."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sqlalchemy.engine import Connection

from headwater import __version__
from headwater.engine.commit.holds import Hold, holds
from headwater.engine.counters import Counters, Of, Timed
from headwater.engine.home import Home
from headwater.engine.live import Serving
from headwater.engine.query.freshness import behind
from headwater.engine.results import Status
from headwater.engine.status.status import shown_name, status_of
from headwater.engine.status.views import progress_of
from headwater.meta import connections, progress, relations, segments
from headwater.model import Control, SpanState, TableState

STATES = tuple(str(s) for s in (*TableState, Control.PAUSED))  # the values of RelationInfo.shown_state


Named = Sequence[tuple[Of, str]]  # the subjects of a metric, with their names


class Kind(StrEnum):
    """How a metric's value changes."""

    COUNTER = "counter"  # only grows, from 0 at the server's start
    GAUGE = "gauge"  # goes up and down
    SUMMARY = "summary"  # two numbers: `_count` (how often) and `_sum` (total seconds), both counters


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its name (by Prometheus conventions), kind, meaning, and label names."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One value. `name` is the metric's (a summary's: plus `_sum` or `_count`); `labels` are in the metric's order."""

    name: str
    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """A metric and its current values."""

    metric: Metric
    samples: tuple[Sample, ...]


_G, _C, _S = Kind.GAUGE, Kind.COUNTER, Kind.SUMMARY
CONNECTION, TABLE, HOLDER, VIEW = ("connection",), ("table",), ("connection", "holder"), ("view",)

METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("headwater_info", _G, "1, with Headwater's version as a label.", ("version",)),
        Metric("headwater_tables", _G, "Tables in each state.", ("state",)),
        Metric("headwater_table_state", _G, "1 for the state that a table is in.", ("table", "state")),
        Metric("headwater_connection_state", _G, "1 for the state that a connection is in.", ("connection", "state")),
        Metric("headwater_table_spans", _G, "Spans of a table by state.", ("table", "state")),
        Metric("headwater_table_covered_ratio", _G, "Share of a table's spans that readers see.", TABLE),
        Metric("headwater_table_rows", _G, "Rows read by the scans of a table's current spans.", TABLE),
        Metric("headwater_table_estimated_rows", _G, "Estimated rows of the upstream table.", TABLE),
        Metric("headwater_scanned_rows_total", _C, "Rows read by scans since the server started.", TABLE),
        Metric("headwater_scan_seconds", _S, "Finished scans, including failed ones, and their duration.", TABLE),
        Metric("headwater_scans_running", _G, "Running scans."),
        Metric("headwater_captured_changes_total", _C, "Changes in the changelog since it began.", CONNECTION),
        Metric("headwater_changelog_segments", _G, "Segments in the changelog.", CONNECTION),
        Metric("headwater_changelog_bytes", _G, "Size of the segments in the changelog.", CONNECTION),
        Metric("headwater_held_changes", _G, "Changes that a holder keeps from being removed.", HOLDER),
        Metric("headwater_held_seconds", _G, "Age of the oldest of these changes.", HOLDER),
        Metric("headwater_changelog_ahead_bytes", _G, "Size of the changes that are not in any base yet.", CONNECTION),
        Metric("headwater_capture_paused", _G, "1 while a capture is paused until folds catch up, else 0.", CONNECTION),
        Metric("headwater_lag_bytes", _G, "Upstream log that is not in the changelog yet.", CONNECTION),
        Metric("headwater_lag_seconds", _G, "How long the upstream has been ahead of the changelog.", CONNECTION),
        Metric("headwater_behind_seconds", _G, "Age of a result from the connection's tables.", CONNECTION),
        Metric("headwater_slot_bytes", _G, "Log that the upstream retains for us.", CONNECTION),
        Metric("headwater_slot_limit_bytes", _G, "Maximum log that the upstream retains for us.", CONNECTION),
        Metric("headwater_capture_restarts_total", _C, "Restarts of captures.", CONNECTION),
        Metric("headwater_overlay_changes", _G, "Changes that are not folded into the base yet.", TABLE),
        Metric("headwater_overlay_runs", _G, "Runs in the overlay.", TABLE),
        Metric("headwater_overlay_run_bytes", _G, "Size of the runs in the overlay, uncompressed.", TABLE),
        Metric("headwater_fold_seconds", _S, "Folds and their duration.", TABLE),
        Metric("headwater_view_state", _G, "1 for the state that a view is in.", ("view", "state")),
        Metric("headwater_view_epoch", _G, "Epoch of a view's newest version.", VIEW),
        Metric("headwater_view_lag_seconds", _G, "For how long a view has had a newer barrier to go to.", VIEW),
        Metric("headwater_view_changed_rows", _G, "Rows that a view's last refresh changed.", VIEW),
        Metric("headwater_view_refresh_seconds", _S, "Refreshes of a view and their duration.", VIEW),
        Metric("headwater_epoch", _G, "Number of the newest epoch."),
        Metric("headwater_epoch_age_seconds", _G, "Age of the newest epoch; it grows while nothing changes upstream."),
        Metric("headwater_epoch_publish_seconds", _S, "Epochs published for new changes, and the duration."),
        Metric("headwater_read_seconds", _S, "Queries of tables, including failed ones, and their duration."),
        Metric(
            "headwater_unrepresentable_values",
            _G,
            "Values that the lake cannot represent: they are NULL there.",
            TABLE,
        ),
        Metric("headwater_errors_total", _C, "Errors of connections, tables and the server's own loops.", ("code",)),
        Metric("headwater_process_memory_bytes", _G, "Memory of the server, its captures and Spark.", ("process",)),
    )
}


def collect(home: Home, server: Serving | None) -> list[Family]:
    """Every metric with its current values, in the order of METRICS; without a server only those from meta."""
    status = status_of(home, server)
    found = _Values()
    found.put("headwater_info", 1, __version__)
    found.put("headwater_epoch", status.epoch)
    found.put("headwater_epoch_age_seconds", status.epoch_age_s)
    _tables(found, status)
    _connections(found, status)
    with home.meta.read() as c:
        known = relations.tables(c)
        tables = {r.id: shown_name(r, known) for r in known}
        views = [(r.id, r.name) for r in relations.named(c) if r.view is not None]
        _views(found, c, server)
        linked = {x.id: x.name for x in connections.all(c)}
        _backfills(found, c, tables)
        _changelogs(found, c, linked)
        for x in behind(c, server, linked):
            found.put("headwater_behind_seconds", x.seconds, x.connection)
    if server is not None:
        for id, name in linked.items():
            found.put("headwater_changelog_ahead_bytes", server.ahead_bytes(id), name)
            found.put("headwater_capture_paused", float(server.paused(id)), name)
        _counted(found, home.live.counters, list(tables.items()), list(linked.items()), views)
        for kind, pids in server.processes().items():
            found.put("headwater_process_memory_bytes", sum(resident_bytes(pid) for pid in pids), kind)
    return found.families()


class _Values:
    """The values of one collection."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = {name: [] for name in METRICS}

    def put(self, name: str, value: float | None, *labels: str, suffix: str = "") -> None:
        """Adds one value; None adds nothing."""
        assert len(labels) == len(METRICS[name].labels)
        if value is not None:
            self._samples[name].append(Sample(name + suffix, labels, value))

    def has(self, name: str) -> bool:
        return bool(self._samples[name])

    def families(self) -> list[Family]:
        return [Family(METRICS[name], tuple(samples)) for name, samples in self._samples.items() if samples]


def _tables(found: _Values, status: Status) -> None:
    for state in STATES:
        found.put("headwater_tables", sum(t.state == state for t in status.tables), state)
    for t in status.tables:
        found.put("headwater_table_state", 1, t.name, t.state)
        found.put("headwater_table_covered_ratio", t.covered, t.name)
        found.put("headwater_table_rows", t.scanned_rows, t.name)
        found.put("headwater_table_estimated_rows", t.rows_estimate, t.name)
        found.put("headwater_overlay_changes", t.overlay, t.name)
        found.put("headwater_unrepresentable_values", t.unrepresentable, t.name)


def _views(found: _Values, c: Connection, server: Serving | None) -> None:
    known = relations.all(c)
    reached = progress_of(c, known, server)
    for r in known:
        if r.view is None or r.replaces:
            continue
        view = reached[r.id]
        found.put("headwater_view_state", 1, r.name, r.shown_state)
        found.put("headwater_view_epoch", view.epoch, r.name)
        found.put("headwater_view_lag_seconds", view.lag_s, r.name)
        found.put("headwater_view_changed_rows", view.last.rows_changed if view.last else None, r.name)


def _connections(found: _Values, status: Status) -> None:
    for x in status.connections:
        found.put("headwater_connection_state", 1, x.name, x.state)
        found.put("headwater_captured_changes_total", x.index, x.name)
        found.put("headwater_lag_bytes", x.lag_bytes, x.name)
        found.put("headwater_lag_seconds", x.lag_s, x.name)
        found.put("headwater_slot_bytes", x.slot_bytes, x.name)
        found.put("headwater_slot_limit_bytes", x.slot_limit_bytes, x.name)


def _backfills(found: _Values, c: Connection, tables: dict[int, str]) -> None:
    spans, runs = progress.of_all(c), progress.runs(c)
    found.put("headwater_scans_running", sum(p.counts.get(SpanState.SCANNING, 0) for p in spans.values()))
    for id, name in tables.items():
        for state in SpanState:
            found.put("headwater_table_spans", spans[id].counts.get(state, 0), name, state)
        count, size = runs.get(id, (0, 0))
        found.put("headwater_overlay_runs", count, name)
        found.put("headwater_overlay_run_bytes", size, name)


def _changelogs(found: _Values, c: Connection, linked: dict[int, str]) -> None:
    kept = segments.sizes(c)
    for id, name in linked.items():
        count, size = kept.get(id, (0, 0))
        found.put("headwater_changelog_segments", count, name)
        found.put("headwater_changelog_bytes", size, name)
    now = time.time()
    held: dict[tuple[str, str], Hold] = {}
    for h in (h for connection in connections.all(c) for h in holds(c, connection)):
        held.setdefault((h.connection, h.holder.split(":")[0]), h)  # the reader with the lowest index represents all
    for labels, h in held.items():
        found.put("headwater_held_changes", h.changes, *labels)
        found.put("headwater_held_seconds", 0 if h.since is None else now - h.since, *labels)


def _counted(found: _Values, counters: Counters, tables: Named, linked: Named, views: Named) -> None:
    """Adds this process's counters. Each table has a value from the start, so that its first increase is visible."""
    about: dict[tuple[str, ...], Named] = {(): [("", "")], TABLE: tables, CONNECTION: linked, VIEW: views}
    for m in METRICS.values():
        if m.kind is Kind.GAUGE or found.has(m.name):
            continue
        counts, times = counters.counted(m.name), counters.timed(m.name)
        for of, name in about[m.labels] if m.labels in about else [(code, str(code)) for code in counts]:
            labels = (name,) if m.labels else ()
            if m.kind is Kind.COUNTER:
                found.put(m.name, counts.get(of, 0.0), *labels)
            else:
                timed = times.get(of, Timed())
                found.put(m.name, timed.count, *labels, suffix="_count")
                found.put(m.name, timed.seconds, *labels, suffix="_sum")


def resident_bytes(pid: int) -> int:
    """A process's resident memory; 0 once it has exited."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
