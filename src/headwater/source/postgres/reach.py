"""How to reach a PostgreSQL for scans: a value that travels to tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.source.postgres.client.session import Endpoint
from headwater.source.postgres.scan import extent
from headwater.source.postgres.scan.cut import PostgresCut, upstream_cut
from headwater.source.postgres.scan.read_spans import TableScan
from headwater.source.spans import Extent, Hooks, OnWait, ScanTable


@dataclass(frozen=True, slots=True)
class PostgresReach:
    """`source.spans.Reach` for PostgreSQL."""

    endpoint: Endpoint

    def open_scan(self, table: ScanTable, *, lock_timeout_s: float, batch_bytes: int, hooks: Hooks) -> TableScan:
        return TableScan(self.endpoint, table, lock_timeout_s=lock_timeout_s, batch_bytes=batch_bytes, hooks=hooks)

    def read_extent(self, table: ScanTable) -> Extent:
        return extent.read_extent(self.endpoint, table)

    def walk(self, table: ScanTable) -> extent.PostgresKeyWalk:
        return extent.PostgresKeyWalk(self.endpoint, table)

    @contextmanager
    def cut(self, on_wait: OnWait) -> Iterator[PostgresCut]:
        with upstream_cut(self.endpoint, on_wait=lambda who: on_wait("; ".join(map(str, who)))) as cut:
            yield cut
