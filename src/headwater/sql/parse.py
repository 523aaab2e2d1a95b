"""Parses text into statements: a hand-written parser over tokens, with errors that show their location.

CREATE CONNECTION [IF NOT EXISTS] name WITH (option = value, …)
CREATE TABLE [IF NOT EXISTS] name [(columns | *)] [WITH (…)] FROM CONNECTION name [TABLE upstream] [WITH (…)]
CREATE MATERIALIZED VIEW [IF NOT EXISTS] name [WITH (…)] AS query     CREATE VIEW [IF NOT EXISTS] name AS query
ALTER TABLE | MATERIALIZED VIEW name SET (option = value, …)     RESYNC TABLE name
DROP CONNECTION | TABLE | MATERIALIZED VIEW | VIEW [IF EXISTS] name [CASCADE]
PAUSE | RESUME | CANCEL BACKFILL name     PAUSE | RESUME | REFRESH MATERIALIZED VIEW name     CANCEL QUERY id
SHOW CONNECTIONS | TABLES | MATERIALIZED VIEWS | VIEWS | BACKFILLS | METRICS | EPOCHS | SEGMENTS | HOLDS | QUERIES
SHOW CREATE CONNECTION | TABLE | MATERIALIZED VIEW | VIEW name
DESCRIBE [TABLE] name     FOLD TABLE | MATERIALIZED VIEW name     EXPLAIN MATERIALIZED VIEW name
EXPLAIN [mode] query     BEGIN     COMMIT     query
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from headwater.errors import SqlError
from headwater.sql import statements as st
from headwater.sql.create import alter_options, create_connection, create_table
from headwater.sql.cursor import Cursor
from headwater.sql.read_query import WRITE_HINT, read_query
from headwater.sql.tokens import Piece, location, pieces, syntax_error, tokenize
from headwater.sql.view.parse import (
    alter_view,
    at_view,
    control_view,
    create_view,
    drop_view,
    explain_view,
    fold_view,
    refresh_view,
    take_kind,
)

EXPLAIN_MODES = ("EXTENDED", "FORMATTED", "COST", "CODEGEN")
_KINDS = "CONNECTION, TABLE, MATERIALIZED VIEW or VIEW"
_LATER = "This version has no such statement; docs/sql.md lists all statements."
_UPSTREAM_ALTER = "Alter the upstream table; here only ALTER TABLE name SET (backfill.… = value) is supported."
_VIEW_ALTER = "Write ALTER MATERIALIZED VIEW name SET (option = value); DROP a plain view and CREATE it again."

# Statements that people try, and what to do instead.
REFUSED = {
    "INSERT": WRITE_HINT,
    "UPDATE": WRITE_HINT,
    "DELETE": WRITE_HINT,
    "MERGE": WRITE_HINT,
    "TRUNCATE": WRITE_HINT,
    "COPY": WRITE_HINT,
    "LOAD": WRITE_HINT,
    "REPLACE": WRITE_HINT,
    "SET": "Give the option in the statement's WITH (…); Spark settings belong to a session passed to headwater.open.",
    "RESET": "Spark settings belong to a session passed to headwater.open.",
    "USE": "Name tables without a schema; a home has one namespace.",
    "ROLLBACK": "End the block without COMMIT: none of it is executed.",
    "OPTIMIZE": "Run FOLD TABLE name; bases are maintained automatically.",
    "VACUUM": "Leave it to Headwater: it removes files that no reader needs.",
    "ANALYZE": "Run the query; every file has statistics.",
    "CACHE": "Run the query: every query reads the newest epoch.",
    "UNCACHE": "Run the query: every query reads the newest epoch.",
    "GRANT": "Protect the home directory with file system permissions.",
    "REVOKE": "Protect the home directory with file system permissions.",
    "COMMENT": _LATER,
    "CALL": _LATER,
    "DECLARE": _LATER,
    "EXECUTE": _LATER,
}
REFUSED_CREATE = {
    "TEMP": "Write CREATE VIEW, which is stored, or put the query into a WITH clause.",
    "TEMPORARY": "Write CREATE VIEW, which is stored, or put the query into a WITH clause.",
    "GLOBAL": "Write CREATE VIEW: every view of a home is visible to all its users.",
    "SOURCE": "Write CREATE CONNECTION for the database and CREATE TABLE … FROM CONNECTION for each table.",
    "SINK": "Read the changes with SELECT … FROM changelog(…); this version has no sinks.",
    "SUBSCRIPTION": "Read the changes with SELECT … FROM changelog(…); this version has no subscriptions.",
    "SCHEMA": "Name tables without a schema; a home has one namespace.",
    "DATABASE": "Use another home directory (--home DIR).",
    "INDEX": "Write CREATE MATERIALIZED VIEW name WITH (cluster.by = 'columns') AS SELECT …; files are in key order.",
    "FUNCTION": _LATER,
}


def parse(text: str) -> list[st.Statement]:
    """All statements of a text, in order; the first that cannot be parsed raises an error that shows its location."""
    return [_statement(piece, text) for piece in pieces(text)]


def complete(text: str) -> bool:
    """Whether the text ends with a statement's `;` (for a shell that reads line by line)."""
    try:
        found = list(pieces(text))
    except SqlError as e:
        return "never closed" not in e.message
    if not found:
        return True
    rest = text[found[-1].end :]
    return ";" in _bare(rest)


