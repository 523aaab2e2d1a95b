"""The names of columns if the log lacks them: from what we knew, or from the current upstream.

The current upstream may be ahead of the log. Names from there are valid only if no DDL of the table lies between; if
such a DDL is met later, the table breaks. All notes (a DDL was met, names came from there, columns were dropped) are
stored, so a restart knows them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headwater.errors import HeadwaterError, Retry
from headwater.model import LogColumn
from headwater.source.frames import Memory
from headwater.source.mysql.binlog import codes
from headwater.source.mysql.binlog.tablemap import TEXTUAL, TableMap, shape
from headwater.source.mysql.catalog.types import labels

FIX = "SET GLOBAL binlog_row_metadata = FULL"
ASK_AGAIN_S = 5.0  # a table without names is not queried at every statement

_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext")
_VARYING = (codes.VARCHAR, codes.VAR_STRING, codes.VARCHAR_COMPRESSED)
_TYPES: dict[str, tuple[int, ...]] = {
    **{name: (code,) for code, name in codes.INTEGER_NAMES.items()},
    "decimal": (codes.DECIMAL,),
    "float": (codes.FLOAT,),
    "double": (codes.DOUBLE,),
    "bit": (codes.BIT,),
    "year": (codes.YEAR,),
    "date": (codes.DATE, codes.NEWDATE),
    "time": (codes.OLD_TIME, codes.TIME),
    "datetime": (codes.OLD_DATETIME, codes.DATETIME),
    "timestamp": (codes.OLD_TIMESTAMP, codes.TIMESTAMP),
    "varchar": _VARYING,
    "varbinary": _VARYING,
    "enum": (codes.ENUM,),
    "set": (codes.SET,),
    "json": (codes.JSON,),
    "vector": (codes.VECTOR, codes.VARCHAR, codes.VAR_STRING, codes.STRING),
    **dict.fromkeys(("char", "binary", "uuid", "inet4", "inet6"), (codes.STRING,)),
    **dict.fromkeys(_BLOBS, (codes.BLOB, codes.BLOB_COMPRESSED)),
}


@dataclass(frozen=True, slots=True)
class NowColumn:
    """A column as information_schema shows it."""

    name: str
    data_type: str
    column_type: str
    charset: str
    key: bool


@dataclass(frozen=True, slots=True)
class Now:
    """A table as the upstream has it now, and the number of a position after the query."""

    columns: tuple[NowColumn, ...]
    position: int


class History:
    """Finds the names of a table's columns. `ask` queries the upstream; None: it has no such table."""

    def __init__(self, ask: Callable[[str, str], Now | None]) -> None:
        self._ask = ask
        self._refused: dict[int, tuple[float, str]] = {}

    def columns(self, table: TableMap, memory: Memory) -> tuple[LogColumn, ...] | str:
        """The columns with names; or why they cannot be known, in words."""
        id = table.id
        known = memory.version(id)
        stale = memory.get(_ddl(id)) is not None
        if known is not None and not known.broken and not stale and shape(known.columns) == table.shape:
            return known.columns
        until, reason = self._refused.get(id, (0.0, ""))
        if time.monotonic() < until:
            return reason
        found = self._from_now(table, memory)
        if isinstance(found, str):
            self._refused[id] = (time.monotonic() + ASK_AGAIN_S, found)
        elif stale:
            memory.remove(_ddl(id))
        return found

    def primary_key(self, schema: str, table: str) -> frozenset[str]:
        """The primary key that the upstream has now, in lower case; empty if it cannot be known."""
        try:
            now = self._ask(schema, table)
        except HeadwaterError as e:
            if e.retry is Retry.AUTO:
                raise
            return frozenset()
        return frozenset(c.name.lower() for c in now.columns if c.key) if now is not None else frozenset()

    def met_ddl(self, id: int, number: int, memory: Memory) -> str:
        """Records that a table's description changed at a position; returns why earlier rows were misnamed, if so."""
        memory.put(_ddl(id), 0, str(number).encode())
        self._refused.pop(id, None)
        kept = memory.get(_names(id))
        if kept is None:
            return ""
        memory.remove(_names(id))
        if number > int(kept):
            return ""
        return f"its columns changed while their names were unknown; {FIX} prevents that"

    def met_drop(self, id: int, names: Iterable[str], number: int, memory: Memory) -> None:
        """Records columns that a statement dropped: the table's last description still has them."""
        memory.put(_gone(id), 0, json.dumps(dict.fromkeys(names, number) | _dropped(id, memory)).encode())

    def gone(self, id: int, number: int, memory: Memory) -> frozenset[str]:
        """The columns that were dropped between the table's last description and a position.

        A batch that is framed again after a crash may find notes from its own later part.
        """
        return frozenset(name for name, at in _dropped(id, memory).items() if at < number)

    def described(self, id: int, memory: Memory) -> None:
        """Notes that the log has described the table again, which tells its columns."""
        if memory.get(_gone(id)) is not None:
            memory.remove(_gone(id))

    def _from_now(self, table: TableMap, memory: Memory) -> tuple[LogColumn, ...] | str:
        try:
            now = self._ask(table.schema, table.table)
        except HeadwaterError as e:
            if e.retry is Retry.AUTO:
                raise
            return f"the names of its columns cannot be read ({e.message}); {FIX} puts them into the log"
        if now is not None:
            now = _with_hidden(now, table)
        if now is None or len(now.columns) != len(table.columns):
            return f"its columns changed since these rows were written; {FIX} puts their names into the log"
        if any(c.type_oid not in _codes(n.data_type) for c, n in zip(table.columns, now.columns, strict=True)):
            return f"its columns changed since these rows were written; {FIX} puts their names into the log"
        memory.put(_names(table.id), 0, str(now.position).encode())
        return tuple(_named(table, c, n) for c, n in zip(table.columns, now.columns, strict=True))


def _with_hidden(now: Now, table: TableMap) -> Now:
    """With the columns that MariaDB writes but does not show: a hash for each unique key over text of any length.

    If they are dropped columns instead, the DROP lies between these rows and now, and breaks the table when it is met.
    """
    more = table.columns[len(now.columns) :]
    if any(c.type_oid != codes.LONGLONG for c in more):
        return now
    hashes = (NowColumn(f"DB_ROW_HASH_{i}", "bigint", "bigint unsigned", "", False) for i, _ in enumerate(more, 1))
    return replace(now, columns=(*now.columns, *hashes))


def _codes(data_type: str) -> tuple[int, ...]:
    return _TYPES.get(data_type.lower(), (codes.GEOMETRY,))


def _named(table: TableMap, column: LogColumn, now: NowColumn) -> LogColumn:
    named = replace(column, name=now.name, key=now.key)
    if not table.has_signs:
        named = replace(named, unsigned="unsigned" in now.column_type.lower())
    if not table.has_charsets and column.type_oid in TEXTUAL:
        named = replace(named, charset=now.charset or "binary")
    if not table.has_labels and column.type_oid in (codes.ENUM, codes.SET):
        named = replace(named, labels=labels(now.column_type), charset=now.charset)
    return named


def _ddl(id: int) -> str:
    return f"ddl-{id}"


def _dropped(id: int, memory: Memory) -> dict[str, int]:
    return dict(json.loads(memory.get(_gone(id)) or b"{}"))


def _gone(id: int) -> str:
    return f"gone-{id}"


def _names(id: int) -> str:
    return f"names-{id}"
