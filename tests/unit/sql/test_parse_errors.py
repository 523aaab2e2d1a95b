"""Errors in statements: the place, the word that was expected, the way out, and no secret."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headwater.errors import HeadwaterError, SqlError
from headwater.sql.parse import REFUSED, REFUSED_CREATE, parse

CONNECTION = "CREATE CONNECTION c WITH (type='postgres-cdc', hostname='h', username='u', database.name='d'"


def refused(text: str) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        parse(text)
    return caught.value


def test_an_error_shows_line_column_and_the_line() -> None:
    e = refused("SHOW TABLES;\n\nCREATE TABLE orders\n  WITH (delivery='exactly-once') SELECT")
    assert isinstance(e, SqlError)
    assert e.message == "line 4, column 34: expected FROM CONNECTION, found 'SELECT'"
    assert (e.line, e.column, e.text) == (4, 34, "  WITH (delivery='exactly-once') SELECT")
    assert (e.code, e.exit_status) == ("sql.syntax", 2)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("CREATE TABLE t FROM CONNECTIO c", "sql.syntax", "expected FROM CONNECTION, found 'CONNECTIO'"),
        ("CREATE TABLE t", "sql.syntax", "expected FROM CONNECTION, found the end"),
        ("CREATE TABLE t () FROM CONNECTION c", "sql.syntax", "column list is empty"),
        ("CREATE TABLE t (a) FROM CONNECTION c", "sql.syntax", "a type for column a"),
        ("CREATE TABLE t (a int,, b int) FROM CONNECTION c", "sql.syntax", "a column's name"),
        ("CREATE TABLE t (a int b int) FROM CONNECTION c PRIMARY", "sql.syntax", "the end of the statement"),
        ("CREATE TABLE t (a int, PRIMARY KEY (b)) FROM CONNECTION c", "sql.syntax", "key column b"),
        ("CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a)) FROM CONNECTION c", "sql.syntax", "declared twice"),
        ("CREATE TABLE t (a int, a int) FROM CONNECTION c", "sql.syntax", "declared twice"),
        ("CREATE TABLE t (a int, A int) FROM CONNECTION c", "table.column_case", "differ only in case"),
        ("CREATE TABLE t (a int DEFAULT 1) FROM CONNECTION c", "sql.unsupported", "DEFAULT"),
        ("CREATE TABLE t (a int, FOREIGN KEY (a)) FROM CONNECTION c", "sql.unsupported", "FOREIGN"),
        ("CREATE TABLE t (a int, UNIQUE (a)) FROM CONNECTION c", "sql.unsupported", "UNIQUE"),
        ("CREATE TABLE s.t FROM CONNECTION c", "sql.syntax", "has a schema"),
        ("CREATE TABLE t AS SELECT 1", "sql.unsupported", "AS"),
        ("CREATE TABLE t FROM CONNECTION c TABLE 'a.b.c'", "sql.syntax", "not a table name"),
        ("CREATE OR REPLACE TABLE t FROM CONNECTION c", "sql.unsupported", "OR REPLACE"),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", "sql.unsupported", "TEMPORARY"),
        ("CREATE OR REPLACE VIEW v AS SELECT 'it\\'s; one'", "sql.unsupported", "OR REPLACE"),
        ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", "sql.unsupported", "OR REPLACE"),
        ("CREATE THING x", "sql.syntax", "CONNECTION, TABLE, MATERIALIZED VIEW or VIEW"),
        ("CREATE MATERIALIZED TABLE t", "sql.syntax", "CONNECTION, TABLE, MATERIALIZED VIEW or VIEW"),
        ("CREATE VIEW v", "sql.syntax", "expected AS, found the end"),
        ("CREATE VIEW v SELECT 1", "sql.syntax", "expected AS, found 'SELECT'"),
        ("CREATE VIEW v AS", "sql.syntax", "a query after AS"),
        ("CREATE VIEW v AS DROP TABLE t", "sql.syntax", "expected a query after AS, found 'DROP'"),
        ("CREATE VIEW v AS EXPLAIN SELECT 1", "sql.syntax", "expected a query after AS, found 'EXPLAIN'"),
        ("CREATE VIEW v AS WITH x AS (SELECT 1) DELETE FROM t", "sql.unsupported", "DELETE"),
        ("CREATE VIEW v WITH (refresh = full) AS SELECT 1", "sql.unsupported", "a plain view has no options"),
        ("CREATE VIEW s.v AS SELECT 1", "sql.syntax", "has a schema"),
        ("CREATE VIEW v (a, b) AS SELECT 1, 2", "sql.unsupported", "column list"),
        ("CREATE VIEW v AS SELECT 'a", "sql.syntax", "never closed"),
        ("CREATE MATERIALIZED VIEW v", "sql.syntax", "expected WITH (…) or AS, found the end"),
        ("CREATE MATERIALIZED VIEW v WITH (refresh = 'full') SELECT 1", "sql.syntax", "expected AS, found 'SELECT'"),
        ("CREATE MATERIALIZED VIEW v WITH (refresh = 'often') AS SELECT 1", "sql.bad_option", "'incremental'"),
        ("CREATE MATERIALIZED VIEW v WITH (cluster.by = 'a,,b') AS SELECT 1", "sql.bad_option", "different names"),
        ("CREATE MATERIALIZED VIEW v WITH (delivery = 'x') AS SELECT 1", "sql.unknown_option", "a materialized view"),
        ("ALTER MATERIALIZED VIEW v SET ()", "sql.syntax", "no option"),
        ("ALTER MATERIALIZED VIEW v RENAME TO w", "sql.unsupported", "RENAME"),
        ("ALTER VIEW v SET (a = 1)", "sql.unsupported", "ALTER VIEW"),
        ("REFRESH TABLE t", "sql.unsupported", "REFRESH TABLE"),
        ("REFRESH MATERIALIZED v", "sql.syntax", "expected VIEW"),
        ("PAUSE VIEW v", "sql.syntax", "BACKFILL or MATERIALIZED VIEW"),
        ("CANCEL MATERIALIZED VIEW v", "sql.syntax", "BACKFILL"),
        ("FOLD VIEW v", "sql.syntax", "MATERIALIZED VIEW"),
        ("EXPLAIN VIEW v", "sql.unsupported", "a query"),
        ("EXPLAIN MATERIALIZED VIEW", "sql.syntax", "a view's name"),
        ("SHOW MATERIALIZED VIEW", "sql.syntax", "MATERIALIZED VIEWS"),
        ("SHOW CREATE MATERIALIZED v", "sql.syntax", "MATERIALIZED VIEW"),
        ("CREATE CONNECTION c", "sql.syntax", "WITH"),
        ("CREATE CONNECTION c WITH (a=1 b=2)", "sql.syntax", "expected , or )"),
        ("CREATE CONNECTION c WITH (type)", "sql.syntax", "expected = after type"),
        (CONNECTION + ", port=", "sql.syntax", "a value for port"),
        (CONNECTION + ", PORT='1', port='2')", "sql.syntax", "given twice"),
        ("DROP INDEX x", "sql.syntax", "CONNECTION, TABLE, MATERIALIZED VIEW or VIEW"),
        ("DROP MATERIALIZED x", "sql.syntax", "CONNECTION, TABLE, MATERIALIZED VIEW or VIEW"),
        ("SHOW TABLE", "sql.syntax", "TABLES"),
        ("DESCRIBE", "sql.syntax", "the name of a table or view"),
        ("FOLD orders", "sql.syntax", "expected TABLE"),
        ("SHOW TABLES LIKE 'x'", "sql.syntax", "end of the statement"),
        ("EXPLAIN DROP TABLE t", "sql.unsupported", "a query"),
        ("SELECT 'a", "sql.syntax", "never closed"),
        ("SELECT 1 /* a", "sql.syntax", "never closed"),
        ("SELECT * FROM changelog()", "sql.syntax", "argument"),
        ("SELECT * FROM changelog('a', 'b')", "sql.syntax", "argument"),
        ("SELECT * FROM changelog('a', from => 'x')", "sql.syntax", "index"),
        ("SELECT * FROM changelog('a', from => 1.5)", "sql.syntax", "whole number"),
        ("SELECT * FROM changelog(table => 't')", "sql.syntax", "connection"),
        ("SELECT * FROM changelog('a'", "sql.syntax", "never closed"),
        ("SELECT * FROM changes()", "sql.syntax", "argument"),
        ("SELECT * FROM changes('v', table => 't')", "sql.syntax", "changes has no such argument"),
        ("SELECT * FROM changes('v', to => 'x')", "sql.syntax", "an epoch (a number) for to"),
        ("SELECT * FROM changes('v', from => 1.5)", "sql.syntax", "an epoch is a whole number"),
        ("SELECT * FROM changes(from => 1)", "sql.syntax", "changes needs a relation"),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT 1", "sql.unsupported", "INSERT"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "sql.unsupported", "DELETE"),
        ("FROM t INSERT OVERWRITE u SELECT 1", "sql.unsupported", "INSERT"),
        ("42", "sql.syntax", "expected a statement"),
    ],
)
def test_bad_input_names_what_is_wrong(text: str, code: str, words: str) -> None:
    e = refused(text)
    assert e.code == code
    assert words in e.message
    assert e.hint.endswith((".", "?"))
    assert e.exit_status == 2


@pytest.mark.parametrize("word", sorted(REFUSED))
def test_other_statements_are_refused_with_what_to_do_instead(word: str) -> None:
    e = refused(f"{word.lower()} something")
    assert e.code == "sql.unsupported" and e.hint == REFUSED[word]


@pytest.mark.parametrize("word", sorted(REFUSED_CREATE))
def test_other_creates_are_refused_with_what_to_do_instead(word: str) -> None:
    e = refused(f"CREATE {word} something")
    assert e.code == "sql.unsupported" and e.hint == REFUSED_CREATE[word]


def test_a_misspelled_word_gets_a_suggestion() -> None:
    assert refused("SELCT 1").hint == "Did you mean SELECT?"
    assert refused("SHOW CONNECTION").hint == "Did you mean SHOW CONNECTIONS?"


def test_a_hint_names_the_statement_for_materialized_views() -> None:
    assert refused("ALTER VIEW v SET (refresh = 'full')").hint.startswith("Write ALTER MATERIALIZED VIEW name SET")
    assert refused("REFRESH v").hint.startswith("Write REFRESH MATERIALIZED VIEW name.")
    assert "CREATE VIEW" not in refused("CREATE MATERIALIZED VIEW v AS INSERT INTO t SELECT 1").hint


def test_words_like_writes_may_be_columns() -> None:
    parse("SELECT count(*) update, max(x) delete FROM t; WITH a AS (SELECT 1 insert) SELECT (insert) merge FROM a")


@pytest.mark.parametrize(
    "text",
    [
        CONNECTION + ", password='hunter2' oops)",
        CONNECTION + ", password 'hunter2')",
        CONNECTION + ", password='hunter2', nothing='x')",
        CONNECTION + ", password='hunter2",
        CONNECTION + ", Password = 'hunter2', port='x')",
    ],
)
def test_no_error_shows_a_password(text: str) -> None:
    e = refused(text)
    assert isinstance(e, SqlError)
    assert "hunter2" not in e.message + e.hint + e.text + repr(e)


def test_an_error_survives_pickling_with_its_place() -> None:
    e = refused("SELCT 1")
    copy = pickle.loads(pickle.dumps(e))
    assert isinstance(e, SqlError) and (copy.line, copy.column, copy.text) == (e.line, e.column, e.text)


@given(some.text(alphabet="SELECTabc '\"`;-/*\\\n()=,.1é", max_size=60))
def test_any_text_gives_statements_or_a_clear_error(text: str) -> None:
    try:
        statements = parse(text)
    except HeadwaterError as e:
        assert e.code.startswith(("sql.", "table.")) and e.hint
    else:
        assert all(s.text and s.line >= 1 for s in statements)
