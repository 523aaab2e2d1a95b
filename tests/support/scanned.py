"""What the benches of both sources do with scans: read what they wrote, and go on where one stopped."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.backfill.read_span import ScanJob, scan_span
from headwater.model import ScanResult, Span


class Scanned:
    """A table whose scans write below `home`."""

    home: Path

    @abstractmethod
    def job(self, span: Span, **changes: Any) -> ScanJob: ...

    def rows(self, result: ScanResult) -> list[dict[str, Any]]:
        tables = [pq.read_table(self.home / "base" / f.path) for f in result.files]
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
