"""Queries: the names and changelog calls in them. Spark parses everything else."""

from __future__ import annotations

from headwater.sql.statements import ChangelogCall, Query
from headwater.sql.tokens import Kind, Piece, Token, location, syntax_error, tokenize

WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
# words that may be a table's name, and that nearly every query contains
CLAUSES = frozenset(
    ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "HAVING", "LIMIT", "JOIN", "ON", "AS", "WITH", "UNION", "AND")
)
WRITE_HINT = "Write to the upstream database; the tables here follow automatically."
_ARGUMENTS = {"CONNECTION": "connection", "TABLE": "table", "FROM": "from_index", "TO": "to_index"}
_USAGE = "Write changelog('connection' [, table => 'name'] [, from => index] [, to => index])."


def read_query(piece: Piece, text: str, start: int | None = None) -> Query:
    """The query in a piece (from `start` on, for EXPLAIN)."""
    start = piece.start if start is None else start
    tokens = [t for t in tokenize(piece, text) if t.start >= start]
    _refuse_writes(tokens, text)
    calls, inside = _changelog_calls(tokens, text, start)
    names = frozenset(
        t.text.lower()
        for i, t in enumerate(tokens)
        if t.kind in (Kind.WORD, Kind.QUOTED) and i not in inside and _may_be_table(tokens, i)
    )
    return Query(
        text=text[start : piece.end],
        line=location(text, start)[0],
        spark_text=_without_slash_comments(piece, text, start),
        identifiers=names,
        changelog_calls=calls,
    )


def _may_be_table(tokens: list[Token], i: int) -> bool:
    """Whether a name can be a table's: not an alias, a function, a part of another name or an SQL keyword."""
    before = tokens[i - 1] if i else None
    after = tokens[i + 1] if i + 1 < len(tokens) else None
    if before is not None and (before.word == "AS" or _is_symbol(before, ".")):
        return False
    if after is not None and _is_symbol(after, "("):
        return False
    expected = before is not None and (before.word in ("FROM", "JOIN", "TABLE") or _is_symbol(before, ","))
    return tokens[i].word not in CLAUSES or expected


def _is_symbol(token: Token, text: str) -> bool:
    return token.kind is Kind.SYMBOL and token.text == text


def _without_slash_comments(piece: Piece, text: str, start: int) -> str:
    """The text with `//` comments, which Spark does not support, blanked; its length, and so its offsets, stay."""
    source = text[start : piece.end]
    for a, b in piece.slash_comments:
        if start <= a < piece.end:
            source = source[: a - start] + " " * (b - a) + source[b - start :]
    return source


def _refuse_writes(tokens: list[Token], text: str) -> None:
    """Raises for writes that start like a query (WITH, FROM), which Spark allows."""
    depth = 0
    for i, token in enumerate(tokens):
        if token.text in ("(", ")") and token.kind is Kind.SYMBOL:
            depth += 1 if token.text == "(" else -1
        follower = tokens[i + 1].word if i + 1 < len(tokens) else ""
        insert = token.word == "INSERT" and follower in ("INTO", "OVERWRITE")
        if depth == 0 and (insert or (token.word in WRITES and _ends_with_clause(tokens, i))):
            raise syntax_error(text, token.start, f"{token.word} is not supported", WRITE_HINT, "sql.unsupported")


def _ends_with_clause(tokens: list[Token], i: int) -> bool:
    """Whether the word at `i` is the first after a WITH clause: no top-level SELECT yet, and a `)` precedes it."""
    if tokens[0].word != "WITH" or tokens[i - 1].text != ")":
        return False
    depth = 0
    for token in tokens[:i]:
        if token.kind is Kind.SYMBOL and token.text in ("(", ")"):
            depth += 1 if token.text == "(" else -1
        elif depth == 0 and token.word in ("SELECT", "FROM", "VALUES", "TABLE"):
            return False
    return True


def _changelog_calls(tokens: list[Token], text: str, start: int) -> tuple[tuple[ChangelogCall, ...], set[int]]:
    """The calls, and the tokens that belong to them."""
    calls: list[ChangelogCall] = []
    inside: set[int] = set()
    i = 0
    while i < len(tokens):
        opens = tokens[i].word == "CHANGELOG" and i + 1 < len(tokens) and tokens[i + 1].text == "("
        if opens and (i == 0 or tokens[i - 1].text != "."):
            end = _closing(tokens, i + 1, text)
            arguments = _arguments(tokens[i + 2 : end], tokens[i], text)
            calls.append(
                ChangelogCall(tokens[i].start - start, tokens[end].end - start, **arguments)  # type: ignore[arg-type]
            )
            inside.update(range(i, end + 1))
            i = end
        i += 1
    return tuple(calls), inside


def _closing(tokens: list[Token], i: int, text: str) -> int:
    depth = 0
    for j in range(i, len(tokens)):
        if tokens[j].kind is Kind.SYMBOL:
            depth += {"(": 1, ")": -1}.get(tokens[j].text, 0)
            if depth == 0:
                return j
    raise syntax_error(text, tokens[i].start, "the ( that opens here is never closed", "Close it.")


def _arguments(tokens: list[Token], head: Token, text: str) -> dict[str, str | int]:
    """The arguments of a changelog call by field name."""
    found: dict[str, str | int] = {}
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind is Kind.SYMBOL and token.text == ",":
            groups.append([])
        else:
            groups[-1].append(token)
    for position, group in enumerate(groups):
        if len(group) == 1 and position == 0:
            name, value = "connection", group[0]
        elif len(group) == 3 and group[1].text == "=>" and group[0].word in _ARGUMENTS:
            name, value = _ARGUMENTS[group[0].word], group[2]
        else:
            raise syntax_error(text, (group[0] if group else head).start, "changelog has no such argument", _USAGE)
        if name in found or value.kind is not (Kind.NUMBER if name.endswith("_index") else Kind.STRING):
            what = "an index (a number)" if name.endswith("_index") else "a name in quotes"
            raise syntax_error(text, value.start, f"expected {what} for {name.removesuffix('_index')}, once", _USAGE)
        found[name] = _index(value, text) if name.endswith("_index") else value.text
    if "connection" not in found:
        raise syntax_error(text, head.start, "changelog needs a connection", _USAGE)
    return found


def _index(token: Token, text: str) -> int:
    if not token.text.isdigit():
        raise syntax_error(text, token.start, "an index is a whole number", _USAGE)
    return int(token.text)
