"""What the query of a view may name: tables, materialized views and plain views, stored or of the same block."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection

from headwater.meta import plain_views, relations
from headwater.meta.plain_views import PlainView
from headwater.model import Column, RelationInfo


@dataclass(frozen=True, slots=True)
class Known:
    """Something that a query may name: a relation with its stored columns, or a plain view with its query."""

    name: str
    columns: tuple[Column, ...] = ()
    visible: int = 0  # that many columns, the first ones, are what a reader sees
    key: tuple[str, ...] = ()
    query: str = ""  # of a plain view
    inputs: tuple[str, ...] = ()  # what a plain view names
    is_view: bool = False  # its columns' nullability is that of a query's result

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that a reader sees."""
        return self.columns[: self.visible]


def of_relation(found: RelationInfo) -> Known:
    is_view = found.view is not None
    return Known(found.name, found.columns, len(found.shown_columns), found.key, is_view=is_view)


def of_plain_view(found: PlainView) -> Known:
    return Known(found.name, query=found.query, inputs=found.inputs)


def everything(c: Connection) -> dict[str, Known]:
    """All that a query may name, by its name in lower case."""
    found = [of_relation(r) for r in relations.named(c)] + [of_plain_view(v) for v in plain_views.all(c)]
    return {known.name.lower(): known for known in found}
