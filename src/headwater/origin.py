"""Where a relation's rows come from: a table of an upstream, or a query over other relations."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """An origin: one table of an upstream, followed through its connection's changelog."""

    connection_id: int
    schema: str
    table: str
    upstream_id: int  # the upstream's own number for the table
    begin_index: int = 0  # changes at or below it concern no span of the relation

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class Ordering:
    """One column of an ORDER BY."""

    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class ViewOrigin:
    """An origin: a query over other relations, whose result is stored and kept up to date.

    A view has no changelog: the index of its changes is the id of the epoch that they lead to.
    """

    query: str  # as the user wrote it, after WITH: the columns of each input that `*` meant then, and the plain views
    inputs: tuple[int, ...]  # ids of the relations it reads
    visible: int  # how many of the stored columns a reader sees; the others serve its upkeep
    order: tuple[Ordering, ...] = ()  # of a query that ends with ORDER BY
    limit: int | None = None
    offset: int = 0  # how many of the first rows a reader does not see
    connection_id: int = 0
    begin_index: int = 0

    @property
    def name(self) -> str:
        return ""