def _bare(rest: str) -> str:
    """What follows the last statement, without comments."""
    mark = next((i for i in range(len(rest)) if rest.startswith(("--", "//", "/*"), i)), len(rest))
    return rest[:mark]


def _statement(piece: Piece, text: str) -> st.Statement:
    if piece.first == "EXPLAIN" and piece.query:
        return _explain(piece, text)
    if piece.query:
        return read_query(piece, text)
    cursor = Cursor(tokenize(piece.head, text), text, piece)
    read = _READERS.get(piece.first)
    if read is None:
        raise _unknown(piece, text)
    statement = read(cursor)
    cursor.expect_end()
    return statement


def _unknown(piece: Piece, text: str) -> SqlError:
    if piece.first in REFUSED:
        return syntax_error(
            text, piece.start, f"{piece.first} is not supported", REFUSED[piece.first], "sql.unsupported"
        )
    known = [*_READERS, "SELECT", "WITH", "VALUES"]
    near = difflib.get_close_matches(piece.first, known, 1, 0.6)
    hint = f"Did you mean {near[0]}?" if near else f"Statements begin with {', '.join(sorted(known))}."
    shown = piece.first if len(piece.first) == 1 else text[piece.start : piece.start + len(piece.first)]
    return syntax_error(text, piece.start, f"expected a statement, found '{shown}'", hint)


def _explain(piece: Piece, text: str) -> st.Explain:
    tokens = tokenize(piece, text)
    mode = tokens[1].word if len(tokens) > 1 and tokens[1].word in EXPLAIN_MODES else ""
    rest = tokens[2 if mode else 1 :]
    if not rest or not (rest[0].word in ("SELECT", "WITH", "VALUES", "FROM", "TABLE") or rest[0].text == "("):
        at = rest[0].start if rest else piece.end
        raise syntax_error(text, at, "expected a query after EXPLAIN", "EXPLAIN takes a SELECT.", "sql.unsupported")
    query = read_query(piece, text, rest[0].start)
    return st.Explain(text=text[piece.start : piece.end], line=location(text, piece.start)[0], query=query, mode=mode)


def _create(c: Cursor) -> st.Statement:
    c.take("CREATE")
    if c.word == "OR":
        raise c.error(
            "CREATE OR REPLACE is not supported",
            "DROP the old definition first; the same definition again is a no-op.",
            "sql.unsupported",
        )
    kind = c.word
    if at_view(c):
        return create_view(c)
    if kind == "CONNECTION":
        return create_connection(c)
    if kind == "TABLE":
        return create_table(c)
    if kind in REFUSED_CREATE:
        raise c.error(f"CREATE {kind} is not supported", REFUSED_CREATE[kind], "sql.unsupported")
    raise c.expected(_KINDS)


def _drop(c: Cursor) -> st.Statement:
    c.take("DROP")
    if at_view(c):
        return drop_view(c)
    if c.word not in ("CONNECTION", "TABLE"):
        raise c.expected(_KINDS)
    kind = st.DropConnection if c.next().word == "CONNECTION" else st.DropTable
    if_exists = c.accept("IF")
    if if_exists:
        c.take("EXISTS")
    name = c.name("a name")
    cascade = c.accept("CASCADE")
    if not cascade:
        c.accept("RESTRICT")
    return kind(text=c.statement_text, line=c.line, name=name, if_exists=if_exists, cascade=cascade)


