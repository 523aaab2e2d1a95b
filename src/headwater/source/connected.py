"""Upstreams by connection; secrets are resolved here, on the driver."""

from __future__ import annotations

from headwater.meta import connections
from headwater.meta.store import Meta
from headwater.model import ConnectionInfo
from headwater.source.base import Source
from headwater.source.kinds import kind
from headwater.source.upstream import Upstream


def upstream_of(meta: Meta, connection_id: int) -> Upstream:
    """The upstream of a stored connection."""
    connection, password = _stored(meta, connection_id)
    return kind(connection.type)(connection.options, password, connection.identity)


def source_of(meta: Meta, connection_id: int) -> Source:
    """The same upstream as the capture sees it."""
    connection, password = _stored(meta, connection_id)
    return kind(connection.type).source(connection.options, password)


def passed(type: str, position: str, high: str) -> bool:
    """Whether a connection of this type has published everything up to `high`."""
    return bool(position) and kind(type).number(position) >= kind(type).number(high)


def _stored(meta: Meta, connection_id: int) -> tuple[ConnectionInfo, str]:
    with meta.read() as c:
        connection = connections.get(c, connection_id)
        secret = connections.secret(c, connection_id)
    return connection, secret.resolve() if secret else ""
