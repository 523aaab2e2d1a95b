"""A table of a real upstream as a backfill reads it: planned, scanned span by span, its files read back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.backfill.plan import Plan, spans
from headwater.backfill.read_span import ScanJob, scan_span
from headwater.backfill.span import WHOLE
from headwater.config import SCAN_BATCH_BYTES
from headwater.decode.scanned import select_expression, text_expression, to_lake
from headwater.decode.values import arrow_schema
from headwater.model import Column, Condition, ScanResult, Span
from headwater.source.spans import Reach, ScanTable
from headwater.storage import LocalStorage
from support.owned import PERMIT


@dataclass(frozen=True)
class Bench:
    """A table on a real server, and a home for the files of its scans."""

    reach: Reach
    table: ScanTable
    home: Path

    @classmethod
    def of(
        cls,
        reach: Reach,
        home: Path,
        name: tuple[str, str],
        id: int,
        columns: tuple[Column, ...],
        key: tuple[str, ...],
        *,
        filter: Condition | None = None,
        identity: dict[str, str] | None = None,
    ) -> Self:
        """`name` is schema and table."""
        by_name = {c.name: c for c in columns}
        table = ScanTable(
            schema=name[0],
            name=name[1],
            columns=columns,
            key=key,
            select=tuple(select_expression(c) for c in columns),
            key_text=tuple(text_expression(by_name[k]) for k in key),
            filter=filter,
            upstream_id=id,
            identity=identity or {},
        )
        return cls(reach, table, home)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.table.columns

    @property
    def key(self) -> tuple[str, ...]:
        return self.table.key

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {c.name: c for c in self.columns}
        return tuple(by_name[k] for k in self.key)

    def job(self, span: Span, *, identity: dict[str, str] | None = None, **changes: Any) -> ScanJob:
        table = self.table if identity is None else replace(self.table, identity=identity)
        return replace(ScanJob(self.reach, table, span, LocalStorage(self.home), "base", PERMIT, "scan-1"), **changes)

    def plan(self, **options: int) -> Plan:
        return Plan.of(self.reach.read_extent(self.table), tuple(c.lake_type for c in self.key_columns), **options)

    def spans(self, plan: Plan, **options: Any) -> list[Span]:
        with self.reach.walk(self.table) as walk:
            return [*spans(plan, walk.next_bound, **options), plan.beyond]

    def open_scan(self, **options: Any) -> Any:
        """A scan as a task begins it."""
        chosen = {"lock_timeout_s": 5.0, "batch_bytes": 1 << 20, "hooks": lambda _: None, **options}
        return self.reach.open_scan(self.table, **chosen)

    def lake(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """A batch's rows as the lake would have them."""
        rows: list[dict[str, Any]] = to_lake(batch, self.columns, self.key)[0].to_pylist()
        return rows

    def read(self) -> tuple[pa.Table, dict[str, int]]:
        """The whole table as the lake would have it, and how many values of which columns it cannot keep."""
        batches, lost = [], Counter[str]()
        with self.open_scan(batch_bytes=SCAN_BATCH_BYTES) as scan:
            for batch in scan.batches(WHOLE):
                lake, unrepresentable = to_lake(batch, self.columns, self.key)
                batches.append(lake)
                lost.update(unrepresentable)
        return pa.Table.from_batches(batches, arrow_schema(self.columns)), dict(lost)

    def files(self, result: ScanResult) -> list[Path]:
        return [self.home / "base" / f.path for f in result.files]

    def rows(self, result: ScanResult) -> list[dict[str, Any]]:
        """What a scan wrote."""
        tables = [pq.read_table(path) for path in self.files(result)]
        return pa.concat_tables(tables).to_pylist() if tables else []

    def scan_all(self, parts: Sequence[Span], **changes: Any) -> list[dict[str, Any]]:
        """The rows of all spans in order, resuming wherever a scan stopped."""
        found: list[dict[str, Any]] = []
        waiting = list(parts)
        while waiting:
            span = waiting.pop(0)
            result = scan_span(self.job(span, **changes))
            found += self.rows(result)
            if result.stopped_at is not None:
                waiting.insert(0, Span(result.stopped_at, span.hi))
        return found
