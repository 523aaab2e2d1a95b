"""Queries: the names in them, and the calls of our own functions. Spark parses everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.sql.statements import ChangelogCall, ChangesCall, Query
from headwater.sql.tokens import Kind, Piece, Token, location, syntax_error, tokenize

WRITES = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
# words that may be a table's name, and that nearly every query contains
CLAUSES = frozenset(
    ("SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "HAVING", "LIMIT", "JOIN", "ON", "AS", "WITH", "UNION", "AND")
)
# clauses that name tables; and those that name columns only, up to the next clause of the first kind
OF_TABLES = frozenset(("FROM", "JOIN", "TABLE", "UNION", "INTERSECT", "EXCEPT", "MINUS"))
OF_COLUMNS = frozenset(("SELECT", "WHERE", "GROUP", "ORDER", "SORT", "HAVING", "QUALIFY", "LIMIT"))
WRITE_HINT = "Write to the upstream database; the tables here follow automatically."


@dataclass(frozen=True, slots=True)
class _Function:
    """A function of ours that stands in the place of a table: its arguments by their names, with their fields."""

    name: str
    made: Callable[..., ChangelogCall | ChangesCall]
    first: str  # the argument that needs no name
    unit: str  # of its numbers
    arguments: dict[str, str]
    usage: str


_FUNCTIONS = {
    "CHANGELOG": _Function(
        "changelog",
        ChangelogCall,
        "connection",
        "index",
        {"CONNECTION": "connection", "TABLE": "table", "FROM": "from_index", "TO": "to_index"},
        "Write changelog('connection' [, table => 'name'] [, from => index] [, to => index]).",
    ),
    "CHANGES": _Function(
        "changes",
        ChangesCall,
        "relation",
        "epoch",
        {"RELATION": "relation", "FROM": "from_epoch", "TO": "to_epoch"},
        "Write changes('table or view' [, from => epoch] [, to => epoch]).",
    ),
}


def read_query(piece: Piece, text: str, start: int | None = None) -> Query:
    """The query in a piece (from `start` on, for EXPLAIN)."""
    start = piece.start if start is None else start
    tokens = [t for t in tokenize(piece, text) if t.start >= start]
    _refuse_writes(tokens, text)
    calls, inside = _calls(tokens, text, start)
    among = [i not in inside and possible for i, possible in enumerate(_among_tables(tokens))]
    names = frozenset(
        t.text.lower()
        for i, t in enumerate(tokens)
        if t.kind in (Kind.WORD, Kind.QUOTED) and among[i] and _may_be_table(tokens, i)
    )
    return Query(
        text=text[start : piece.end],
        line=location(text, start)[0],
        spark_text=_without_slash_comments(piece, text, start),
        identifiers=names | {call.relation.lower() for call in calls if isinstance(call, ChangesCall)},
        calls=calls,
    )


def _among_tables(tokens: list[Token]) -> list[bool]:
    """For each token, whether it is in a clause that can name tables, by the words alone; in doubt it is.

    A column may have the name of a view, and a statement that names a view is read where that view is.
    """
    found = []
    clauses = ["FROM"]  # the clause that each open parenthesis is in; inside of it the same one goes on
    for i, token in enumerate(tokens):
        if token.kind is Kind.SYMBOL and token.text == "(":
            clauses.append(clauses[-1])
        elif token.kind is Kind.SYMBOL and token.text == ")" and len(clauses) > 1:
            clauses.pop()
        elif _is_symbol(token, ",") and clauses[-1] == "ON":  # FROM a JOIN b ON a.x = b.x, c
            clauses[-1] = "FROM"
        elif token.word in OF_TABLES | OF_COLUMNS | {"ON"} and not (i and _is_named_by(tokens[i - 1], clauses[-1])):
            clauses[-1] = token.word
        found.append(clauses[-1] not in OF_COLUMNS and clauses[-1] != "ON")
    return found


def _is_named_by(before: Token, clause: str) -> bool:
    """Whether a keyword after this token is a name: `FROM order`, `t.order`, `x AS order`."""
    named = before.word in ("AS", "JOIN", "TABLE") or (before.word == "FROM" and clause == "FROM")
    return named or _is_symbol(before, ".") or (_is_symbol(before, ",") and clause not in OF_COLUMNS)


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


def _calls(tokens: list[Token], text: str, start: int) -> tuple[tuple[ChangelogCall | ChangesCall, ...], set[int]]:
    """The calls, and the tokens that belong to them."""
    calls: list[ChangelogCall | ChangesCall] = []
    inside: set[int] = set()
    i = 0
    while i < len(tokens):
        function = _FUNCTIONS.get(tokens[i].word)
        opens = function is not None and i + 1 < len(tokens) and tokens[i + 1].text == "("
        if function is not None and opens and (i == 0 or tokens[i - 1].text != "."):
            end = _closing(tokens, i + 1, text)
            arguments = _arguments(function, tokens[i + 2 : end], tokens[i], text)
            calls.append(function.made(tokens[i].start - start, tokens[end].end - start, **arguments))
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


def _arguments(function: _Function, tokens: list[Token], head: Token, text: str) -> dict[str, str | int]:
    """The arguments of a call by field name."""
    found: dict[str, str | int] = {}
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind is Kind.SYMBOL and token.text == ",":
            groups.append([])
        else:
            groups[-1].append(token)
    for position, group in enumerate(groups):
        if len(group) == 1 and position == 0:
            name, value = function.first, group[0]
        elif len(group) == 3 and group[1].text == "=>" and group[0].word in function.arguments:
            name, value = function.arguments[group[0].word], group[2]
        else:
            place = (group[0] if group else head).start
            raise syntax_error(text, place, f"{function.name} has no such argument", function.usage)
        numeric = name.startswith(("from_", "to_"))
        if name in found or value.kind is not (Kind.NUMBER if numeric else Kind.STRING):
            unit = name.partition("_")[2]
            what = f"an {unit} (a number)" if numeric else "a name in quotes"
            raise syntax_error(text, value.start, f"expected {what} for {name.partition('_')[0]}, once", function.usage)
        found[name] = _number(value, text, function) if numeric else value.text
    if function.first not in found:
        raise syntax_error(text, head.start, f"{function.name} needs a {function.first}", function.usage)
    return found


def _number(token: Token, text: str, function: _Function) -> int:
    if not token.text.isdigit():
        raise syntax_error(text, token.start, f"an {function.unit} is a whole number", function.usage)
    return int(token.text)
