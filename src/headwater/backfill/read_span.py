"""Scans one span: rows of one short transaction into files next to the base. It does not touch meta."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.backfill.files import FILE_BYTES, ROW_GROUP_BYTES, FileWriter
from headwater.backfill.filter import read_filter
from headwater.config import LOCK_TIMEOUT_S, SCAN_BATCH_BYTES
from headwater.decode.layout import RowLayout
from headwater.decode.scanned import select_expression, text_expression, to_lake
from headwater.decode.values import arrow_schema
from headwater.model import Bound, RelationInfo, ScanResult, Span
from headwater.ownership.permit import Permit
from headwater.settings.table import DEFAULTS
from headwater.source.spans import Hooks, Reach, ScanTable
from headwater.storage import Storage


@dataclass(frozen=True, slots=True)
class ScanJob:
    """Everything a scan needs, as values: it travels to a Spark task. Its repr hides the password."""

    reach: Reach
    table: ScanTable
    span: Span
    storage: Storage = field(compare=False)  # each open home has its own, with what it knows about the files
    base_path: str  # of the base, in the storage
    permit: Permit  # under which the files are written
    label: str  # prefix of their names
    scan_s: float = DEFAULTS.scan_s  # then the scan stops, so that control takes effect soon
    lock_timeout_s: float = LOCK_TIMEOUT_S
    batch_bytes: int = SCAN_BATCH_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    file_bytes: int = FILE_BYTES
    max_rows: int = 0  # the scan stops after this many, and the upstream reads no more; 0: no limit


def scan_table(relation: RelationInfo, identity: dict[str, str] | None = None) -> ScanTable:
    """The upstream table with what a scan selects from it for decoding. `identity` is its connection's."""
    return ScanTable(
        schema=relation.table_origin.schema,
        name=relation.table_origin.table,
        columns=relation.columns,
        key=relation.key,
        select=tuple(select_expression(c) for c in relation.columns),
        key_text=tuple(text_expression(c) for c in relation.key_columns),
        filter=read_filter(relation.filter, relation.columns) if relation.filter else None,
        upstream_id=relation.table_origin.upstream_id,
        identity=identity or {},
    )


def job_for(
    relation: RelationInfo,
    reach: Reach,
    identity: dict[str, str],
    span: Span,
    storage: Storage,
    permit: Permit,
    label: str,
) -> ScanJob:
    """The scan of one span of a relation; `identity` is its connection's."""
    return ScanJob(reach, scan_table(relation, identity), span, storage, relation.base_path, permit, label)


def scan_span(job: ScanJob, hooks: Hooks = lambda _: None) -> ScanResult:
    """Reads the span, or as much as fits into `scan_s` and `max_rows`, into files; they are durable on return.

    Nothing is committed anywhere: the caller records the result as an intent and adds the files to the base. If the
    scan fails, its files are removed.
    """
    deadline = time.monotonic() + job.scan_s
    converter = _Converter(job)
    with (
        job.reach.open_scan(
            job.table, lock_timeout_s=job.lock_timeout_s, batch_bytes=job.batch_bytes, hooks=hooks
        ) as scan,
        FileWriter(
            job.storage,
            job.base_path,
            arrow_schema(job.table.columns),
            job.permit,
            job.label,
            key=job.table.key,
            row_group_bytes=job.row_group_bytes,
            file_bytes=job.file_bytes,
        ) as writer,
    ):
        if scan.described is not None:  # values of a widened type must not become NULLs
            RowLayout.of(scan.described, job.table.columns, job.table.key)
        hooks("scan.before_rows")
        stopped_at: Bound | None = None
        for batch in scan.batches(job.span, job.max_rows):
            writer.write(converter.convert(batch))
            hooks("scan.batch")
            full = 0 < job.max_rows <= converter.rows
            if batch.num_rows and (full or time.monotonic() >= deadline):
                stopped_at = scan.bound_after(batch)
                scan.stop()
                break
        hooks("scan.after_rows")
        files = writer.close()
        scan.finish()
        hooks("scan.after_message")
    return ScanResult(
        saw=scan.seen.saw,
        high=scan.seen.high,
        files=files,
        rows=converter.rows,
        unrepresentable=dict(converter.unrepresentable),
        stopped_at=None if stopped_at == job.span.hi else stopped_at,  # it had reached the end
        server_life=scan.seen.server_life,
    )


class _Converter:
    """Converts batches to lake types and counts unrepresentable values."""

    def __init__(self, job: ScanJob) -> None:
        self._columns = job.table.columns
        self._key = job.table.key
        self.rows = 0
        self.unrepresentable: Counter[str] = Counter()

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        lake, unrepresentable = to_lake(batch, self._columns, self._key)
        self.rows += lake.num_rows
        self.unrepresentable.update(unrepresentable)
        return lake
