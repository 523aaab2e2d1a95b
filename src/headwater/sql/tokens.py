"""Splits text into statements and tokens.

A file mixes two languages: our own statements, where `''` is a quote and a backslash has no special meaning, and
Spark's queries, where a backslash escapes. A statement's first words tell its language, so the text is first split
into statements (`pieces`), each by its own rules, and then each is tokenized by sqlglot with those rules. The
definition of a view is in both: ours up to its AS, Spark's after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer

from headwater.errors import SqlError

QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "EXPLAIN"})
OPERATORS = {
    text: kind
    for text, kind in Tokenizer.KEYWORDS.items()
    if not text[0].isalpha() and "{" not in text and "}" not in text and " " not in text
}


class Kind(StrEnum):
    """Kinds of tokens."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `start` and `end` are offsets into the whole text. Quotes and escapes are resolved in `text`."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The upper-case word; empty for anything that is not an unquoted word."""
        return self.text.upper() if self.kind is Kind.WORD else ""


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a text: its location, and its text with comments blanked (same length)."""

    start: int
    end: int
    masked: str
    query: bool
    first: str  # its first word in upper case, or its first character
    slash_comments: tuple[tuple[int, int], ...] = ()  # the places of `//` comments
    body: int | None = None  # where the query of a view's definition begins: after its AS

    @property
    def head(self) -> Piece:
        """The part in our own language; all of a statement without a query."""
        end = self.end if self.body is None else self.body
        return replace(self, end=end, masked=self.masked[: end - self.start], body=None)

    @property
    def defining(self) -> Piece | None:
        """The query of a view's definition; None if nothing follows its AS."""
        if self.body is None:
            return None
        masked = self.masked[self.body - self.start :]
        start = self.body + len(masked) - len(masked.lstrip())
        word = _WORD.match(masked.lstrip())
        first = word.group().upper() if word else masked.strip()[:1]
        query = first in QUERY_WORDS - {"EXPLAIN"} or first == "("
        return (
            replace(self, start=start, masked=masked.lstrip(), query=query, first=first, body=None) if first else None
        )


class OwnTokenizer(Tokenizer):
    """Our own statements: `''` is a quote, a backslash is literal, no word is reserved, names in "…" or `…`."""

    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", "//", ("/*", "*/")]
    KEYWORDS: ClassVar[dict[str, TokenType]] = OPERATORS
    COMMANDS: ClassVar[set[TokenType]] = set()
    NUMBERS_CAN_HAVE_DECIMALS = True


class QueryTokenizer(OwnTokenizer):
    """Spark's queries: strings in '…' or "…" with backslash escapes, r'…' without, names in `…`."""

    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'", '"']
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]
    RAW_STRINGS: ClassVar[list[str | tuple[str, str]]] = [(prefix + q, q) for q in ("'", '"') for prefix in ("r", "R")]
    STRING_ESCAPES_ALLOWED_IN_RAW_STRINGS = False


_COMMON = r"(?P<comment>--[^\n]*|//[^\n]*)|(?P<block>/\*)|(?P<end>;)|(?P<word>\w+)"
_NAME = r"`(?:[^`]|``)*`"
_LEX = {
    False: re.compile(rf"(?P<quoted>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|{_NAME})|{_COMMON}|(?P<open>['\"`])"),
    True: re.compile(
        r"(?P<raw>[rR](?:'[^']*'|\"[^\"]*\"))"
        rf"|(?P<quoted>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|{_NAME})|{_COMMON}|(?P<open>['\"`])",
        re.DOTALL,
    ),
}
_GAP = r"(?:\s|--[^\n]*|//[^\n]*|/\*.*?\*/)+"
_DEFINED_VIEW = re.compile(
    rf"CREATE{_GAP}(?:OR{_GAP}REPLACE{_GAP})?(?:(?:GLOBAL|TEMP|TEMPORARY|MATERIALIZED){_GAP})*VIEW\b", re.I | re.S
)
_EXPLAINED_VIEW = re.compile(rf"EXPLAIN{_GAP}MATERIALIZED{_GAP}VIEW\b", re.I | re.S)
_WORD = re.compile(r"\w+")
_BLANK = re.compile(r"[^\n]")
_BLOCK = re.compile(r"/\*|\*/")


def pieces(text: str) -> Iterator[Piece]:
    """The statements of a text, in order. Empty ones (`;;`, only comments) are left out."""
    at = 0
    while at < len(text):
        at, piece = _piece(text, at)
        if piece is not None:
            yield piece


