"""Upstreams by connection, with secrets resolved here, on the driver."""

from __future__ import annotations

from headwater.meta import connections
from headwater.meta.store import Meta
from headwater.source.kinds import kind
from headwater.source.postgres.upstream import PostgresUpstream


def upstream_of(meta: Meta, connection_id: int) -> PostgresUpstream:
    """The upstream of a stored connection."""
    with meta.read() as c:
        connection = connections.get(c, connection_id)
        secret = connections.secret(c, connection_id)
    return kind(connection.type)(connection.options, secret.resolve() if secret else "")


def passed(type: str, position: str, high: str) -> bool:
    """Whether a connection of this type has published everything up to `high`."""
    return bool(position) and kind(type).passed(position, high)


def distance(type: str, position: str, end: str) -> int:
    """How many bytes of log lie between what a connection of this type has published and `end`."""
    return kind(type).distance(position, end)
