"""The functions that read the values of each kind of database. A dialect's modules are loaded when first needed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headwater.model import Column, LogColumn, SchemaVersion, UpstreamType

if TYPE_CHECKING:
    from headwater.decode.column import Decoded
    from headwater.decode.layout import Piece, RowLayout

DEFAULT = "postgres"  # of homes created before there was a second one
MODULES = {"postgres": "headwater.decode.postgres.dialect", "mysql": "headwater.decode.mysql.dialect"}


@dataclass(frozen=True, slots=True)
class Comparable:
    """How values of a type compare with constants, both in the database and in the lake.

    `value`: bool, integer, decimal, date, timestamp, instant, uuid or text. `kept`: the lake represents every value, so
    NULL here means NULL there.
    """

    value: str
    ordered: bool
    kept: bool


class Dialect(Protocol):
    """The values of one kind of database, as its log and its scans provide them."""

    def lake_type(self, upstream: UpstreamType) -> str: ...

    def resolve_type(self, upstream: UpstreamType, declared: str) -> str: ...

    def can_hold(self, upstream: UpstreamType, declared: str) -> bool: ...

    def comparable(self, upstream: UpstreamType) -> Comparable | None:
        """How a filter may compare values of the type; None: not reliably."""

    def as_written(self, upstream: UpstreamType, written: LogColumn) -> UpstreamType | None:
        """The type to decode a logged column with, or None if values of the old type may have changed with it."""

    def still_holds(self, column: Column, written: UpstreamType) -> bool:
        """Whether the column's lake type holds every value of a type that `as_written` returned.

        Its values of older rows must also still be what the database would return for them.
        """

    def logged_key(self, version: SchemaVersion) -> set[str] | None:
        """The table's key according to its log; None: the log does not say."""

    def whole_old(self, version: SchemaVersion) -> bool:
        """Whether an UPDATE or a DELETE in the log has the whole row before it."""

    def lay_out(self, batch: pa.RecordBatch, layout: RowLayout) -> Piece:
        """Where the values of logged changes are."""

    def decode_logged(self, buffer: Any, starts: Any, lengths: Any, upstream: UpstreamType, lake_type: str) -> Decoded:
        """The lake values of logged values in `buffer` (uint8) at `starts`; a negative length is a NULL."""

    def select_expression(self, column: Column) -> str: ...

    def text_expression(self, column: Column) -> str: ...

    def to_lake(
        self, batch: pa.RecordBatch, columns: Sequence[Column], key: Sequence[str]
    ) -> tuple[pa.RecordBatch, dict[str, int]]: ...


def dialect_of(upstream: UpstreamType) -> Dialect:
    """The dialect of a type."""
    return _dialect(upstream.dialect or DEFAULT)


def load() -> None:
    """Loads every dialect: for a process whose children should not have to."""
    for name in MODULES:
        _dialect(name)


def comparable(upstream: UpstreamType) -> Comparable | None:
    """How a filter may compare values of a type; None: not reliably."""
    return dialect_of(upstream).comparable(upstream)


@lru_cache
def _dialect(name: str) -> Dialect:
    module: Any = importlib.import_module(MODULES[name])
    dialect: Dialect = module
    return dialect


if TYPE_CHECKING:  # modules are loaded by name, which mypy cannot follow
    from headwater.decode.mysql import dialect as mysql
    from headwater.decode.postgres import dialect as postgres

    DIALECTS: tuple[Dialect, ...] = (postgres, mysql)
