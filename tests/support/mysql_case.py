"""A type of MySQL or MariaDB with values, as in the lists of `support.mysql_types`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NOT_KEPT = None
BOTH = frozenset({"mysql", "mariadb"})
MYSQL = frozenset({"mysql"})
MARIADB = frozenset({"mariadb"})


@dataclass(frozen=True, slots=True)
class Case:
    """A column type, its lake type, and values: SQL literal and lake value (NOT_KEPT: NULL, and counted)."""

    ddl: str
    lake: str
    values: tuple[tuple[str, Any], ...]
    flavours: frozenset[str] = BOTH


def quoted(text: str) -> str:
    """A string literal."""
    escapes = {"\\": "\\\\", "'": "''", "\n": "\\n", "\0": "\\0", "\x1a": "\\Z"}
    return "'" + "".join(escapes.get(c, c) for c in text) + "'"
