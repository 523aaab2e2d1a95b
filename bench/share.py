"""A `sum` over 3 M rows alone, and during folds: what a reader pays for upkeep on the same machine.

    .venv/bin/python bench/share.py [--rows N] [--rounds N] [--changes N]

The sum reads one base while folds merge into another, one after the other, as the server runs them: in their own pool
and with their number of tasks. Prints both medians, their ratio, and how many folds finished meanwhile.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.engine.spark import jobs
from headwater.engine.spark import session as spark
from headwater.engine.spark.sessions import Sessions
from headwater.meta.store import Meta
from headwater.model import CoveredSpan, Layout, RelationInfo, Span, TableOrigin, TableState
from headwater.ownership.names import Name
from headwater.ownership.permit import Permit
from headwater.relation import base, fold
from headwater.relation.overlay import Overlay, Overlays
from headwater.storage import LocalStorage, Storage
from read import COLUMNS, KEY, SPARE, Made, add_changes, fill

PERMIT = Permit(Name.server(), 1)
WARM = 3  # rounds that warm the JVM up


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--changes", type=int, default=50_000, help="that each fold merges")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        measure(Path(folder), arguments.rows, arguments.rounds, arguments.changes)


def measure(home: Path, count: int, rounds: int, changes: int) -> None:
    session, storage, meta = spark.start(home), LocalStorage(home), Meta(f"sqlite:///{home / 'meta.db'}")
    read = RelationInfo(
        1,
        "orders",
        TableOrigin(1, "public", "orders", 1),
        COLUMNS,
        KEY,
        {},
        TableState.LIVE,
        None,
        "warehouse/orders",
        -1,
    )
    folded = replace(read, base_path="warehouse/folded")
    versions = []
    for relation in (read, folded):
        base.create(storage, relation)
        versions.append(fill(storage, relation, count))
    overlays = Overlays(storage, meta, changes=Made(count, changes + SPARE))  # type: ignore[arg-type]
    add_changes(meta, folded, changes)
    layout = Layout(folded.id, versions[1], (CoveredSpan(Span(None, None), 0, 0),), True)
    overlay = overlays.at(folded, layout, changes)
    sessions, url = Sessions(session), storage.address(read.base_path)
    alone = [ask(sessions, url, versions[0]) for _ in range(WARM + rounds)][WARM:]
    folding = Folding(session, storage, folded, layout, overlay)
    with folding:
        contended = [ask(sessions, url, versions[0]) for _ in range(rounds)]
    before, during = statistics.median(alone), statistics.median(contended)
    load = os.getloadavg()[0]
    print(f"sum over {count:,} rows: {before:.2f} s alone, {during:.2f} s during folds: {during / before:.2f} x")
    print(f"{folding.ended} folds of {changes:,} changes finished meanwhile; the machine's load was {load:.1f}")
    session.stop()


def ask(sessions: Sessions, url: str, version: int) -> float:
    began = time.monotonic()
    with sessions.use() as pooled:
        rows = pooled.session.read.format("delta").option("versionAsOf", version).load(url)
        rows.selectExpr("sum(amount)", "count(*)").collect()
    return time.monotonic() - began


class Folding:
    """Folds one after another while the block runs; leaving it waits for the last one."""

    def __init__(
        self, session: SparkSession, storage: Storage, relation: RelationInfo, layout: Layout, overlay: Overlay
    ) -> None:
        self._what = (session, storage, relation, layout, overlay)
        self._ends = threading.Event()
        self._begun = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.ended = 0

    def __enter__(self) -> None:
        self._thread.start()
        self._begun.wait()

    def __exit__(self, *_error: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        session, storage, relation, layout, overlay = self._what
        settings = jobs.task_settings(max(1, jobs.share(session) // 2))
        try:
            while not self._ends.is_set():
                with jobs.pool(session, "folds"):
                    self._begun.set()
                    version = self.ended + 1
                    made = fold.fold(
                        session, storage, relation, layout, overlay, "bench-fold", version, PERMIT, settings
                    )
                layout = replace(layout, base_version=made)
                self.ended += 1
        except BaseException as e:
            self._error = e
        finally:
            self._begun.set()


if __name__ == "__main__":
    main()
