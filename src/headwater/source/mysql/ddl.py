"""What a statement in the log does to tables: read from its words, without a full parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

_NAMES = {TokenType.IDENTIFIER, TokenType.VAR}
_PARTITION_WORDS = {"DROP", "TRUNCATE", "EXCHANGE", "COALESCE", "REORGANIZE", "DISCARD", "IMPORT", "CONVERT"}
_BEFORE_TARGET = {"LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO", "QUICK", "CONCURRENT", "LOCAL"}
_EXECUTABLE = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|/\*M?!\d*|\*/|/\*.*?\*/", re.S)


class Does(StrEnum):
    """What happens to a table."""

    TRUNCATE = "truncate"  # it is empty now
    BREAK = "break"  # its rows changed in a way that no rows event tells
    ALTER = "alter"  # its description may have changed
    DROP_SCHEMA = "drop schema"  # all of a schema's tables are gone; `table` is empty


@dataclass(frozen=True, slots=True)
class Effect:
    """One table that a statement touches, and the reason in words."""

    does: Does
    schema: str
    table: str
    reason: str = ""


class Unreadable(Exception):
    """A statement that could not be cut into words."""


def effects(statement: str, schema: str) -> list[Effect]:
    """What a statement does to tables, each with its schema (`schema` where the statement names none)."""
    try:
        # the tokenizer would not cut what follows RENAME, were it the first word
        words = _Words(MySQL().tokenize(f"x {_plain(statement)}")[1:], schema)
    except (SqlglotError, ValueError) as e:
        raise Unreadable(str(e)) from e
    words.skip_statement_settings()
    first = words.take_word()
    reader = {
        "TRUNCATE": _truncate,
        "DROP": _drop,
        "RENAME": _rename,
        "ALTER": _alter,
        "CREATE": _create,
        "INSERT": _row_statement,
        "REPLACE": _row_statement,
        "UPDATE": _row_statement,
        "DELETE": _row_statement,
        "LOAD": _row_statement,
        "WITH": _row_statement,
    }.get(first)
    return list(dict.fromkeys(reader(words, first))) if reader else []


def _plain(statement: str) -> str:
    """The statement without comments; `/*! … */` is code to MySQL."""
    return _EXECUTABLE.sub(lambda m: m[0] if m[0][0] in "'\"`" else " ", statement)


class _Words:
    """A statement's words, read from the left."""

    def __init__(self, tokens: list[Token], schema: str) -> None:
        self._tokens = tokens
        self._at = 0
        self._schema = schema

    def peek(self, ahead: int = 0) -> str:
        """A bare word in capitals, punctuation as it is; '' for a quoted name, a text or the end."""
        at = self._at + ahead
        if at >= len(self._tokens) or self._tokens[at].token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            return ""
        return str(self._tokens[at].text).upper()

    @property
    def more(self) -> bool:
        return self._at < len(self._tokens)

    def take_word(self) -> str:
        word = self.peek()
        self._at += 1
        return word

    def take_any(self, *words: str) -> bool:
        """Takes the next word if it is one of these."""
        if self.more and self.peek() in words and self.peek():
            self._at += 1
            return True
        return False

    def take_exists(self) -> None:
        """IF EXISTS or IF NOT EXISTS."""
        if self.take_any("IF"):
            self.take_any("NOT")
            self.take_any("EXISTS")

    def skip_statement_settings(self) -> None:
        """MariaDB's SET STATEMENT a = b FOR …"""
        if self.peek() == "SET" and self.peek(1) == "STATEMENT":
            while self.more and not self.take_any("FOR"):
                self._at += 1

    def take_name(self) -> tuple[str, str] | None:
        """A table's schema and name."""
        first = self._take_part()
        if first is None:
            return None
        if self.take_any("."):
            second = self._take_part()
            return None if second is None else (first, second)
        return self._schema, first

    def _take_part(self) -> str | None:
        if not self.more:
            return None
        token = self._tokens[self._at]
        if token.token_type in (TokenType.STRING, TokenType.NUMBER) or not (
            token.token_type in _NAMES or (token.text and (token.text[0].isalpha() or token.text[0] in "_$"))
        ):
            return None
        self._at += 1
        return str(token.text)

    def pass_to(self, *words: str) -> bool:
        """Goes behind the next of these words; False if there is none."""
        while self.more:
            if self.take_any(*words):
                return True
            self._at += 1
        return False

    def pass_item(self) -> bool:
        """Goes behind the comma that ends this item of a list; False at the end."""
        depth = 0
        while self.more:
            word = self.take_word()
            depth += (word == "(") - (word == ")")
            if word == "," and depth == 0:
                return True
        return False

    def names_before(self, *words: str) -> Iterator[tuple[str, str]]:
        """Whatever could be a table's name before one of these words."""
        while self.more and not (self.peek() and self.peek() in words):
            name = self.take_name()
            if name is None:
                self._at += 1
            else:
                yield name


