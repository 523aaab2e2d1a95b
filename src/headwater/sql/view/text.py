"""The text of a view's query as it is stored: with the columns of its inputs, and the plain views that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.relation.schema import quoted
from headwater.sql.parse import parse
from headwater.sql.statements import Query
from headwater.sql.tokens import Kind, Token, pieces, tokenize
from headwater.sql.view.known import Known

# where columns enter a query without being named
WHOLE = frozenset({"TABLE", "NATURAL", "PIVOT", "UNPIVOT", "NAME"})
BEFORE_STAR = frozenset({"SELECT", "DISTINCT", "ALL", "STRUCT"})


def whole_text(
    query: Query, relations: Sequence[Known], plain: Sequence[Known], columns: Mapping[str, Sequence[str]]
) -> str:
    """The query after a WITH clause that holds the given columns of each relation, and the plain views.

    So a column that is added to a relation later does not become part of the view, and neither do hidden columns.
    """
    parts = []
    for known in relations:
        names = ", ".join(quoted(name) for name in columns[known.name])
        parts.append(f"{quoted(known.name)} AS (SELECT {names} FROM {quoted(known.name)})")
    parts += [f"{quoted(known.name)} AS (\n{_parsed(known.query).spark_text}\n)" for known in plain]
    clause = ",\n".join(parts)
    return f"WITH {clause}\n(\n{query.spark_text}\n)"


def takes_whole_rows(queries: Sequence[str]) -> bool:
    """Whether columns enter by `*`, or in another way that does not name them."""
    return any(_takes_whole_rows(_tokens(text)) for text in queries)


def words(queries: Sequence[str]) -> set[str]:
    """All names in these queries, in lower case."""
    return {t.text.lower() for text in queries for t in _tokens(text) if t.kind in (Kind.WORD, Kind.QUOTED)}


def calls_in(queries: Sequence[str]) -> bool:
    """Whether one of these queries calls `changelog(…)` or `changes(…)`."""
    return any(_parsed(text).calls for text in queries)


def _takes_whole_rows(tokens: list[Token]) -> bool:
    if tokens[0].word == "FROM" or any(t.word in WHOLE or t.text == "|>" for t in tokens):
        return True
    for i, token in enumerate(tokens):
        if token.kind is Kind.SYMBOL and token.text == "*" and i and not _counts(tokens, i):
            before = tokens[i - 1]
            if before.word in BEFORE_STAR or (before.kind is Kind.SYMBOL and before.text in (",", ".", "(")):
                return True
    return False


def _counts(tokens: list[Token], i: int) -> bool:
    """Whether the star at `i` is that of `count(*)`."""
    return i > 1 and tokens[i - 2].word == "COUNT" and tokens[i - 1].text == "(" and tokens[i + 1].text == ")"


def _tokens(text: str) -> list[Token]:
    (piece,) = pieces(text)
    return tokenize(piece, text)


def _parsed(text: str) -> Query:
    (query,) = parse(text)
    assert isinstance(query, Query)
    return query
