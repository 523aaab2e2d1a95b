"""Statements that control a materialized view: ALTER, PAUSE, RESUME and REFRESH."""

from __future__ import annotations

from headwater.engine.home import Home
from headwater.engine.view.anew import begin_again, fill_beside
from headwater.errors import DataError, SqlError
from headwater.meta import relations, views
from headwater.model import Control, RelationInfo
from headwater.sql.outcome import Outcome
from headwater.sql.statements import AlterView, ControlView, ObjectKind, RefreshView
from headwater.sql.view import names
from headwater.sql.view.checks import check_incremental, clustered
from headwater.sql.view.define import Analysing, planned
from headwater.view import Shape
from headwater.view.inputs import input_schema


def named_view(home: Home, name: str) -> RelationInfo:
    """The materialized view of this name."""
    with home.meta.read() as c:
        return names.relation(c, ObjectKind.MATERIALIZED_VIEW, name)


def alter_view(home: Home, statement: AlterView, analysing: Analysing) -> Outcome:
    """Changes options; they take effect with the next refresh."""
    relation = named_view(home, statement.name)
    given = {**statement.options, **clustered(statement.options, {c.name: c.lake_type for c in relation.shown_columns})}
    if given.get("refresh") == "incremental":
        check_incremental(relation.name, shape_now(home, relation, analysing))
    with home.meta.write() as c:
        relation = names.relation(c, ObjectKind.MATERIALIZED_VIEW, statement.name)  # a copy may have replaced it
        replacement = relations.replacement(c, relation.id)
        for each in (relation, *([replacement] if replacement else [])):
            relations.set_options(c, each.id, {**each.options, **given})
    return Outcome(f"materialized view {relation.name} altered")


def control_view(home: Home, statement: ControlView) -> Outcome:
    """Pauses or resumes the fill and the refreshes of a view, once a refresh that has begun is done."""
    control = Control.PAUSED if statement.pause else Control.RUN
    with home.meta.write() as c:
        relation = names.relation(c, ObjectKind.MATERIALIZED_VIEW, statement.name)
        replacement = relations.replacement(c, relation.id)
        for each in (relation, *([replacement] if replacement else [])):
            relations.set_control(c, each.id, control)
    return Outcome(f"materialized view {relation.name} {'paused' if statement.pause else 'resumed'}")


def refresh_view(home: Home, statement: RefreshView, analysing: Analysing) -> Outcome:
    """Defines the view a second time; when the new one is filled it replaces the old one."""
    old = named_view(home, statement.name)
    found = shape_now(home, old, analysing)
    now_shown = [(c.name, c.type) for c in found.shown_columns]
    if now_shown != [(c.name, c.lake_type) for c in old.shown_columns]:
        raise DataError(
            "view.input_changed",
            f"the query of {old.name} gives other columns than when it was defined: an input has changed",
            f"DROP MATERIALIZED VIEW {old.name} and CREATE it again.",
        )
    with home.meta.write() as c:
        old = names.relation(c, ObjectKind.MATERIALIZED_VIEW, statement.name)  # a copy may have replaced it meanwhile
        if not views.last_version(c, old.id):  # it has no rows that could stay readable
            begin_again(c, old, found)
            return Outcome(f"materialized view {old.name} is being filled from the beginning")
        if not fill_beside(c, old, found):
            return Outcome(f"materialized view {old.name} is already being refreshed")
    return Outcome(f"materialized view {old.name} is being computed again; its old rows stay readable until then")


def shape_now(home: Home, relation: RelationInfo, analysing: Analysing) -> Shape:
    """What a stored view's query gives over its inputs as they are now."""
    assert relation.view is not None
    query = relation.view.query
    with home.meta.read() as c:
        inputs = [relations.get(c, id) for id in relation.view.inputs]
    schemas = {r.name: input_schema(r.columns, r.key, r.view is not None) for r in inputs}
    try:
        return analysing(lambda session: planned(session, query, schemas))
    except SqlError as e:
        raise DataError(
            "view.input_changed",
            f"the query of {relation.name} no longer fits its inputs: {e.message}",
            f"DROP MATERIALIZED VIEW {relation.name} and CREATE it again.",
        ) from e