def _truncate(words: _Words, _first: str) -> Iterator[Effect]:
    words.take_any("TABLE")
    if name := words.take_name():
        yield Effect(Does.TRUNCATE, *name)


def _drop(words: _Words, _first: str) -> Iterator[Effect]:
    if words.take_any("TEMPORARY"):
        return
    if words.take_any("DATABASE", "SCHEMA"):
        words.take_exists()
        if name := words.take_name():
            yield Effect(Does.DROP_SCHEMA, name[1], "", "its database was dropped")
    elif words.take_any("TABLE", "TABLES"):
        words.take_exists()
        while name := words.take_name():
            yield Effect(Does.BREAK, *name, "it was dropped")
            if not words.take_any(","):
                return


def _rename(words: _Words, _first: str) -> Iterator[Effect]:
    if not words.take_any("TABLE", "TABLES"):
        return
    words.take_exists()
    while old := words.take_name():
        if words.take_any("WAIT"):
            words.take_word()
        words.take_any("NOWAIT")
        words.take_any("TO")
        new = words.take_name()
        yield Effect(Does.BREAK, *old, "it was renamed")
        if new is not None:
            yield Effect(Does.BREAK, *new, "another table was renamed to its name")
        if not words.take_any(","):
            return


def _create(words: _Words, _first: str) -> Iterator[Effect]:
    replaces = words.take_any("OR") and words.take_any("REPLACE")
    if words.take_any("TEMPORARY") or not words.take_any("TABLE"):
        return
    words.take_exists()
    if name := words.take_name():
        yield Effect(Does.BREAK, *name, "it was replaced") if replaces else Effect(Does.ALTER, *name)


def _alter(words: _Words, _first: str) -> Iterator[Effect]:
    while words.take_any("ONLINE", "OFFLINE", "IGNORE"):
        pass
    if not words.take_any("TABLE"):
        return
    words.take_exists()
    name = words.take_name()
    if name is None:
        return
    yield Effect(Does.ALTER, *name)
    while words.more:
        yield from _alteration(words, name)
        if not words.pass_item():
            return


def _alteration(words: _Words, name: tuple[str, str]) -> Iterator[Effect]:
    verb = words.peek()
    if verb in _PARTITION_WORDS and words.peek(1) in ("PARTITION", "TABLESPACE", "TABLE"):
        words.take_word()
        yield Effect(Does.BREAK, *name, f"its partitions changed: {verb} {words.take_word()}")
        if verb in ("EXCHANGE", "CONVERT") and words.pass_to("TABLE") and (other := words.take_name()):
            yield Effect(Does.BREAK, *other, f"it changed place with a partition: {verb} PARTITION")
    elif verb == "RENAME" and words.peek(1) not in ("COLUMN", "INDEX", "KEY"):
        words.take_word()
        words.take_any("TO", "AS", "=")
        yield Effect(Does.BREAK, *name, "it was renamed")
        if new := words.take_name():
            yield Effect(Does.BREAK, *new, "another table was renamed to its name")


def _row_statement(words: _Words, first: str) -> Iterator[Effect]:
    """INSERT and the like as text: the rows themselves are not in the log. Better one table too many than too few."""
    reason = f"{first} was logged as a statement (binlog_format), not as rows"
    if first == "LOAD":
        words.pass_to("TABLE")
    if first in ("INSERT", "REPLACE", "LOAD"):
        while words.take_any(*_BEFORE_TARGET):
            pass
        if name := words.take_name():
            yield Effect(Does.BREAK, *name, reason)
        return
    stop = {"UPDATE": ("SET",), "DELETE": ("WHERE", "ORDER", "LIMIT", "RETURNING")}.get(first, ())
    for name in words.names_before(*stop):
        yield Effect(Does.BREAK, *name, reason)
