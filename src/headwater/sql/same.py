"""Whether two definitions are equal, however they are spelled."""

from __future__ import annotations

from headwater.decode.values import normalise_type
from headwater.sql.options import live
from headwater.sql.parse import parse
from headwater.sql.statements import CreateConnection, CreateTable, Definition


def same(stored: str, given: Definition) -> bool:
    """Whether the definition equals the stored text. Names are case-insensitive, types have one form, order matters."""
    (before,) = parse(stored)
    if isinstance(before, CreateConnection) and isinstance(given, CreateConnection):
        return (before.name.lower(), before.options) == (given.name.lower(), given.options)
    if isinstance(before, CreateTable) and isinstance(given, CreateTable):
        return _meaning(before) == _meaning(given)
    return False


def _meaning(table: CreateTable) -> tuple[object, ...]:
    """A definition's meaning; the upstream's name stays as written, because case may distinguish two tables there."""
    columns = None
    if table.columns is not None:
        columns = tuple((c.name.lower(), normalise_type(c.type)) for c in table.columns)
    key = tuple(k.lower() for k in table.key)
    options = {name: value for name, value in table.options.items() if name not in live()}
    return (table.name.lower(), table.connection.lower(), columns, key, table.upstream, options)