def tokenize(piece: Piece, text: str) -> list[Token]:
    """The tokens of a statement."""
    tokenizer = QueryTokenizer("spark") if piece.query else OwnTokenizer("spark")
    try:
        found = tokenizer.tokenize(piece.masked)
    except TokenError as e:
        raise syntax_error(text, piece.start, "the statement could not be tokenized") from e
    return [
        Token(_KINDS.get(t.token_type, Kind.SYMBOL), t.text, piece.start + t.start, piece.start + t.end + 1)
        for t in found
    ]


def location(text: str, offset: int) -> tuple[int, int, str]:
    """Line and column (from 1) of an offset, and the line's text with passwords masked."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text[begin : len(text) if end < 0 else end].rstrip("\r")
    return text.count("\n", 0, offset) + 1, offset - begin + 1, hide_passwords(line)


_PASSWORD = re.compile(r"(password\W*?[=\s]\s*['\"])((?:[^'\"]|'')*)(?=['\"]|$)", re.IGNORECASE)


def hide_passwords(line: str) -> str:
    """The line with a password's characters masked by stars, so that columns stay the same."""
    return _PASSWORD.sub(lambda m: m.group(1) + "*" * len(m.group(2)), line)


def syntax_error(text: str, offset: int, message: str, hint: str = "", code: str = "sql.syntax") -> SqlError:
    """An error that shows its location."""
    line, column, shown = location(text, offset)
    return SqlError(
        code,
        f"line {line}, column {column}: {message}",
        hint or "Correct the statement; docs/sql.md has the grammar.",
        line=line,
        column=column,
        text=shown,
    )


def _piece(text: str, at: int) -> tuple[int, Piece | None]:
    """The statement that begins at or after `at`, and where the next one may begin."""
    start = _first(text, at)
    if start == len(text) or text[start] == ";":
        return start + 1, None
    word = _WORD.match(text, start)
    first = word.group().upper() if word else text[start]
    query = (first in QUERY_WORDS or first == "(") and not _EXPLAINED_VIEW.match(text, start)
    defines, body = _DEFINED_VIEW.match(text, start) is not None, None
    end = at = start
    depth = 0
    comments: list[tuple[int, int]] = []
    while at < len(text):
        m = _LEX[query or body is not None].search(text, at)
        between = text[at : m.start() if m else len(text)]
        depth += between.count("(") - between.count(")")
        end = _solid_end(text, at, m.start() if m else len(text), end)
        if m is None or m.lastgroup == "end":
            at = m.end() if m else len(text)
            break
        if m.lastgroup == "open":
            raise syntax_error(text, m.start(), f"the {m.group()} that opens here is never closed", "Close it.")
        at = m.end()
        if m.lastgroup in ("comment", "block"):
            at = at if m.lastgroup == "comment" else _block_end(text, m.start())
            comments.append((m.start(), at))
        else:
            end = at
            if defines and body is None and depth == 0 and m.group().upper() == "AS":
                body = end
    return at, replace(_made(text, start, end, comments, query, first), body=body)


def _made(text: str, start: int, end: int, comments: list[tuple[int, int]], query: bool, first: str) -> Piece:
    out, done = [], start
    for a, b in comments:
        out += [text[done:a], _BLANK.sub(" ", text[a:b])]
        done = b
    masked = "".join([*out, text[done:end]])[: end - start]
    slashes = tuple((a, b) for a, b in comments if text.startswith("//", a))
    return Piece(start, end, masked, query, first, slashes)


def _solid_end(text: str, a: int, b: int, end: int) -> int:
    """`end`, moved past any non-blank text between two lexical elements."""
    solid = text[a:b].rstrip()
    return a + len(solid) if solid else end


def _first(text: str, at: int) -> int:
    """Where the next statement begins, after blanks and comments."""
    while at < len(text):
        if text[at].isspace() or text[at] == "\ufeff":
            at += 1
        elif text.startswith(("--", "//"), at):
            newline = text.find("\n", at)
            at = len(text) if newline < 0 else newline + 1
        elif text.startswith("/*", at):
            at = _block_end(text, at)
        else:
            break
    return at


def _block_end(text: str, start: int) -> int:
    """The end of the comment that opens at `start`; comments nest."""
    depth, at = 0, start
    while m := _BLOCK.search(text, at):
        depth += 1 if m.group() == "/*" else -1
        at = m.end()
        if depth == 0:
            return at
    raise syntax_error(text, start, "the comment that opens here is never closed", "End it with */.")


_KINDS = {
    TokenType.IDENTIFIER: Kind.QUOTED,
    TokenType.STRING: Kind.STRING,
    TokenType.RAW_STRING: Kind.STRING,
    TokenType.NATIONAL_STRING: Kind.STRING,
    TokenType.NUMBER: Kind.NUMBER,
    TokenType.VAR: Kind.WORD,
}
