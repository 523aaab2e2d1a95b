"""What Spark writes: overlays into bases, spans that are read again out of them, and runs."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession
from sqlalchemy.engine import Connection

from headwater import crash
from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.spark.jobs import pool, share, task_settings
from headwater.meta import lease
from headwater.meta.lease import Lease
from headwater.model import Layout, RelationInfo, Span
from headwater.relation import fold, runs


class Merger:
    """Writes what a reader shows over a base into it. Decides nothing: see `committer` and `folds`."""

    def __init__(self, home: Home, reader: Reader, session: Callable[[], SparkSession]) -> None:
        self._home = home
        self._reader = reader
        self._session = session

    def merge(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """Folds the overlay at `index` into the base; returns the Delta version that holds it."""
        with self._reader.overlays.use(relation, layout, index) as overlay:
            lost = self._reader.lost_rows(relation, layout, overlay)
            if lost is not None and lost.num_rows:  # a fold would lose them for good
                raise fold.must_scan_again(relation, lost.num_rows)
            session, storage, settings = self._session(), self._home.storage, self._home.settings
            conf = task_settings(max(1, share(session) // 2))
            with pool(session, "folds"):
                return fold.fold(session, storage, relation, layout, overlay, app_id, version, conf, settings)

    def remove(self, relation: RelationInfo, spans: list[Span]) -> int:
        """Takes the rows of spans that are read again (where keys have no order: all) out of the base."""
        return fold.remove(self._session(), self._home.storage, relation, spans)

    def make_run(self, relation: RelationInfo, layout: Layout, index: int, held: Lease) -> bool:
        """Makes a run of a settled relation's tail if it has grown long; True if it did."""
        meta, storage = self._home.meta, self._home.storage

        def check(c: Connection) -> None:
            crash.here("run.written")
            lease.check(c, held)

        overlays, limit = self._reader.overlays, self._home.settings.tail_changes
        return runs.write(overlays, storage, meta, relation, layout, index, limit=limit, check=check) is not None
