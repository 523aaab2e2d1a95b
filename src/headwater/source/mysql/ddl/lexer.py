"""The words of a MySQL or MariaDB statement, as the server that executed it read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from headwater.source.mysql.client.codepoints import REPLACEMENT
from headwater.source.mysql.ddl.statement import ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES, Statement

_BLANK = re.compile(r"[\s\x00-\x20]+")
_LINE = re.compile(r"(?:#|--(?=[\s\x00-\x20]|$))[^\n]*")
_EXECUTED = re.compile(r"/\*(M?)!\d*")
_WORD = re.compile(r"[0-9A-Za-z_$\x80-\U0010ffff]+")
ESCAPES = {"n": "\n", "r": "\r", "0": "\0", "t": "\t", "Z": "\x1a", "b": "\b"}


class Kind(Enum):
    """Kinds of tokens."""

    WORD = "word"  # a keyword or a bare name
    NAME = "name"  # a quoted name
    TEXT = "text"
    SIGN = "sign"  # one character of punctuation
    BROKEN = "broken"  # the rest cannot be read


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `text` is without quotes and escapes."""

    kind: Kind
    text: str

    @property
    def word(self) -> str:
        """A bare word in upper case, punctuation unchanged; '' for anything else."""
        return self.text.upper() if self.kind in (Kind.WORD, Kind.SIGN) else ""


def tokens(statement: Statement) -> list[Token]:
    """All tokens; the last one is BROKEN if the text ends inside a quote or a comment, or cannot be tokenized."""
    text, mode = statement.text, statement.mode
    found: list[Token] = []
    at, executed = 0, 0
    while at < len(text):
        if skipped := _BLANK.match(text, at) or _LINE.match(text, at):
            at = skipped.end()
        elif text.startswith("/*", at):
            opened = _EXECUTED.match(text, at)
            if opened and (statement.mariadb or not opened[1]):
                at, executed = opened.end(), executed + 1
                continue
            end = text.find("*/", at + 2)
            if end < 0:
                return [*found, Token(Kind.BROKEN, "")]
            at = end + 2
        elif executed and text.startswith("*/", at):
            at, executed = at + 2, executed - 1
        elif (quote := text[at]) in "'\"`" or (quote == "[" and mode & MSSQL):
            token, at = _quoted(text, at, mode)
            found.append(token)
            if token.kind is Kind.BROKEN:
                return found
        elif word := _WORD.match(text, at):
            found.append(Token(Kind.WORD, word[0]))
            at = word.end()
        else:
            found.append(Token(Kind.SIGN, text[at]))
            at += 1
    return found


def unreadable(name: str) -> bool:
    """Whether a name contains characters that could not be decoded."""
    return REPLACEMENT in name


def _quoted(text: str, at: int, mode: int) -> tuple[Token, int]:
    quote = "]" if text[at] == "[" else text[at]
    kind = Kind.NAME if quote in "`]" or (quote == '"' and mode & ANSI_QUOTES) else Kind.TEXT
    escapes = kind is Kind.TEXT and not mode & NO_BACKSLASH_ESCAPES
    parts, at = list[str](), at + 1
    while at < len(text):
        here = text[at]
        if here == quote:
            if text[at + 1 : at + 2] != quote:
                return Token(kind, "".join(parts)), at + 1
            at += 1
        elif here == "\\" and escapes and at + 1 < len(text):
            at += 1
            here = ESCAPES.get(text[at], text[at])
        parts.append(here)
        at += 1
    return Token(Kind.BROKEN, ""), at
