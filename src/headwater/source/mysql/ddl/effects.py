"""What a statement in the log does to tables, parsed from its words. An unparsable one may do anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from headwater.source.mysql.ddl import alter
from headwater.source.mysql.ddl.alter import Alteration, OtherTable, Touches
from headwater.source.mysql.ddl.lexer import Kind, tokens
from headwater.source.mysql.ddl.statement import STRICT, Statement
from headwater.source.mysql.ddl.words import Words

# Statements that change no row of any table. (Their effects on privileges, logs and caches do not matter here.) None
# can contain an expression, which could call a function that writes. Those that can (EXPLAIN, SHOW, KILL, HANDLER) are
# logged only if they wrote something.
_HARMLESS = frozenset({
    "GRANT", "REVOKE", "FLUSH", "RESET", "HELP", "USE", "LOCK", "UNLOCK", "START", "STOP", "CHANGE", "INSTALL",
    "UNINSTALL", "SAVEPOINT", "RELEASE", "COMMIT", "ROLLBACK", "XA", "DEALLOCATE", "CACHE", "BACKUP", "SHUTDOWN",
    "RESTART",
})  # fmt: skip
_UPKEEP = frozenset({"ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM"})  # of tables; MariaDB's ANALYZE runs any statement
# Objects other than tables that CREATE, ALTER and DROP apply to, and the words between.
_OTHER_OBJECTS = frozenset({
    "VIEW", "FUNCTION", "PROCEDURE", "TRIGGER", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE", "UNDO", "LOGFILE",
    "SEQUENCE", "PACKAGE", "PREPARE", "RESOURCE", "SPATIAL", "CATALOG", "LIBRARY", "DEFINER", "ALGORITHM", "SQL",
    "AGGREGATE", "INSTANCE",
})  # fmt: skip
_SETTABLE = frozenset({"PASSWORD", "ROLE", "DEFAULT", "RESOURCE"})  # by a SET that is logged as such
UNREADABLE = "a statement that may affect it could not be parsed"


class Does(StrEnum):
    """What happens to a table."""

    TRUNCATE = "truncate"  # it is now empty
    BREAK = "break"  # its rows changed without a rows event
    ALTER = "alter"  # its description may have changed; `alterations` say what may have happened to its rows
    BREAK_SCHEMA = "break schema"  # BREAK for all tables of a schema; `table` is empty
    BREAK_ALL = "break all"  # BREAK for any table of a database that the statement touched


@dataclass(frozen=True, slots=True)
class Effect:
    """One table that a statement affects, and the reason in words."""

    does: Does
    schema: str = ""
    table: str = ""
    reason: str = ""
    alterations: tuple[Alteration, ...] = ()


def effects(statement: Statement) -> list[Effect]:
    """What a statement does to tables, each with its schema (by default the statement's own)."""
    found = tokens(statement)
    words = Words([t for t in found if t.kind is not Kind.BROKEN], statement.schema)
    _skip_settings(words)
    if not words.more or words.peek() in _HARMLESS:
        return []
    verb = words.take_word()
    if verb in _UPKEEP and _is_upkeep(words):
        return []
    if found[-1].kind is Kind.BROKEN:
        return [Effect(Does.BREAK_ALL, reason=UNREADABLE)]
    if verb == "SET" and words.peek() in _SETTABLE and words.outside().count("=") <= (words.peek() == "PASSWORD"):
        return []  # and sets nothing else
    reader = {
        "TRUNCATE": _truncate,
        "DROP": _drop,
        "RENAME": _rename,
        "ALTER": _alter,
        "CREATE": _create,
        "REPAIR": _repair,
    }.get(verb)
    return list(dict.fromkeys(reader(words))) if reader else [_writes(verb)]


def _is_upkeep(words: Words) -> bool:
    words.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
    return words.peek() in ("TABLE", "TABLES", "VIEW")


def session_of(statement: Statement) -> Statement:
    """The statement with the session settings of SET STATEMENT … FOR."""
    words = Words(tokens(statement), statement.schema)
    relaxed = "SQL_MODE" in _skip_settings(words)
    return replace(statement, mode=statement.mode & ~STRICT) if relaxed else statement


def _skip_settings(words: Words) -> list[str]:
    """MariaDB's SET STATEMENT a = b FOR …: the words of the settings."""
    if not words.take_all("SET", "STATEMENT"):
        return []
    said = words.outside()
    words.skip_to("FOR")
    return said[: said.index("FOR")] if "FOR" in said else said


def _named(does: Does, name: tuple[str, str] | None, reason: str = "", *alterations: Alteration) -> Effect:
    """An effect on the named table, or on any table if the name could not be read."""
    return Effect(does, *name, reason, alterations) if name and name[1] else Effect(Does.BREAK_ALL, reason=UNREADABLE)


def _writes(verb: str) -> Effect:
    """A statement that may write rows, logged as text. Triggers, functions and views may make it write any table."""
    return Effect(Does.BREAK_ALL, reason=f"{verb or 'a query'} was logged as a statement (binlog_format), not as rows")


def _truncate(words: Words) -> Iterator[Effect]:
    words.take_any("TABLE")
    yield _named(Does.TRUNCATE, words.take_name())


def _drop(words: Words) -> Iterator[Effect]:
    if words.take_any("TEMPORARY") or words.peek() in _OTHER_OBJECTS:
        return
    if words.take_any("DATABASE", "SCHEMA"):
        words.take_exists()
        name = words.take_name()
        yield _named(Does.BREAK_SCHEMA, name and (name[1], "*"), "its database was dropped")
    elif words.take_any("INDEX"):
        words.take_exists()
        primary = (words.take_part() or "").upper() == "PRIMARY"
        words.skip_to("ON")
        yield _named(Does.ALTER, words.take_name(), "", Alteration(Touches.KEY if primary else Touches.INDEX))
    elif words.take_any("TABLE", "TABLES"):
        words.take_exists()
        for item in words.items():
            yield _named(Does.BREAK, item.take_name(), "it was dropped")
    else:
        yield Effect(Does.BREAK_ALL, reason=UNREADABLE)


def _rename(words: Words) -> Iterator[Effect]:
    if words.take_any("USER"):
        return
    words.take_any("TABLE", "TABLES")
    words.take_exists()
    for item in words.items():
        yield _named(Does.BREAK, item.take_name(), "it was renamed")
        item.take_wait()
        item.take_any("TO")
        yield _named(Does.BREAK, item.take_name(), "another table was renamed to its name")


def _create(words: Words) -> Iterator[Effect]:
    replaces = words.take_all("OR", "REPLACE")
    words.take_any("ONLINE", "OFFLINE")
    words.take_any("UNIQUE", "FULLTEXT", "VECTOR") or (words.peek(1) == "INDEX" and words.take_any("SPATIAL"))
    if words.take_any("INDEX"):
        words.skip_to("ON")
        yield _named(Does.ALTER, words.take_name(), "", *([Alteration(Touches.INDEX)] if replaces else []))
        return
    if words.peek() in (*_OTHER_OBJECTS, "DATABASE", "SCHEMA"):
        return
    temporary = words.take_any("TEMPORARY")
    if not words.take_any("TABLE"):
        if not temporary:
            yield Effect(Does.BREAK_ALL, reason=UNREADABLE)
        return
    words.take_exists()
    name = words.take_name()
    if _selects(words):
        yield _writes("CREATE TABLE … SELECT")
    if not temporary and replaces:
        yield _named(Does.BREAK, name, "it was replaced")
    elif not temporary:
        yield _named(Does.ALTER, name)


def _selects(words: Words) -> bool:
    """Whether a CREATE TABLE fills its table from a query, which may call functions."""
    said = words.everything()
    values = [after for word, after in pairwise(said) if word == "VALUES"]  # LESS and IN belong to partitions
    return "SELECT" in said or any(after in ("ROW", "(") for after in values)


def _alter(words: Words) -> Iterator[Effect]:
    ignores = False
    while words.peek() in ("ONLINE", "OFFLINE", "IGNORE"):
        ignores |= words.take_word() == "IGNORE"
    if words.peek() in (*_OTHER_OBJECTS, "DATABASE", "SCHEMA"):
        return
    if not words.take_any("TABLE"):
        yield Effect(Does.BREAK_ALL, reason=UNREADABLE)
        return
    words.take_exists()
    name = words.take_name()
    words.take_wait()
    found = list(alter.alterations(words))
    if ignores:
        found.append(Alteration(Touches.ROWS, reason="ALTER IGNORE may remove rows and change values"))
    yield _named(Does.ALTER, name, "", *(c for c in found if isinstance(c, Alteration)))
    for other in found:
        if isinstance(other, OtherTable):
            yield _named(Does.BREAK, (other.schema, other.table), other.reason)


def _repair(words: Words) -> Iterator[Effect]:
    words.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
    words.take_any("TABLE", "TABLES")
    for item in words.items():
        yield _named(Does.BREAK, item.take_name(), "it was repaired: REPAIR TABLE may remove rows")
