"""Scans of a real PostgreSQL: a table's columns as a relation would have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.decode.values import lake_type
from headwater.model import Column
from headwater.source.postgres.catalog.catalog import describe_table
from headwater.source.postgres.client.session import Endpoint
from headwater.source.postgres.reach import PostgresReach
from support.scanned import Bench

__all__ = ["Bench", "bench", "endpoint_of"]


def endpoint_of(server: Any, database: str, user: str | None = None, password: str | None = None) -> Endpoint:
    return Endpoint(server.host, server.port, user or server.user, database, password or server.password)


def bench(
    database: Any,
    home: Path,
    table: str,
    schema: str = "public",
    *,
    lake: dict[str, str] | None = None,
    identity: dict[str, str] | None = None,
) -> Bench:
    """The named table of a test's database, with the default lake types or those of `lake`."""
    endpoint = endpoint_of(database.server, database.name)
    with endpoint.connect() as session:
        found = describe_table(session, schema, table)
    columns = tuple(
        Column(c.name, (lake or {}).get(c.name) or lake_type(c.type), c.type, not c.not_null) for c in found.columns
    )
    name = (schema, table)
    return Bench.of(PostgresReach(endpoint), home, name, found.oid, columns, found.key, identity=identity)
