"""Whether two definitions are equal, however they are spelled."""

from __future__ import annotations

from headwater.decode.values import normalise_type
from headwater.sql.options import live
from headwater.sql.parse import parse
from headwater.sql.statements import (
    CreateConnection,
    CreateMaterializedView,
    CreateTable,
    CreateView,
    Definition,
    Query,
)
from headwater.sql.tokens import Kind, pieces, tokenize


def same(stored: str, given: Definition) -> bool:
    """Whether the definition equals the stored text. Names are case-insensitive, types have one form, order matters."""
    (before,) = parse(stored)
    if isinstance(before, CreateConnection) and isinstance(given, CreateConnection):
        return (before.name.lower(), before.options) == (given.name.lower(), given.options)
    if isinstance(before, CreateTable) and isinstance(given, CreateTable):
        return _meaning(before) == _meaning(given)
    if isinstance(before, CreateMaterializedView) and isinstance(given, CreateMaterializedView):
        return _spelled(before.query) == _spelled(given.query)  # every option can be altered
    if isinstance(before, CreateView) and isinstance(given, CreateView):
        return _spelled(before.query) == _spelled(given.query)
    return False


def _meaning(table: CreateTable) -> tuple[object, ...]:
    """A definition's meaning; the upstream's name stays as written, because case may distinguish two tables there."""
    columns = None
    if table.columns is not None:
        columns = tuple((c.name.lower(), normalise_type(c.type)) for c in table.columns)
    key = tuple(k.lower() for k in table.key)
    options = {name: value for name, value in table.options.items() if name not in live("table")}
    return (table.name.lower(), table.connection.lower(), columns, key, table.upstream, options)


def _spelled(query: Query) -> list[tuple[str, str]]:
    """A query's tokens without comments, blanks and the case of names; strings as they were written."""
    (piece,) = pieces(query.text)
    found = []
    for t in tokenize(piece, query.text):
        name = t.kind in (Kind.WORD, Kind.QUOTED)
        found.append(("name", t.text.lower()) if name else (str(t.kind), query.text[t.start : t.end]))
    return found
