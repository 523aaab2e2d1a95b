"""What a definition did, and one that is checked but not stored yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.source.upstream import Upstream
from headwater.sql.view.known import Known


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a definition did, in words, and what the user should know."""

    message: str
    warnings: tuple[str, ...] = ()


def _nothing(c: Connection, block: int) -> None:
    """Stores nothing: the definition already exists."""


@dataclass(frozen=True, slots=True)
class Storable:
    """A checked definition: `store` stores it inside one meta transaction, as part of a block (or 0).

    For later definitions of the same block: `upstream` is that of a new connection, `known` a new table or view.
    """

    outcome: Outcome
    store: Callable[[Connection, int], None] = _nothing
    upstream: Upstream | None = None
    known: Known | None = None
