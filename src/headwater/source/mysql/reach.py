"""How to reach MySQL, as a value that travels to tasks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from headwater.source.mysql.client.session import Endpoint
from headwater.source.mysql.scan.cut import upstream_cut
from headwater.source.mysql.scan.extent import MysqlKeyWalk, read_extent
from headwater.source.mysql.scan.read_spans import MysqlScan
from headwater.source.spans import Extent, Hooks, KeyWalk, OnWait, Scan, ScanTable, UpstreamCut


@dataclass(frozen=True, slots=True)
class MysqlReach:
    """An upstream MySQL or MariaDB to read tables from; see `source.spans.Reach`."""

    endpoint: Endpoint
    shift: int = 0  # of the positions of cuts
    may_lock: bool = False  # every commit, briefly, if MySQL never stands still for a cut

    def open_scan(self, table: ScanTable, *, lock_timeout_s: float, batch_bytes: int, hooks: Hooks) -> Scan:
        return MysqlScan(self.endpoint, table, lock_timeout_s=lock_timeout_s, batch_bytes=batch_bytes, hooks=hooks)

    def read_extent(self, table: ScanTable) -> Extent:
        return read_extent(self.endpoint, table)

    def walk(self, table: ScanTable) -> KeyWalk:
        return MysqlKeyWalk(self.endpoint, table)

    def cut(self, on_wait: OnWait) -> AbstractContextManager[UpstreamCut]:
        return upstream_cut(self.endpoint, on_wait, self.shift, may_lock=self.may_lock)
