"""Writes with Spark: folds overlays into bases, deletes the rows of rescanned spans, and makes runs."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.spark.jobs import pool, share, task_settings
from headwater.model import Layout, RelationInfo, Span
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.relation import fold

RUNS_S = 5.0  # time for one relation's tail before the next relation's turn


class BaseWriter:
    """Writes a reader's overlays into bases. Decides nothing: see `committer` and `folds`."""

    def __init__(self, home: Home, leases: Leases, reader: Reader, session: Callable[[], SparkSession]) -> None:
        self._home = home
        self._leases = leases
        self._reader = reader
        self._session = session

    def fold(self, relation: RelationInfo, layout: Layout, index: int, app_id: str, version: int) -> int:
        """Folds the overlay at `index` into the base; returns the Delta version that holds it."""
        with self._reader.overlays.use(relation, layout, index) as overlay:
            lost = self._reader.lost_rows(relation, layout, overlay)
            if lost is not None and lost.num_rows:  # a fold would lose them permanently
                raise fold.must_scan_again(relation, lost.num_rows)
            session, storage, settings = self._session(), self._home.storage, self._home.settings
            conf, permit = (
                task_settings(max(1, share(session) // 2)),
                self._leases.of(Name.relation(relation.id)).permit,
            )
            what = session, storage, relation, layout, overlay, app_id, version, permit
            with pool(session, "folds"):
                return fold.fold(*what, conf, settings)

    def remove(self, relation: RelationInfo, spans: list[Span], app_id: str, version: int) -> int:
        """Deletes the rows of rescanned spans (all rows, if keys have no order) from the base."""
        return fold.remove(self._session(), self._home.storage, relation, spans, app_id, version)

    def make_runs(self, relation: RelationInfo, layout: Layout, index: int) -> bool:
        """Turns a settled relation's tail into runs if it is long; True if it is still long when the time is up."""
        limit = self._home.settings.tail_changes
        return self._reader.overlays.make_runs(relation, layout, index, limit, RUNS_S) > limit
