"""Scans one span, in a Spark task or here, and records what it saw and wrote, as one value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater import crash
from headwater.backfill.read_span import ScanJob, job_for, scan_span
from headwater.engine.home import Home
from headwater.engine.permit import Permit
from headwater.engine.spark.task import run_task
from headwater.meta import connections, relations, segments, spans
from headwater.meta.lease import Lease
from headwater.model import Json, RelationInfo, ScanResult, SpanInfo, SpanState
from headwater.settings.table import Settings
from headwater.source.connected import upstream_of
from headwater.source.kinds import kind


def scan(
    home: Home, held: Lease, session: SparkSession | None, relation: RelationInfo, info: SpanInfo, max_rows: int = 0
) -> int:
    """Reads the span, or the first part of it (at most `max_rows`, if that is not 0), and records it.

    Without a session it is read in this process. Returns the number of rows read; on an error the span is pending
    again.
    """
    with home.meta.owned(held) as c:
        if relations.get_or_none(c, relation.id) is None:
            return 0
        spans.set_state(c, info.id, SpanState.SCANNING)
        identity = connections.get(c, relation.origin.connection_id).identity
        life = connections.server_life(c, relation.origin.connection_id)
    try:
        upstream = upstream_of(home.meta, relation.origin.connection_id)
        job = job_for(relation, upstream.reach, identity, info.span, home.storage)
        job = dataclasses.replace(
            job,
            label=_label(info.id),
            slice_s=home.settings.slice_s,
            max_rows=max_rows or _oversized(relation, home.settings),
        )
        if info.again and not relation.ordered:
            # One snapshot for the whole table: two would again lose sight of rows that move from one to the other.
            job = dataclasses.replace(job, slice_s=math.inf, max_rows=0)
        with home.live.counters.time("headwater_scan_seconds", relation.id):
            work = _InTask(job, Permit(str(home.path), held.fence))
            result = Json.scan_result(work() if session is None else run_task(session, "scans", work))
        crash.here("scan.written")
        with home.meta.owned(held) as c:
            kept = relations.get_or_none(c, relation.id) is not None
            if kept:
                record(c, relation, info, result, life)
    except BaseException:
        with home.meta.owned(held) as c:
            unread = spans.give_up(c, info.id)
        if unread:
            remove_files(home, relation, (info.id,))  # a killed worker could not do it
        raise
    if not kept:
        home.storage.remove(f"{relation.base_path}/{file.path}" for file in result.files)
    home.live.counters.add("headwater_scanned_rows_total", result.rows, relation.id)
    crash.here("scan.recorded")
    return result.rows


def wanted_rows(relation: RelationInfo, settings: Settings) -> tuple[int, bool]:
    """How many rows a span is to have, and whether that was chosen for this table."""
    rows = int(relation.options.get("backfill.rows_per_span", settings.rows_per_span))
    return rows, rows != settings.rows_per_span


def _oversized(relation: RelationInfo, settings: Settings) -> int:
    """Where the user chose a size, a span that turns out far larger is cut there; otherwise time alone cuts it."""
    rows, chosen = wanted_rows(relation, settings)
    return 2 * rows if chosen else 0


def record(c: Connection, relation: RelationInfo, info: SpanInfo, result: ScanResult, life: str) -> None:
    """Writes a scan's one value down: what it saw, how far the log must come, its files, and where its log begins.

    `life` is the server's life before the scan began: if it is another one when the span is to be covered, what the
    scan saw may have been undone, and it is read again.
    """
    connection = connections.get(c, relation.origin.connection_id)
    txn_min = kind(connection.type).txn_min(result.saw)
    log_index = segments.first_unseen(c, connection.id, txn_min, connection.committed_index)
    spans.scanned(c, info.id, result, log_index, life)
    for column, count in result.unrepresentable.items():
        relations.note(
            c,
            relation.id,
            "value.unrepresentable",
            f"column {column}: values that the lake cannot keep are NULL",
            count,
        )


def remove_files(home: Home, relation: RelationInfo, unread: Collection[int]) -> None:
    """Removes what scans of these spans have written and nobody recorded.

    A span that is to be read has no other files: a part of a covered one that is read again is a span of its own.
    """
    labels = {_label(id) for id in unread}
    found = home.storage.list(relation.base_path)
    home.storage.remove([p for p in found if p.rsplit("/", 1)[1].rpartition("-")[0] in labels])


def _label(span_id: int) -> str:
    """How the names of a span's files begin; what follows is `-` and the file's own."""
    return f"scan-{span_id}"


class _InTask:
    """The scan as it travels to a worker."""

    def __init__(self, job: ScanJob, permit: Permit) -> None:
        self._job = job
        self._permit = permit

    def __call__(self) -> str:
        with self._permit.used():
            return Json.dump(scan_span(self._job, crash.scan_hook))