def _show(c: Cursor) -> st.Statement:
    c.take("SHOW")
    if c.accept("CREATE"):
        kind = st.ObjectKind(_words(c, [k.value.upper() for k in st.ObjectKind], _KINDS).lower())
        return st.ShowCreate(text=c.statement_text, line=c.line, kind=kind, name=c.name("a name"))
    listings = [k.value.upper() for k in st.Listing]
    near = difflib.get_close_matches(c.word, listings, 1, 0.5)
    hint = f"Did you mean SHOW {near[0]}?" if near else ""
    kind_of_list = st.Listing(_words(c, listings, " or ".join(listings), hint).lower())
    return st.Show(text=c.statement_text, line=c.line, kind=kind_of_list)


def _words(c: Cursor, allowed: list[str], expected: str, hint: str = "") -> str:
    """Takes one or two words that are allowed."""
    for text in (f"{c.word} {c.word_after}", c.word):
        if text in allowed:
            for word in text.split():
                c.take(word)
            return text
    raise c.expected(expected, hint)


def _describe(c: Cursor) -> st.Statement:
    c.next()
    if c.word == "TABLE" and c.more_after:
        c.next()
    elif at_view(c) and c.more_after:
        take_kind(c)
    return st.Describe(text=c.statement_text, line=c.line, name=c.name("the name of a table or view"))


def _fold(c: Cursor) -> st.Statement:
    c.take("FOLD")
    if at_view(c):
        return fold_view(c)
    c.take("TABLE", "TABLE or MATERIALIZED VIEW")
    return st.Fold(text=c.statement_text, line=c.line, name=c.name("a table's name"))


def _resync(c: Cursor) -> st.Statement:
    c.take("RESYNC")
    c.take("TABLE")
    return st.ResyncTable(text=c.statement_text, line=c.line, name=c.name("a table's name"))


def _cancel(c: Cursor) -> st.Statement:
    if c.word_after != "QUERY":
        return _control(c)
    c.next()
    c.next()
    return st.CancelQuery(text=c.statement_text, line=c.line, id=c.whole_number("a query's number"))


def _control(c: Cursor) -> st.Statement:
    if c.word_after == "MATERIALIZED" and c.word != "CANCEL":
        return control_view(c)
    verb = st.BackfillVerb(c.next().word)
    c.take("BACKFILL", "BACKFILL" if verb is st.BackfillVerb.CANCEL else "BACKFILL or MATERIALIZED VIEW")
    return st.ControlBackfill(text=c.statement_text, line=c.line, verb=verb, name=c.name("a table's name"))


def _alter(c: Cursor) -> st.Statement:
    c.take("ALTER")
    if c.word == "MATERIALIZED":
        return alter_view(c)
    if c.word != "TABLE":
        hint = _VIEW_ALTER if c.word == "VIEW" else _UPSTREAM_ALTER
        raise c.error(f"ALTER {c.word} is not supported", hint, "sql.unsupported")
    c.next()
    name = c.name("a table's name")
    if c.word != "SET":
        raise c.error(f"ALTER TABLE … {c.word} is not supported", _UPSTREAM_ALTER, "sql.unsupported")
    return st.AlterTable(text=c.statement_text, line=c.line, name=name, options=alter_options(c, "table"))


def _begin(c: Cursor) -> st.Statement:
    c.next()
    if not c.accept("TRANSACTION"):
        c.accept("WORK")
    return st.Begin(text=c.statement_text, line=c.line)


def _commit(c: Cursor) -> st.Statement:
    c.next()
    if not c.accept("TRANSACTION"):
        c.accept("WORK")
    return st.Commit(text=c.statement_text, line=c.line)


_READERS: dict[str, Callable[[Cursor], st.Statement]] = {
    "CREATE": _create,
    "DROP": _drop,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "FOLD": _fold,
    "ALTER": _alter,
    "REFRESH": refresh_view,
    "EXPLAIN": explain_view,
    "RESYNC": _resync,
    "PAUSE": _control,
    "RESUME": _control,
    "CANCEL": _cancel,
    "BEGIN": _begin,
    "COMMIT": _commit,
}
