"""What a reader sees of a relation's stored rows: of a view, nothing that only its upkeep needs."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headwater.model import RelationInfo
from headwater.relation.schema import quoted
from headwater.view.shape import SHOWN


def shown_rows(relation: RelationInfo, stored: DataFrame) -> DataFrame:
    """The rows that belong to the relation, with all stored columns."""
    view = relation.view
    if view is None:
        return stored
    if any(c.name == SHOWN for c in relation.columns):
        stored = stored.where(fn.col(SHOWN))
    if view.limit is None and not view.offset:
        return stored
    rows = _ordered(relation, stored).offset(view.offset)
    return rows if view.limit is None else rows.limit(view.limit)


def shown(relation: RelationInfo, stored: DataFrame) -> DataFrame:
    """The rows and columns that a reader sees, in the view's own order if it has one."""
    view = relation.view
    if view is None:
        return stored
    rows = shown_rows(relation, stored)
    if view.order and view.limit is None and not view.offset:
        rows = _ordered(relation, rows)
    return rows.select(*(fn.col(quoted(c.name)) for c in relation.shown_columns))


def _ordered(relation: RelationInfo, rows: DataFrame) -> DataFrame:
    """In the view's order, ties broken by the key, so that every reader sees the same rows."""
    assert relation.view is not None
    terms = []
    for o in relation.view.order:
        column = fn.col(quoted(o.column))
        if o.descending:
            terms.append(column.desc_nulls_first() if o.nulls_first else column.desc_nulls_last())
        else:
            terms.append(column.asc_nulls_first() if o.nulls_first else column.asc_nulls_last())
    return rows.orderBy(*terms, *(fn.col(quoted(k)) for k in relation.key))
