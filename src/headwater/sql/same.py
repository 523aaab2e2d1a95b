"""Whether two definitions are the same, however they are spelled."""

from __future__ import annotations

from headwater.decode.values import normalise_type
from headwater.sql.options import live
from headwater.sql.parse import parse
from headwater.sql.statements import CreateConnection, CreateTable, Definition


def same(stored: str, given: Definition) -> bool:
    """The definition says what the stored text says. Names are case-insensitive, types have one form, order matters."""
    (before,) = parse(stored)
    if isinstance(before, CreateConnection) and isinstance(given, CreateConnection):
        return (before.name.lower(), before.options) == (given.name.lower(), given.options)
    if isinstance(before, CreateTable) and isinstance(given, CreateTable):
        return _meaning(before) == _meaning(given)
    return False


def _meaning(table: CreateTable) -> tuple[object, ...]:
    """What a definition says; the upstream's name stays as written, for there case may tell two tables apart."""
    columns = None
    if table.columns is not None:
        columns = tuple((c.name.lower(), normalise_type(c.type)) for c in table.columns)
    key = tuple(k.lower() for k in table.key)
    options = {name: value for name, value in table.options.items() if name not in live()}
    return (table.name.lower(), table.connection.lower(), columns, key, table.upstream, options)
