"""A process's own state of a home, which is not in meta: counters, failures, queries, and its server if one runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from headwater.engine.counters import Counters
from headwater.engine.failures import Failures
from headwater.engine.running import Queries
from headwater.source.upstream import LogEnd


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a changelog is behind its upstream: bytes of log, and for how long the upstream has been ahead."""

    bytes: int
    seconds: float


class Serving(Protocol):
    """What a running server knows that is not in meta. Calls are cheap: none of them contacts an upstream."""

    @property
    def pid(self) -> int: ...

    def waiting_for(self, relation_id: int) -> str:
        """What a table is waiting for, as text."""
        ...

    def preparing(self, connection_id: int) -> str:
        """What preparing a connection is waiting for, as text."""
        ...

    def rate(self, relation_id: int) -> float:
        """Rows scanned per second over the last half minute."""
        ...

    def lag(self, connection_id: int, position: str) -> Lag | None:
        """How far a changelog that reached `position` is behind; None while unknown."""
        ...

    def log_end(self, connection_id: int) -> LogEnd | None:
        """The end of the upstream's log when it was last queried."""
        ...

    def overlay_changes(self, relation_id: int) -> int | None:
        """Changes that are not folded into the base, as of the last check; None before the first."""
        ...

    def ahead_bytes(self, connection_id: int) -> int | None:
        """Size of the changes that are not in any base, as of the last check; None before the first."""
        ...

    def paused(self, connection_id: int) -> bool:
        """Whether the connection's capture is paused because its changelog is too far ahead."""
        ...

    def processes(self) -> dict[str, list[int]]:
        """The server's processes by role, including itself."""
        ...


@dataclass(slots=True)
class Live:
    """One per open home. `server` is set while a server of this process runs on it."""

    counters: Counters = field(default_factory=Counters)
    queries: Queries = field(default_factory=Queries)
    failures: Failures = field(init=False)
    server: Serving | None = None

    def __post_init__(self) -> None:
        self.failures = Failures(self.counters)
