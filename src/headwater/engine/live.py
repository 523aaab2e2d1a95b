"""What a process knows of a home beyond meta: its counters, what fails in it, and its server while one runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from headwater.engine.failures import Failures
from headwater.engine.query.queries import Queries
from headwater.engine.status.counters import Counters
from headwater.source.upstream import LogEnd


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a changelog is behind its upstream: bytes of log, and for how long the upstream has been ahead."""

    bytes: int
    seconds: float


class Serving(Protocol):
    """What a running server can say that meta does not hold. Asking is cheap: nothing here asks an upstream."""

    @property
    def pid(self) -> int: ...

    def waiting_for(self, relation_id: int) -> str:
        """What a table waits for, in words."""
        ...

    def preparing(self, connection_id: int) -> str:
        """What the first contact with a connection's upstream waits for, in words."""
        ...

    def rate(self, relation_id: int) -> float:
        """Rows scanned per second over the last half minute."""
        ...

    def lag(self, connection_id: int, position: str) -> Lag | None:
        """How far a changelog that reached `position` is behind; None while nobody knows."""
        ...

    def log_end(self, connection_id: int) -> LogEnd | None:
        """Where the upstream's log ended when it was last asked."""
        ...

    def overlay(self, relation_id: int) -> int | None:
        """Changes that no fold has taken into the base, when folds last looked; None before that."""
        ...

    def processes(self) -> dict[str, list[int]]:
        """The processes of the server by what they do, itself included."""
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
