"""Scans against a real PostgreSQL: an endpoint, a table's columns as a relation would have them, rows of the files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.backfill.plan import Plan, spans
from headwater.backfill.read_span import ScanJob, job_for
from headwater.decode.values import lake_type
from headwater.model import Column, RelationInfo, Span, TableOrigin, TableState
from headwater.source.postgres.catalog import describe_table
from headwater.source.postgres.extent import KeyWalk, read_extent
from headwater.source.postgres.reach import PostgresReach
from headwater.source.postgres.session import Endpoint
from headwater.storage import LocalStorage
from support.scanned import Scanned


@dataclass(frozen=True)
class Bench(Scanned):
    """A table on a real server and a home for its files."""

    endpoint: Endpoint
    schema: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    oid: int
    home: Path

    @property
    def relation(self) -> RelationInfo:
        """The table as a relation of the lake would have it."""
        return RelationInfo(
            id=1,
            name=self.table,
            origin=TableOrigin(1, self.schema, self.table, self.oid),
            columns=self.columns,
            key=self.key,
            options={},
            state=TableState.FILLING,
            error=None,
            base_path="base",
            base_version=0,
        )

    def job(self, span: Span, **changes: Any) -> ScanJob:
        identity = changes.pop("identity", {})
        job = job_for(self.relation, PostgresReach(self.endpoint), identity, span, LocalStorage(self.home))
        return replace(job, **changes)

    def plan(self, **options: int) -> Plan:
        by_name = {c.name: c for c in self.columns}
        extent = read_extent(self.endpoint, self.job(Span(None, None)).table)
        return Plan.of(extent, tuple(by_name[k].lake_type for k in self.key), **options)

    def spans(self, plan: Plan, **options: Any) -> list[Span]:
        with KeyWalk(self.endpoint, self.job(Span(None, None)).table) as walk:
            return [*spans(plan, walk.next_bound, **options), plan.beyond]


def endpoint_of(server: Any, database: str, user: str | None = None, password: str | None = None) -> Endpoint:
    return Endpoint(server.host, server.port, user or server.user, database, password or server.password)


def bench(database: Any, home: Path, table: str, schema: str = "public") -> Bench:
    """The named table of a test's database, with the default lake types."""
    endpoint = endpoint_of(database.server, database.name)
    with endpoint.connect() as session:
        upstream = describe_table(session, schema, table)
    columns = tuple(Column(c.name, lake_type(c.type), c.type, not c.not_null) for c in upstream.columns)
    return Bench(endpoint, schema, table, columns, upstream.key, upstream.oid, home)
