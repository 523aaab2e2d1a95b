"""A statement as the log holds it; its meaning depends on the session that sent it.

The event has that session's `sql_mode` (what quotes and backslashes mean, whether values that do not fit are errors),
its charset, and on MySQL the databases that the statement touched, including through triggers and functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.source.mysql.binlog import events as ev
from headwater.source.mysql.client.charsets import charset_of
from headwater.source.mysql.client.codepoints import REPLACEMENT, knows, read_text

# bits of sql_mode
ANSI_QUOTES = 1 << 2
MSSQL = 1 << 10  # MariaDB: names in [brackets]
OTHER_TYPES = 1 << 9 | 1 << 12  # ORACLE and MAXDB: type names mean other types
NO_AUTO_VALUE_ON_ZERO = 1 << 19
NO_BACKSLASH_ESCAPES = 1 << 20
STRICT = 1 << 21 | 1 << 22  # STRICT_TRANS_TABLES, STRICT_ALL_TABLES

_LOAD_BYTES = 13  # EXECUTE_LOAD_QUERY has more before it
# status variables, in event order: size by number, or None if a byte gives it
_FLAGS, _MODE, _CATALOG, _INCREMENT, _CHARSET, _ZONE, _CATALOG_NZ = 0, 1, 2, 3, 4, 5, 6
_NAMES, _CHARSET_OF_DATABASE, _MULTI_UPDATE, _INVOKER, _DATABASES = 7, 8, 9, 11, 12
_SIZES = {_FLAGS: 4, _MODE: 8, _INCREMENT: 4, _CHARSET: 6, _NAMES: 2, _CHARSET_OF_DATABASE: 2, _MULTI_UPDATE: 8}
_TOO_MANY = 254  # databases to list
_PLAIN = "utf8mb4"  # of names that come as bytes, or without a charset


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's text, the schema of its unqualified names, and its session's settings.

    `databases` are those whose tables it touched; None: the log does not say.
    """

    text: str
    schema: str = ""
    mode: int = STRICT
    mariadb: bool = False
    databases: frozenset[str] | None = None

    @property
    def strict(self) -> bool:
        """Whether a value that does not fit is an error that undoes the statement."""
        return bool(self.mode & STRICT)


def read_statement(message: bytes, mariadb: bool) -> Statement:
    """The statement of a QUERY or EXECUTE_LOAD_QUERY event, from its message."""
    body = message[ev.BODY :]
    schema_size, size = body[8], int.from_bytes(body[11:13], "little")
    at = 13 + (_LOAD_BYTES if message[ev.NUMBER_BYTES + ev.TYPE] == ev.EXECUTE_LOAD_QUERY else 0)
    variables = _variables(body[at : at + size])
    at += size
    schema, text = body[at : at + schema_size], body[at + schema_size + 1 :]
    return Statement(
        text=_decoded(text, variables.get(_CHARSET, b"")[:2]),
        schema=schema.decode("utf-8", "replace"),
        mode=int.from_bytes(variables.get(_MODE, b""), "little"),
        mariadb=mariadb,
        databases=_databases(variables.get(_DATABASES, bytes([_TOO_MANY]))),
    )


def _variables(data: bytes) -> dict[int, bytes]:
    """The status variables up to the first unknown one: what we need comes before it."""
    found, at = dict[int, bytes](), 0
    while at < len(data):
        kind, at = data[at], at + 1
        end = _end(data, at, kind)
        if end is None or end > len(data):
            break
        found[kind], at = data[at:end], end
    return found


def _end(data: bytes, at: int, kind: int) -> int | None:
    if kind in _SIZES:
        return at + _SIZES[kind]
    if at >= len(data):
        return None
    if kind in (_ZONE, _CATALOG_NZ, _CATALOG):
        return at + 1 + data[at] + (kind == _CATALOG)
    if kind == _INVOKER:
        at += 1 + data[at]
        return at + 1 + data[at] if at < len(data) else None
    if kind != _DATABASES:
        return None
    count, at = data[at], at + 1
    for _ in range(0 if count == _TOO_MANY else count):
        at = data.find(0, at) + 1
        if not at:
            return None
    return at


def _databases(data: bytes) -> frozenset[str] | None:
    """The databases that a statement touched; an empty name among them means that there may be more."""
    if not data or data[0] == _TOO_MANY:
        return None
    names = data[1:].split(b"\0")[:-1]
    return frozenset(n.decode("utf-8", "replace") for n in names) if all(names) else None


def _decoded(text: bytes, collation: bytes) -> str:
    """The text of a client with this collation; undecodable characters are `REPLACEMENT`, keywords never are."""
    if text.isascii():
        return text.decode("ascii")
    charset = charset_of(int.from_bytes(collation, "little")) if collation else _PLAIN
    charset = _PLAIN if charset == "binary" else charset
    if knows(charset):
        return read_text(text, charset)
    return "".join(chr(b) if b < 0x80 else REPLACEMENT for b in text)
