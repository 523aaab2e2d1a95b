"""Canonical texts: the same definition has one, and it is read back as the same definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from headwater.sql.options import validate
from headwater.sql.parse import parse
from headwater.sql.statements import ColumnSpec, CreateConnection, CreateTable, difference, quote_name, quote_text

name = some.text(some.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
type_name = some.sampled_from(["int", "decimal(10,2)", "varchar(5)", "array<int>", "timestamp with time zone"])


@given(name)
def test_a_quoted_name_is_read_back(text: str) -> None:
    (statement,) = parse(f"CREATE TABLE {quote_name(text)} FROM CONNECTION {quote_name(text)}")
    assert isinstance(statement, CreateTable)
    assert (statement.name, statement.connection) == (text, text)


@given(
    name,
    some.lists(some.tuples(name, type_name), min_size=1, max_size=5, unique_by=lambda c: c[0].lower()),
    some.one_of(some.none(), some.tuples(some.one_of(some.none(), name), name)),
)
def test_a_tables_canonical_text_is_read_back(
    table: str, columns: list[tuple[str, str]], upstream: tuple[str | None, str] | None
) -> None:
    first = CreateTable(
        name=table,
        connection="c",
        columns=tuple(ColumnSpec(n, t) for n, t in columns),
        key=(columns[0][0],),
        upstream=upstream,
        options=validate("table", {"delivery": "at-least-once"}),
    )
    (again,) = parse(first.canonical())
    assert again == first


@given(some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1).filter(str.strip))
def test_an_options_text_is_read_back(text: str) -> None:
    given_options = {"type": "postgres-cdc", "hostname": text, "username": text, "database.name": "d"}
    first = CreateConnection(name="c", options=validate("connection", given_options))
    (again,) = parse(first.canonical())
    assert again == first
    assert quote_text(text)[1:-1].replace("''", "'") == text


def test_ways_of_writing_do_not_matter() -> None:
    (a,) = parse("create table T (Id INTEGER primary key, p Decimal( 10 , 2 ) not null) from connection c")
    (b,) = parse("CREATE TABLE IF NOT EXISTS T (Id integer, p decimal(10,2), PRIMARY KEY (id),) FROM CONNECTION c")
    assert isinstance(a, CreateTable) and isinstance(b, CreateTable)
    assert a.canonical() == b.canonical()


def test_a_password_is_not_in_the_canonical_text() -> None:
    options = "type='postgres-cdc', hostname='h', username='u', password='hunter2', database.name='d'"
    (c,) = parse(f"CREATE CONNECTION c WITH ({options})")
    assert isinstance(c, CreateConnection)
    assert "hunter2" not in c.canonical() and "password" not in c.canonical()


def test_a_difference_shows_only_lines_that_differ() -> None:
    (a,) = parse("CREATE TABLE t (a int PRIMARY KEY, b int) FROM CONNECTION c")
    (b,) = parse("CREATE TABLE t (a int PRIMARY KEY, b bigint) FROM CONNECTION c")
    assert isinstance(a, CreateTable) and isinstance(b, CreateTable)
    assert difference(a.canonical(), b.canonical()) == "-     b int,\n+     b bigint,"
