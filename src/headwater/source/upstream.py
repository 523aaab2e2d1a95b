"""The seam between the engine and an upstream: definitions, Begin, positions. One implementation per database kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.model import RelationInfo, SchemaVersion, UpstreamType
from headwater.source.base import Source
from headwater.source.options import Option
from headwater.source.spans import Reach


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column that can be followed."""

    name: str
    type: UpstreamType
    not_null: bool


@dataclass(frozen=True, slots=True)
class FoundTable:
    """An upstream table that can be followed."""

    id: int
    schema: str
    name: str
    columns: tuple[FoundColumn, ...]
    key: tuple[str, ...]
    rows_estimate: int
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where a new changelog begins."""

    position: str
    txn: int
    identity: dict[str, str]
    life: str


@dataclass(frozen=True, slots=True)
class Look:
    """A table as found by one look at the upstream's catalog.

    `shape` is everything about it that can change rows, or the log's description of them, without a log event; empty:
    the table is gone. `saw` says which transactions the look saw, in a scan's format; empty: irrelevant here.
    `described` is the table as its log would describe it now; None: only the log can say.
    """

    shape: str
    saw: str = ""
    described: SchemaVersion | None = None

    def stored(self) -> str:
        """What meta stores of an accepted look."""
        return json.dumps({"shape": self.shape, "saw": self.saw})

    @classmethod
    def parse(cls, stored: str) -> Look:
        value = json.loads(stored)
        return (
            cls(value["shape"], value["saw"]) if "shape" in value else cls(stored)
        )  # an older home stored only the shape


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing two looks at a table: the error that stops it, or notices for the user."""

    error: DataError | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where an upstream's log ends, the bytes past our position, the bytes retained for us, and their limit.

    None: unknown, or no limit. `notice` warns of something surprising that still works.
    """

    position: str
    behind_bytes: int = 0
    kept_bytes: int | None = None
    limit_bytes: int | None = None
    notice: str = ""


class Catalog(Protocol):
    """What CREATE and DROP need from an upstream."""

    OPTIONS: ClassVar[tuple[Option, ...]]  # the options of its connections
    default_schema: str  # of tables named without one

    def check(self) -> tuple[str, ...]:
        """Raises whatever prevents a capture; returns notices. Called by CREATE CONNECTION; changes nothing."""

    def find_table(self, schema: str, name: str, columns: Sequence[str] | None, key: Sequence[str]) -> FoundTable:
        """The table, if it can be followed. Called by CREATE TABLE and before publishing; changes nothing."""

    def withdraw(self, schema: str, table: str) -> None:
        """Removes the table from the log. Called by DROP TABLE."""

    def remove(self) -> None:
        """Drops what `prepare` created. Called by DROP CONNECTION, after the capture has ended."""

    @staticmethod
    def default_options(connection: str) -> dict[str, str]:
        """Values specific to a connection of this name, for options that its definition does not set."""


class Beginning(Protocol):
    """What a table needs from an upstream on its way into the log."""

    def prepare(self, on_wait: Callable[[str], None]) -> Prepared:
        """Creates what the log needs (publication and slot) from scratch. Called once, before the first capture."""

    def publish(self, schema: str, table: str) -> str:
        """Makes the log carry the table, which meta already lists as followed; returns a ticket for `blockers`."""

    def blockers(self, ticket: str) -> list[str]:
        """Who must still end before the table can be planned, in words; empty when nobody."""

    def begun(self, ticket: str) -> str:
        """A position up to which every scan of the table sees everything, once `blockers` is empty.

        Empty: what a scan saw does not depend on positions here.
        """


class Positions(Protocol):
    """Where an upstream's log stands, what a position means, and what a scan saw."""

    def position(self) -> str:
        """The upstream's current position: whatever committed before this call is at or before it."""

    def log_end(self, since: str) -> LogEnd:
        """Where the log ends now, and how much of it is past a position. Called every few seconds; changes nothing."""

    @staticmethod
    def number(position: str) -> int:
        """A position as a number: later positions have larger ones."""

    @staticmethod
    def reads_position(text: str) -> bool:
        """Whether the text is a position of this kind of database's log."""

    @staticmethod
    def source_block(commit: int, txn: int) -> dict[str, Any]:
        """A transaction's entries in Debezium's `source` block that are specific to this kind of database."""

    @staticmethod
    def sees(saw: str, txn: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """For each transaction, whether the scan that recorded `saw` saw it."""

    @staticmethod
    def txn_min(saw: str) -> int:
        """The scan saw every transaction below it."""


class Watching(Protocol):
    """What happens to tables without a trace in the log."""

    def look(self, ids: Sequence[int]) -> dict[int, Look]:
        """Each table as the catalog has it now. Called every few seconds; reads no table and waits for no lock."""

    def compare(self, before: Look, after: Look, relation: RelationInfo, truncates: Sequence[int]) -> Verdict:
        """What happened to a relation's table between two looks that the log does not show.

        `truncates` are transactions with a TRUNCATE of it in the changelog: all that `after` saw and `before` did not,
        and possibly others.
        """


class Upstream(Catalog, Beginning, Positions, Watching, Protocol):
    """An upstream database as the engine sees it. Every method may be called again after a crash."""

    options: Mapping[str, str]
    reach: Reach

    def __init__(self, options: Mapping[str, str], password: str, identity: Mapping[str, str] | None = None) -> None:
        """The upstream that a connection's stored options describe, and what is known about it; does not connect."""

    @staticmethod
    def source(options: Mapping[str, str], password: str) -> Source:
        """The upstream as the capture sees it."""
