"""Scans one span, in a Spark task or in this process, and records what it saw and wrote as one value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater import crash, stored
from headwater.backfill.files import scan_label
from headwater.backfill.read_span import ScanJob, job_for, scan_span
from headwater.engine.home import Home
from headwater.engine.spark.task import run_task
from headwater.meta import connections, relations, segments, spans
from headwater.model import RelationInfo, ScanResult, SpanInfo, SpanState
from headwater.ownership.lease import Lease
from headwater.ownership.permit import Written, written
from headwater.settings.table import Settings
from headwater.source.connected import upstream_of
from headwater.source.kinds import kind


def scan(
    home: Home, lease: Lease, session: SparkSession | None, relation: RelationInfo, info: SpanInfo, max_rows: int = 0
) -> int:
    """Reads the span, or the first part of it (at most `max_rows`; 0: no limit), and records the result.

    Without a session it is read in this process. Returns the number of rows read; on an error the span becomes pending
    again.
    """
    with home.meta.owned(lease) as c:
        if relations.get_or_none(c, relation.id) is None:
            return 0
        spans.set_state(c, info.id, SpanState.SCANNING)
        identity = connections.get(c, relation.table_origin.connection_id).identity
        life = connections.server_life(c, relation.table_origin.connection_id)
    try:
        upstream = upstream_of(home.meta, relation.table_origin.connection_id)
        label = scan_label(info.id)
        job = job_for(relation, upstream.reach, identity, info.span, home.storage, lease.permit, label)
        job = dataclasses.replace(
            job,
            scan_s=home.settings.scan_s,
            max_rows=max_rows or _oversized(relation, home.settings),
        )
        if info.again and not relation.ordered:
            # One snapshot for the whole table: with two, rows could again move from one to the other unseen.
            job = dataclasses.replace(job, scan_s=math.inf, max_rows=0)
        with home.live.counters.time("headwater_scan_seconds", relation.id):
            work = _InTask(job)
            result = stored.scan_result(work() if session is None else run_task(session, "scans", work))
        crash.here("scan.written")
        with home.meta.owned(lease) as c:
            kept = relations.get_or_none(c, relation.id) is not None
            if kept:
                record(c, relation, info, result, life)
    except BaseException:
        with home.meta.owned(lease) as c:
            unread = spans.give_up(c, info.id)
        if unread:
            remove_files(home, lease, relation, (info.id,))  # a killed worker could not do it
        raise
    if not kept:
        home.storage.remove(f"{relation.base_path}/{file.path}" for file in result.files)
    home.live.counters.add("headwater_scanned_rows_total", result.rows, relation.id)
    crash.here("scan.recorded")
    return result.rows


def wanted_rows(relation: RelationInfo, settings: Settings) -> tuple[int, bool]:
    """How many rows a span should have, and whether the user chose that for this table."""
    rows = int(relation.options.get("backfill.rows_per_span", settings.rows_per_span))
    return rows, rows != settings.rows_per_span


def _oversized(relation: RelationInfo, settings: Settings) -> int:
    """The limit at which a scan splits an oversized span, if the user chose a size; 0: only time splits it."""
    rows, chosen = wanted_rows(relation, settings)
    return 2 * rows if chosen else 0


def record(c: Connection, relation: RelationInfo, info: SpanInfo, result: ScanResult, life: str) -> None:
    """Records a scan's result: its snapshot, how far the log must advance, its files, and where its overlay begins.

    `life` is the server's life before the scan began: if it has changed when the span is to be covered, what the scan
    saw may have been undone, and the span is read again.
    """
    connection = connections.get(c, relation.table_origin.connection_id)
    txn_min = kind(connection.type).txn_min(result.saw)
    log_index = segments.first_unseen(c, connection.id, txn_min, connection.committed_index)
    spans.scanned(c, info.id, result, log_index, life)
    for column, count in result.unrepresentable.items():
        relations.note(
            c,
            relation.id,
            "value.unrepresentable",
            f"column {column}: values that the lake cannot represent are NULL",
            count,
        )


def remove_files(home: Home, lease: Lease, relation: RelationInfo, unread: Collection[int]) -> None:
    """Deletes the files that this owner's scans of these spans wrote; immediately, because the disk may be full.

    The spans will be scanned again, so they have no other files: a rescanned part of a covered span is a span of its
    own. The sweep deletes whatever a lost worker still writes.
    """
    own = {Written(scan_label(id), lease.fence) for id in unread}
    home.storage.remove([path for path in home.storage.list(relation.base_path) if written(path) in own])


class _InTask:
    """The scan as a function that Spark can send to a worker."""

    def __init__(self, job: ScanJob) -> None:
        self._job = job

    def __call__(self) -> str:
        return stored.dump(scan_span(self._job, crash.scan_hook))
