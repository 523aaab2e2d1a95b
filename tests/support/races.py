"""A table of two spans of any upstream, its scans and its log put together by the rule, without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater.backfill.read_span import Hooks, scan_span
from headwater.backfill.span import locate, one_key
from headwater.model import Bound, CoveredSpan, Layout, RelationInfo, ScanResult, Span
from headwater.relation.judge import judge
from headwater.relation.net import Judgement, net
from headwater.source.names import OLD, TXN
from support.relation import Row, applied, relation_of
from support.upstreams import Upstream

ROOM = 1000  # keys of one race
Rows = dict[tuple[Any, ...], Row]
Judge = Callable[[Layout, Sequence[ScanResult], pa.Table], Judgement]


class Track:
    """The table `t`, and the log of everything that happens to it; many races run on it side by side."""

    def __init__(self, upstream: Upstream, home: Path, races: int) -> None:
        self.upstream = upstream
        upstream.execute("CREATE TABLE later (id int PRIMARY KEY)")
        upstream.execute(f"CREATE TABLE t (id int PRIMARY KEY, v int, large {upstream.large_column})")
        self.log = upstream.log("t")
        for race in range(races):
            upstream.fill("t", 4, f"{race * ROOM} + i * 10, i, {upstream.large}")
        self.log.read()
        self.table = upstream.bench(home, "t")
        self.relation: RelationInfo = relation_of(self.table.columns, self.table.key)
        self.races = [Race(self, number * ROOM) for number in range(races)]
        self.sees = upstream.seam().sees
        self._later = 0

    def later(self) -> None:
        """A transaction that begins and ends."""
        self._later += 1
        self.upstream.execute(f"INSERT INTO later VALUES ({self._later})")

    def rows(self) -> Rows:
        """The upstream's rows as they are now."""
        found = self.upstream.execute("SELECT id, v, large FROM t")
        return {(id,): {"id": id, "v": v, "large": large} for id, v, large in found}

    def read_log(self) -> pa.Table:
        """All changes since the races began."""
        return self.log.changes(self.table.columns, self.table.key).table


@dataclass
class Race:
    """Rows 10, 20, 30 and 40 from a first key on, in two spans, and their scans as they are made."""

    track: Track
    first: int
    scans: list[tuple[Span, ScanResult]] = field(default_factory=list)
    _read: dict[str, list[Row]] = field(default_factory=dict)  # of files, by what scanned them

    @property
    def spans(self) -> tuple[Span, Span]:
        low, middle, high = (Bound((str(self.first + n),)) for n in (0, 25, ROOM - 1))
        return Span(low, middle), Span(middle, high)

    def statement(self, text: str) -> str:
        """The statement with this race's keys in place of 10, 20 …"""
        return re.sub(r"<(\d+)>", lambda m: str(self.first + int(m[1])), text)

    def scan(self, span: Span, hooks: Hooks = lambda _: None, **changes: Any) -> None:
        """Reads a span in small batches."""
        self.scans.append((span, scan_span(self.track.table.job(span, batch_bytes=100, **changes), hooks)))

    def upstream(self, rows: Rows) -> Rows:
        """This race's part of the upstream's rows."""
        return {k: row for k, row in rows.items() if self.first < k[0] < self.first + ROOM}

    def lake(self, changes: pa.Table, by: Judge | None = None) -> tuple[Rows, set[tuple[Any, ...]]]:
        """What a reader sees of the spans scanned so far, and the keys that must be scanned again."""
        layout = self.layout()
        results = [r for _, r in self._in_order()]
        judged = (by or self.by_the_rule)(layout, results, changes)
        overlay = net([changes], self.track.table.columns, self.track.table.key, judged)
        base: Rows = {(row["id"],): row for result in results for row in self._rows(result)}
        return applied(base, overlay, self.track.table.columns, self.track.table.key)

    def layout(self) -> Layout:
        parts = [CoveredSpan(s, 0, 0, (r.saw,)) for s, r in self._in_order()]
        return Layout(1, 0, tuple(parts), False)

    def scan_again(self, key: tuple[Any, ...]) -> None:
        """Removes a key from its span and reads it alone, like the engine does with a row that nobody has whole."""
        hole = one_key(tuple(map(str, key)))
        (place,) = self.inside([s for s, _ in self._in_order()], [key])
        span, result = self._in_order()[place]
        self.scans.remove((span, result))
        without = [row for row in self._rows(result) if (row["id"],) != key]
        assert len(without) == result.rows, "a hole has no row in the base"
        self.scans += [(Span(span.lo, hole.lo), result), (Span(hole.hi, span.hi), ScanResult(result.saw, "", (), 0))]
        self.scan(hole)

    def inside(self, spans: Sequence[Span], keys: Sequence[tuple[Any, ...]]) -> list[int]:
        """For each key the ordinal of its span, or -1."""
        table = pa.table({"id": pa.array([k[0] for k in keys], pa.int32())})
        return locate(spans, self.track.relation.key_columns, table).tolist()

    def by_the_rule(self, layout: Layout, _: Sequence[ScanResult], changes: pa.Table) -> Judgement:
        judged = judge(self.track.relation, layout, changes, self.track.sees)
        assert judged is not None
        return judged

    def by_watermark(self, layout: Layout, results: Sequence[ScanResult], changes: pa.Table) -> Judgement:
        """The wrong rule: a change was seen iff its commit is in the log before the place taken with the scan."""
        number = self.track.upstream.seam().number
        high = np.array([number(r.high) for r in results], np.int64)
        commit = np.array([self.track.log.commits[txn] for txn in changes[TXN].to_pylist()], np.int64)
        spans = [s.span for s in layout.spans]

        def later(keys: pa.Table) -> NDArray[np.bool_]:
            place = locate(spans, self.track.relation.key_columns, keys)
            result: NDArray[np.bool_] = (place >= 0) & (commit >= high[place])
            return result

        old = pc.coalesce(pc.struct_field(changes[OLD], [0]), changes["id"])
        moved = pc.is_valid(changes[OLD]).to_numpy()
        counts_old = later(pa.table({"id": old})) & moved
        return Judgement(later(changes.select(["id"])), counts_old, counts_old, np.ones(changes.num_rows, np.bool_))

    def _rows(self, result: ScanResult) -> list[Row]:
        if result.saw + str(result.files) not in self._read:
            self._read[result.saw + str(result.files)] = self.track.table.rows(result)
        return self._read[result.saw + str(result.files)]

    def _in_order(self) -> list[tuple[Span, ScanResult]]:
        def start(at: tuple[Span, ScanResult]) -> tuple[float, bool]:
            lo = at[0].lo
            return (float("-inf"), False) if lo is None else (float(lo.key[0]), lo.after)

        return sorted(self.scans, key=start)
