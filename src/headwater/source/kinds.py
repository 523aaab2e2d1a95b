"""Which database a connection's type means."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import DefinitionError
from headwater.source.postgres.upstream import PostgresUpstream
from headwater.source.upstream import Upstream

KINDS: dict[str, type[PostgresUpstream]] = {"postgres-cdc": PostgresUpstream}


def kind(type: str) -> type[PostgresUpstream]:
    """The implementation for a connection type."""
    if type not in KINDS:
        raise DefinitionError(
            "sql.bad_option", f"there is no connection type {type!r}", f"Use one of: {', '.join(sorted(KINDS))}."
        )
    return KINDS[type]


def upstream(type: str, options: Mapping[str, str], password: str) -> Upstream:
    """The upstream that a connection describes."""
    return kind(type)(options, password)
