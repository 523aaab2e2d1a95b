"""The syntax of views: CREATE, DROP, ALTER, PAUSE, RESUME, REFRESH, FOLD and EXPLAIN."""

from __future__ import annotations

from headwater.sql.create import alter_options, if_not_exists, own_name, with_options
from headwater.sql.cursor import Cursor
from headwater.sql.options import validate
from headwater.sql.read_query import read_query
from headwater.sql.statements import (
    AlterView,
    ControlView,
    CreateMaterializedView,
    CreateView,
    DropView,
    ExplainView,
    Fold,
    ObjectKind,
    Query,
    RefreshView,
)

_NAMED = "Name the columns in the query: SELECT expression AS name."
_QUERY = "Write a query after AS: SELECT, WITH, VALUES, FROM or TABLE."


def create_view(c: Cursor) -> CreateMaterializedView | CreateView:
    """CREATE [MATERIALIZED] VIEW [IF NOT EXISTS] name [WITH (…)] AS query; the cursor is after CREATE."""
    materialized = take_kind(c) is ObjectKind.MATERIALIZED_VIEW
    exists = if_not_exists(c)
    name = own_name(c, "a name for the view")
    if c.at("("):
        raise c.error("a view has no column list", _NAMED, "sql.unsupported")
    options = validate("materialized view", {})
    if c.word == "WITH" and not materialized:
        hint = "Write CREATE MATERIALIZED VIEW, or remove the options: a plain view has no rows of its own."
        raise c.error("a plain view has no options", hint, "sql.unsupported")
    if c.word == "WITH":
        options = with_options(c, "materialized view")
    c.take("AS", "AS" if not materialized or options != validate("materialized view", {}) else "WITH (…) or AS")
    query = _query(c)
    if materialized:
        return CreateMaterializedView(
            text=c.statement_text, line=c.line, name=name, query=query, options=options, if_not_exists=exists
        )
    return CreateView(text=c.statement_text, line=c.line, name=name, query=query, if_not_exists=exists)


def _query(c: Cursor) -> Query:
    """The query after AS, which is in Spark's language."""
    piece = c.piece.defining
    if piece is None:
        raise c.expected("a query after AS", _QUERY)
    if not piece.query:
        raise c.error(f"expected a query after AS, found '{piece.first}'", _QUERY, offset=piece.start)
    return read_query(piece, c.text)


def at_view(c: Cursor) -> bool:
    """Whether MATERIALIZED VIEW or VIEW is next."""
    return c.word == "VIEW" or (c.word == "MATERIALIZED" and c.word_after == "VIEW")


def take_kind(c: Cursor) -> ObjectKind:
    """Takes MATERIALIZED VIEW or VIEW."""
    materialized = c.accept("MATERIALIZED")
    c.take("VIEW")
    return ObjectKind.MATERIALIZED_VIEW if materialized else ObjectKind.VIEW


def take_materialized(c: Cursor) -> str:
    """Takes MATERIALIZED VIEW and a name."""
    c.take("MATERIALIZED", "MATERIALIZED VIEW")
    c.take("VIEW")
    return c.name("a view's name")


def drop_view(c: Cursor) -> DropView:
    """[MATERIALIZED] VIEW [IF EXISTS] name [CASCADE]; the cursor is after DROP."""
    kind = take_kind(c)
    if_exists = c.accept("IF")
    if if_exists:
        c.take("EXISTS")
    name = c.name("a view's name")
    cascade = c.accept("CASCADE")
    if not cascade:
        c.accept("RESTRICT")
    return DropView(text=c.statement_text, line=c.line, kind=kind, name=name, if_exists=if_exists, cascade=cascade)


def alter_view(c: Cursor) -> AlterView:
    """MATERIALIZED VIEW name SET (…); the cursor is after ALTER."""
    name = take_materialized(c)
    if c.word != "SET":
        hint = "Only its options can be altered: ALTER MATERIALIZED VIEW name SET (option = value). DROP and CREATE it."
        raise c.error(f"ALTER MATERIALIZED VIEW … {c.word} is not supported", hint, "sql.unsupported")
    options = alter_options(c, "materialized view")
    return AlterView(text=c.statement_text, line=c.line, name=name, options=options)


def control_view(c: Cursor) -> ControlView:
    """PAUSE | RESUME MATERIALIZED VIEW name."""
    pause = c.next().word == "PAUSE"
    return ControlView(text=c.statement_text, line=c.line, pause=pause, name=take_materialized(c))


def refresh_view(c: Cursor) -> RefreshView:
    """REFRESH MATERIALIZED VIEW name."""
    c.take("REFRESH")
    if c.word != "MATERIALIZED":
        hint = "Write REFRESH MATERIALIZED VIEW name. Tables need no refresh: every SELECT reads the newest epoch."
        raise c.error(f"REFRESH {c.word} is not supported", hint, "sql.unsupported")
    return RefreshView(text=c.statement_text, line=c.line, name=take_materialized(c))


def fold_view(c: Cursor) -> Fold:
    """MATERIALIZED VIEW name; the cursor is after FOLD."""
    name = take_materialized(c)
    return Fold(text=c.statement_text, line=c.line, name=name, kind=ObjectKind.MATERIALIZED_VIEW)


def explain_view(c: Cursor) -> ExplainView:
    """EXPLAIN MATERIALIZED VIEW name."""
    c.take("EXPLAIN")
    return ExplainView(text=c.statement_text, line=c.line, name=take_materialized(c))
